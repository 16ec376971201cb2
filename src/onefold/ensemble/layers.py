"""Layers whose weight is theta o (r_m s_m^T) for member m, on inputs that hold the members one after another.

A layer is converted by giving it a subclass of its own class: hooks, attributes, parameter names and every
`isinstance` test of the network around it stay as they were, and taking the subclass away again restores it.
The factors are stored as offsets from one, so that ordinary weight decay pulls them toward one.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

R, S = "{}_r_minus_one", "{}_s_minus_one"


def outer_product(r: Tensor, s: Tensor, groups: int = 1, transposed: bool = False) -> Tensor:
    """r_m s_m^T in the layout of the weight: `[M, out, in/groups]`, transposed `[M, in, out/groups]`."""
    m = r.shape[0]
    rows, columns = (r, s) if transposed else (s, r)
    blocks = rows.reshape(m, groups, -1, 1) * columns.reshape(m, groups, 1, -1)
    return blocks.flatten(1, 2)


class RankOne(nn.Module):
    """What the converted layers have in common. `layer_name` is for messages, `batch_dim` holds M * B."""

    original: type[nn.Module]
    layer_name: str
    batch_dim: int

    @property
    def weight_names(self) -> list[str]:
        return ["weight"]

    def factors(self, name: str = "weight") -> tuple[Tensor, Tensor]:
        """r `[M, in]` and s `[M, out]`."""
        return 1 + getattr(self, R.format(name)), 1 + getattr(self, S.format(name))

    def multipliers(self, name: str = "weight") -> Tensor:
        """r_m s_m^T for every member, in the layout of the weight and with its number of dimensions."""
        product = outer_product(
            *self.factors(name),
            groups=getattr(self, "groups", 1),
            transposed=getattr(self, "transposed", False),
        )
        dims = cast(Tensor, getattr(self, name)).dim()
        return product.reshape(*product.shape, *(1,) * (dims - 2))

    def member_weights(self, name: str = "weight") -> Tensor:
        """theta o (r_m s_m^T) for every member: `[M, *weight.shape]`."""
        return cast(Tensor, getattr(self, name)) * self.multipliers(name)

    def split(self, x: Tensor, members: int, dim: int) -> Tensor:
        """`[.., M * B, ..]` as `[.., M, B, ..]`."""
        if x.shape[dim] % members:
            raise ValueError(
                f"layer '{self.layer_name}': expected {members} members along dimension {dim}, "
                f"got an input of shape {list(x.shape)}; the network calls this layer on something that is "
                "not batch-first. Convert with batch_ensemble(..., example=x), which finds out, "
                f"or leave it shared with keep=['{self.layer_name}']"
            )
        return x.unflatten(dim, (members, -1))

    def __reduce_ex__(self, _protocol: object) -> Any:
        # The subclass is made at run time, so pickle and deepcopy rebuild it from the original class.
        return _rebuild, (type(self).original,), self.__dict__


class RankOneLinear(RankOne):
    """s_m o (theta (r_m o x)) + b: for wide layers, scaling activations is cheaper than M weights."""

    in_features: int
    out_features: int
    weight: Tensor
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        r, s = self.factors()
        members, dim = r.shape[0], self.batch_dim
        between = (1,) * (x.dim() - dim - 1)  # the batch, and whatever lies between it and the features
        h = self.split(x, members, dim) * r.reshape(members, *between, -1)
        y = F.linear(h.flatten(dim, dim + 1), self.weight).unflatten(dim, (members, -1))
        y = y * s.reshape(members, *between, -1)
        return (y if self.bias is None else y + self.bias).flatten(dim, dim + 1)


class RankOneConv(RankOne):
    """M convolutions with ready-made weights: these are small, the activations are not."""

    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        weights = self.member_weights()
        inputs = self.split(x, weights.shape[0], 0)
        apply = cast(Any, self)._conv_forward
        return torch.cat(
            [apply(h, w, self.bias) for h, w in zip(inputs.unbind(), weights.unbind(), strict=True)]
        )


class RankOneConvTranspose(RankOne):
    """The same for transposed convolutions."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        own = cast(Any, self)
        weights = self.member_weights()
        inputs = self.split(x, weights.shape[0], 0)
        spatial = weights.dim() - 3
        apply = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]
        padding = own._output_padding(
            x, output_size, own.stride, own.padding, own.kernel_size, spatial, own.dilation
        )
        return torch.cat(
            [
                apply(h, w, own.bias, own.stride, own.padding, padding, own.groups, own.dilation)
                for h, w in zip(inputs.unbind(), weights.unbind(), strict=True)
            ]
        )


