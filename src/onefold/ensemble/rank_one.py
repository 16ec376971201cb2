"""The base class of converted layers: member m's weight is theta o (r_m s_m^T).

The batch holds all examples of member 0, then those of member 1, and so on. Factors are stored as offsets from one,
so that ordinary weight decay pulls them toward one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor, nn

# Examples in the current call, over all members (M * B): the batch dimension of every layer must be a multiple of it.
ROWS: ContextVar[int | None] = ContextVar("ROWS", default=None)
R, S = "{}_r_minus_one", "{}_s_minus_one"


def outer_product(r: Tensor, s: Tensor, groups: int = 1, transposed: bool = False) -> Tensor:
    """r_m s_m^T in the weight's layout: `[M, out, in/groups]`, or `[M, in, out/groups]` if transposed."""
    m = r.shape[0]
    rows, columns = (r, s) if transposed else (s, r)
    blocks = rows.reshape(m, groups, -1, 1) * columns.reshape(m, groups, 1, -1)
    return blocks.flatten(1, 2)


def named_factors(net: nn.Module) -> dict[str, nn.Parameter]:
    """Every factor of a converted network by name; tied factors appear once."""
    layers = [m for m in net.modules() if isinstance(m, RankOne)]
    own = {id(m._parameters[which.format(w)]) for m in layers for w in m.weight_names for which in (R, S)}
    return {name: p for name, p in net.named_parameters() if id(p) in own}


class RankOne(nn.Module):
    """Base class of converted layers. `layer_name` is for messages; `batch_dim` is the dimension that holds M * B."""

    original: type[nn.Module]
    rebuild: Callable[[type[nn.Module]], nn.Module]
    layer_name: str
    batch_dim: int

    @property
    def weight_names(self) -> list[str]:
        return ["weight"]

    def factors(self, name: str = "weight") -> tuple[Tensor, Tensor]:
        """r `[M, in]` and s `[M, out]`."""
        # 1.0 rather than 1: torch 2.11 cannot export the sum of an int and a float tensor to ONNX.
        return 1.0 + getattr(self, R.format(name)), 1.0 + getattr(self, S.format(name))

    def multipliers(self, r: Tensor, s: Tensor, dims: int) -> Tensor:
        """r_m s_m^T, ready to multiply this layer's weight: M, then as many dimensions as the weight has (`dims`)."""
        groups, transposed = getattr(self, "groups", 1), getattr(self, "transposed", False)
        product = outer_product(r, s, groups, transposed)
        return product.reshape(*product.shape, *(1,) * (dims - 2))

    def member_weights(self, name: str = "weight") -> Tensor:
        """theta o (r_m s_m^T) for every member: `[M, *weight.shape]`."""
        weight = cast(Tensor, getattr(self, name))
        return weight * self.multipliers(*self.factors(name), weight.dim())

    def combined(self, coefficients: Sequence[float], name: str, dtype: torch.dtype) -> Tensor:
        """sum_m c_m r_m s_m^T, added one by one: a matmul's precision would depend on the TF32 setting."""
        weight = cast(Tensor, getattr(self, name))
        r, s = (factor.to(dtype) for factor in self.factors(name))
        products = (
            c * self.multipliers(r[m : m + 1], s[m : m + 1], weight.dim())[0] for m, c in enumerate(coefficients) if c
        )
        return functools.reduce(torch.add, products, torch.zeros((), dtype=dtype, device=weight.device))

    def split(self, x: Tensor, members: int, dim: int) -> Tensor:
        """`[.., M * B, ..]` to `[.., M, B, ..]`; B may be a multiple of the batch size (windows, patches)."""
        self.check_rows(x, members, dim)
        return torch.unflatten(x, dim, (members, -1))

    def check_rows(self, x: Tensor, members: int, dim: int) -> None:
        rows = members if torch.compiler.is_compiling() else ROWS.get() or members
        if x.dim() <= dim or x.shape[dim] % rows:
            raise ValueError(
                f"layer '{self.layer_name}': expected the examples of {members} members along dimension {dim}, "
                f"got an input of shape {list(x.shape)}; the network calls this layer on something else than its "
                "batch. Convert with batch_ensemble(..., example=x), which finds out, "
                f"or leave it shared with keep=['{self.layer_name}']"
            )

    def check_batched(self, x: Tensor, dims: int) -> None:
        """Refuses a single example without a batch dimension, which torch's layers accept but members cannot use."""
        if x.dim() != dims:
            raise ValueError(
                f"layer '{self.layer_name}': expected a batch with {dims} dimensions, got shape {list(x.shape)}; "
                f"leave it shared with keep=['{self.layer_name}']"
            )

    def __reduce_ex__(self, _protocol: object) -> Any:
        # The subclass is created at run time, so pickle and deepcopy rebuild it from the original class.
        return type(self).rebuild, (type(self).original,), cast(Any, self).__getstate__()
