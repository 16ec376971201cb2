"""nn.MultiheadAttention with members."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.ensemble.rank_one import RankOne


class RankOneAttention(RankOne):
    """nn.MultiheadAttention run once per member, with that member's projection weights.

    The module reads its projections' weights instead of calling layers, so the members' weights are formed here; the
    output projection is a converted layer itself, whose weight is read the same way.
    """

    @property
    def weight_names(self) -> list[str]:
        names = ["in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"]
        return [name for name in names if getattr(self, name) is not None]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        self.check_batched(query, 3)
        own = cast(Any, self)
        weights = {name: self.member_weights(name) for name in self.weight_names}
        output_weights = own.out_proj.member_weights()
        members = output_weights.shape[0]

        def parts(x: Tensor | None, dim: int) -> tuple[Any, ...]:
            return (None,) * members if x is None else self.split(x, members, dim).unbind(dim)

        # The functional form expects sequence-first inputs and detects self-attention by object identity.
        same_keys, same_values = key is query, value is key
        if own.batch_first:
            query = query.transpose(0, 1)
            key = query if same_keys else key.transpose(0, 1)
            value = key if same_values else value.transpose(0, 1)
        queries = parts(query, 1)
        keys = queries if same_keys else parts(key, 1)
        values = keys if same_values else parts(value, 1)
        padding_masks = parts(key_padding_mask, 0)
        masks = parts(attn_mask, 0) if attn_mask is not None and attn_mask.dim() == 3 else (attn_mask,) * members
        outputs: list[Tensor] = []
        attentions: list[Tensor] = []
        for m in range(members):
            own_weights = {name: w[m] for name, w in weights.items()}
            output, attention = F.multi_head_attention_forward(
                queries[m],
                keys[m],
                values[m],
                own.embed_dim,
                own.num_heads,
                own_weights.pop("in_proj_weight", None),
                own.in_proj_bias,
                own.bias_k,
                own.bias_v,
                own.add_zero_attn,
                own.dropout,
                output_weights[m],
                own.out_proj.bias,
                training=self.training,
                key_padding_mask=padding_masks[m],
                need_weights=need_weights,
                attn_mask=masks[m],
                use_separate_proj_weight=bool(own_weights),
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
                **own_weights,
            )
            outputs.append(output)
            if attention is not None:
                attentions.append(attention)
        whole = torch.cat(outputs, 1)
        return whole.transpose(0, 1) if own.batch_first else whole, torch.cat(attentions) if attentions else None
