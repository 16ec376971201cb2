"""The layers that can have members, and how they are converted and restored.

A layer is converted by changing its class to a subclass: hooks, attributes, parameter names and the network's own
`isinstance` checks keep working, and changing the class back restores it.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onefold.ensemble.attention import RankOneAttention
from onefold.ensemble.convolution import MemberConvolution, suits
from onefold.ensemble.rank_one import R, RankOne, S
from onefold.fast.members import linear_of_members, scaled, scaled_features


class RankOneLinear(RankOne):
    """s_m o (theta (r_m o x)) + b, or (theta o s_m r_m^T) x + b: factors multiply whatever is smaller.

    A layer that sees each example once, such as a head, scales activations. A transformer's layers see every token, so
    forming M weights is cheap by comparison.
    """

    in_features: int
    out_features: int
    weight: Tensor
    bias: Tensor | None
    on_activations = False  # True also scales activations as on a GPU (`scaled_features`) on other devices

    def forward(self, x: Tensor) -> Tensor:
        if self.batch_dim == 0 and x.dim() > 2 and many_rows(x, self.weight, getattr(self, R.format("weight"))):
            self.check_rows(x, getattr(self, R.format("weight")).shape[0], 0)
            return linear_of_members(x, self.member_weights(), self.bias)
        if (x.is_cuda or self.on_activations) and self.batch_dim == 0:
            r_minus_one, s_minus_one = getattr(self, R.format("weight")), getattr(self, S.format("weight"))
            self.check_rows(x, r_minus_one.shape[0], 0)
            y = scaled_features(F.linear(scaled_features(x, r_minus_one), self.weight), s_minus_one)
            return y if self.bias is None else y + self.bias.to(y.dtype)
        r, s = self.factors()
        members, dim = r.shape[0], self.batch_dim
        between = (1,) * (x.dim() - dim - 1)  # the batch dimension and any between it and the features
        h = self.split(x, members, dim) * r.reshape(members, *between, -1)
        # Products with the factors are computed in the factors' precision, then rounded to that of the activations.
        y = F.linear(h.to(x.dtype).flatten(dim, dim + 1), self.weight)
        of_rows = s.reshape(members, *between, -1)
        by_member = torch.unflatten(y, dim, (members, -1))
        if torch.compiler.is_exporting():  # torch 2.11 cannot flatten a product of symbolic size
            scaled = y * of_rows.expand_as(by_member).flatten(dim, dim + 1)
        else:
            scaled = (by_member * of_rows).flatten(dim, dim + 1)
        return (scaled if self.bias is None else scaled + self.bias).to(y.dtype)


def many_rows(x: Tensor, weight: Tensor, factor: Tensor) -> bool:
    """Whether scaling a member's activations, in and out, forward and backward, costs more than forming its weight.

    Never for export: an exported model serves every batch size.
    """
    if torch.compiler.is_exporting():
        return False
    outputs, inputs = weight.shape
    return bool(x.numel() // (factor.shape[0] * inputs) * (inputs + outputs) > 2 * inputs * outputs)


class RankOneConv(RankOne):
    """On a CPU, M convolutions with the members' weights, which are small compared with the activations.

    A GPU prefers one large convolution to M small ones, and scales the activations before and after it:
    s_m o (theta * (r_m o x)) + b.
    """

    weight: Tensor
    bias: Tensor | None
    on_activations = False  # True does as on a GPU on other devices, too

    def forward(self, x: Tensor) -> Tensor:
        if x.is_cuda or self.on_activations:
            self.check_batched(x, self.weight.dim())
            self.check_rows(x, getattr(self, R.format("weight")).shape[0], 0)
            y = cast(Any, self)._conv_forward(scaled(x, getattr(self, R.format("weight"))), self.weight, None)
            y = scaled(y, getattr(self, S.format("weight")))
            return y if self.bias is None else y + self.bias.reshape(-1, *(1,) * (x.dim() - 2)).to(y.dtype)
        weights = self.member_weights()
        self.check_batched(x, weights.dim() - 1)
        inputs = self.split(x, weights.shape[0], 0)
        own = cast(Any, self)
        if suits(self, x):
            settings = (own.stride, own.padding, own.dilation, False, [0] * len(own.stride), own.groups)
            return cast(Tensor, MemberConvolution.apply(inputs, weights, self.bias, settings)).flatten(0, 1)
        apply = own._conv_forward
        return torch.cat([apply(h, w, self.bias) for h, w in zip(inputs.unbind(), weights.unbind(), strict=True)])


class RankOneConvTranspose(RankOne):
    """M transposed convolutions with the members' weights, on every device."""

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        own = cast(Any, self)
        weights = self.member_weights()
        self.check_batched(x, weights.dim() - 1)
        inputs = self.split(x, weights.shape[0], 0)
        spatial = weights.dim() - 3
        apply = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[spatial - 1]
        padding = own._output_padding(x, output_size, own.stride, own.padding, own.kernel_size, spatial, own.dilation)
        return torch.cat(
            [
                apply(h, w, own.bias, own.stride, own.padding, padding, own.groups, own.dilation)
                for h, w in zip(inputs.unbind(), weights.unbind(), strict=True)
            ]
        )


# The convertible classes. A subclass is convertible, too, unless it overrides one of the methods named here.
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
    """The convertible class the module is an instance of, or None."""
    return next((base for base in KINDS if isinstance(module, base)), None)


SUBCLASSES: dict[type[nn.Module], type[RankOne]] = {}


def rank_one_class(original: type[nn.Module]) -> type[RankOne]:
    """The subclass of a convertible class that has members."""
    if original not in SUBCLASSES:
        mixin = next(mixin for base, (mixin, _) in KINDS.items() if issubclass(original, base))
        attributes = {"original": original, "rebuild": staticmethod(rebuild)}
        SUBCLASSES[original] = type(f"RankOne{original.__name__}", (mixin, original), attributes)
    return SUBCLASSES[original]


def rebuild(original: type[nn.Module]) -> nn.Module:
    """An empty converted layer for pickle and deepcopy to fill."""
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
    """Changes the module, in place, to its rank-one subclass; the caller attaches the factors."""
    module.__class__ = rank_one_class(type(module))
    converted = cast(RankOne, module)
    converted.layer_name, converted.batch_dim = layer_name, batch_dim
    return converted


def to_original(module: RankOne) -> None:
    """Removes the factors and restores the original class, in place."""
    for name in module.weight_names:
        delattr(module, R.format(name))
        delattr(module, S.format(name))
    del module.layer_name, module.batch_dim
    module.__class__ = type(module).original  # type: ignore[assignment]
