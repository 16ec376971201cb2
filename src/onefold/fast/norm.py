"""The inputs of a normalisation's passes, and the table that the first of them computes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

Running = tuple[Tensor, Tensor]  # mean and variance `[C]`


class Norm(NamedTuple):
    """The constants of a normalisation; `shared`: its input has other users, too."""

    members: int
    eps: float
    momentum: float
    relu: bool
    shared: bool


class Learned(NamedTuple):
    """The learned tensors, or their gradients: factors before and after the norm `[M, C]`, gamma and beta `[C]`.

    Factors are offsets from one. Absent ones are None.
    """

    s: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    r: Tensor | None

    def filled(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """1 + s, gamma, beta and 1 + r, with ones and zeros for absent ones; `like` is `[M, C]`."""
        one = torch.ones_like(like)
        return (
            one if self.s is None else 1 + self.s,
            one[0] if self.weight is None else self.weight,
            torch.zeros_like(one[0]) if self.bias is None else self.bias,
            one if self.r is None else 1 + self.r,
        )

    def gradients(self, *found: Tensor) -> Learned:
        """The given gradients of s, gamma, beta and r, with None for absent ones."""
        return Learned(*(None if mine is None else g for mine, g in zip(self, found, strict=True)))


class Sum(NamedTuple):
    """A sum before the norm, (1 + q) y + x; none if x is None."""

    q: Tensor | None
    x: Tensor | None


class Moments(NamedTuple):
    """The rows of a table `[3 M + 3, C]`; a y + b is BatchNorm of (1 + s) y.

    a, mean and variance `[M, C]` are each member's own; mu and 1/sigma `[C]` are of (1 + s) y over all members.
    """

    a: Tensor
    mean: Tensor
    var: Tensor
    b: Tensor
    mu: Tensor
    rstd: Tensor

    @classmethod
    def of(cls, table: Tensor, members: int) -> Moments:
        a, mean, var = table[: 3 * members].unflatten(0, (3, members))
        return cls(a, mean, var, *table[3 * members : 3 * members + 3])
