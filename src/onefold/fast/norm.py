"""What the passes of a normalisation are given, and what the first of them finds out."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

Running = tuple[Tensor, Tensor]  # mean and variance `[C]`


class Norm(NamedTuple):
    """What is fixed about a normalisation; `shared`: its input is needed elsewhere too."""

    members: int
    eps: float
    momentum: float
    relu: bool
    shared: bool


class Learned(NamedTuple):
    """What it learns, or the gradients thereof: factors before and after it `[M, C]`, gamma and beta `[C]`.

    Factors are offsets from one. Whatever is absent is None.
    """

    s: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    r: Tensor | None

    def filled(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """1 + s, gamma, beta and 1 + r: ones and zeros where they are absent, as for `like` `[M, C]`."""
        one = torch.ones_like(like)
        return (
            one if self.s is None else 1 + self.s,
            one[0] if self.weight is None else self.weight,
            torch.zeros_like(one[0]) if self.bias is None else self.bias,
            one if self.r is None else 1 + self.r,
        )

    def gradients(self, *found: Tensor) -> Learned:
        """The found ones of s, gamma, beta and r, without those of what is absent."""
        return Learned(*(None if mine is None else g for mine, g in zip(self, found, strict=True)))


class Sum(NamedTuple):
    """What is added to y on the way, (1 + q) y + x; without x, nothing."""

    q: Tensor | None
    x: Tensor | None


class Moments(NamedTuple):
    """The rows of a table `[3 M + 3, C]`, by which a y + b is what BatchNorm makes of (1 + s) y.

    a, mean and variance are each member's, `[M, C]`; mu and 1/sigma, `[C]`, are those of (1 + s) y over all members.
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