class RankOneAttention(RankOne):
    """nn.MultiheadAttention with member weights for its projections, member by member.

    The module reads its projections' weights instead of calling them, so the members are formed here; its output
    projection is a converted layer of its own that is read the same way.
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
        own = cast(Any, self)
        weights = {name: self.member_weights(name) for name in self.weight_names}
        output_weights = own.out_proj.member_weights()
        members = output_weights.shape[0]

        def parts(x: Tensor | None, dim: int) -> tuple[Tensor | None, ...]:
            return (None,) * members if x is None else self.split(x, members, dim).unbind(dim)

        dim = 0 if own.batch_first else 1
        # The same tensor is split once: the attention function recognises self-attention by identity.
        split = {id(x): parts(x, dim) for x in (query, key, value)}
        padding_masks = parts(key_padding_mask, 0)
        masks = (
            parts(attn_mask, 0) if attn_mask is not None and attn_mask.dim() == 3 else (attn_mask,) * members
        )
        outputs, attentions = [], []
        for m in range(members):
            q, k, v = (cast(Tensor, split[id(x)][m]) for x in (query, key, value))
            if own.batch_first:
                swapped = {id(x): x.transpose(0, 1) for x in (q, k, v)}
                q, k, v = swapped[id(q)], swapped[id(k)], swapped[id(v)]
            own_weights = {name: w[m] for name, w in weights.items()}
            output, attention = F.multi_head_attention_forward(
                q,
                k,
                v,
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
            outputs.append(output.transpose(0, 1) if own.batch_first else output)
            attentions.append(attention)
        return torch.cat(outputs, dim), torch.cat(attentions) if need_weights else None


# What can be converted. A subclass counts where it leaves the methods named here as they are.
KINDS: dict[type[nn.Module], tuple[type[RankOne], tuple[str, ...]]] = {
    nn.Linear: (RankOneLinear, ("forward",)),
    nn.Conv1d: (RankOneConv, ("forward", "_conv_forward")),
    nn.Conv2d: (RankOneConv, ("forward", "_conv_forward")),
    nn.Conv3d: (RankOneConv, ("forward", "_conv_forward")),
    nn.ConvTranspose1d: (RankOneConvTranspose, ("forward", "_output_padding")),
    nn.ConvTranspose2d: (RankOneConvTranspose, ("forward", "_output_padding")),
    nn.ConvTranspose3d: (RankOneConvTranspose, ("forward", "_output_padding")),
    nn.MultiheadAttention: (RankOneAttention, ("forward",)),
}


def kind_of(module: nn.Module) -> type[nn.Module] | None:
    """The convertible class that the module is, or is a subclass of."""
    return next((base for base in KINDS if isinstance(module, base)), None)


@functools.cache
def rank_one_class(original: type[nn.Module]) -> type[RankOne]:
    mixin = next(mixin for base, (mixin, _) in KINDS.items() if issubclass(original, base))
    return type(f"RankOne{original.__name__}", (mixin, original), {"original": original})


def _rebuild(original: type[nn.Module]) -> nn.Module:
    cls = rank_one_class(original)
    return cls.__new__(cls)


def factor_shapes(module: nn.Module, name: str) -> tuple[int, int]:
    """Lengths of r and s for one weight: its inputs and outputs."""
    weight = cast(Tensor, getattr(module, name))
    groups = getattr(module, "groups", 1)
    if getattr(module, "transposed", False):
        return weight.shape[0], weight.shape[1] * groups
    return weight.shape[1] * groups, weight.shape[0]


def to_rank_one(module: nn.Module, layer_name: str, batch_dim: int) -> RankOne:
    """Turns the module, in place, into its rank-one subclass; the factors are attached by the caller."""
    module.__class__ = rank_one_class(type(module))
    converted = cast(RankOne, module)
    converted.layer_name, converted.batch_dim = layer_name, batch_dim
    return converted


def to_original(module: RankOne) -> None:
    """Takes the factors and the subclass away again, in place."""
    for name in module.weight_names:
        delattr(module, R.format(name))
        delattr(module, S.format(name))
    del module.layer_name, module.batch_dim
    module.__class__ = type(module).original  # type: ignore[assignment]
