"""The space inputs live in: how far one step goes, and where it may not go."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor

from onefold.types import at_least_float32


@dataclass(frozen=True)
class InputSpace:
    """`scale` is the size of a step for each input dimension, `low` and `high` the range inputs are clipped to.

    Images in [0, 1] are the default: a step has the L2 norm sqrt(D)/255, the expected size of Gaussian noise with a
    deviation of 1/255. For other inputs give a scale for each feature (a tensor that broadcasts to one example) and
    no range; `InputSpace.of(x)` measures it from data.
    """

    scale: float | Tensor = 1 / 255
    low: float | None = 0.0
    high: float | None = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.scale, (int, float)) and not 0 < self.scale < float("inf"):
            raise ValueError(f"scale: expected a positive number, got {self.scale}")
        if isinstance(self.scale, Tensor) and not bool((self.scale >= 0).all() & self.scale.isfinite().all()):
            raise ValueError("scale: expected finite values of at least 0, one for each feature")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low, high: expected low < high, got {self.low} and {self.high}")

    @property
    def described(self) -> str:
        """As a run folder records it: plain numbers in full, of a tensor a hash of its values, wherever it lies."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return f"{type(self).__qualname__}({', '.join(f'{name}={in_full(value)}' for name, value in values.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpace) and self.described == other.described

    def __hash__(self) -> int:
        return hash(self.described)

    @staticmethod
    def of(x: Tensor, step: float = 0.1) -> InputSpace:
        """For inputs that are not pixels: `step` times each feature's deviation over the data, no clipping."""
        if not x.is_floating_point() or x.shape[0] < 2:
            raise ValueError(f"x: expected at least two floating-point examples, got {x.dtype} {list(x.shape)}")
        return InputSpace(scale=step * x.std(0), low=None, high=None)

    def move(self, x: Tensor, steps: Tensor) -> Tensor:
        """x displaced by `steps`, counted in units of the scale, and clipped."""
        moved = x + self.scaled(steps, x)
        return moved if self.low is None and self.high is None else moved.clamp(self.low, self.high)

    def ascend(self, x: Tensor, gradient: Tensor, length: Tensor | float = 1.0) -> Tensor:
        """One step of norm `length` * sqrt(D), in units of the scale, up the gradient of each example.

        Where the gradient is zero, or not finite, the example stays as it is.
        """
        gradient = at_least_float32(gradient)
        uphill = self.scaled(gradient, gradient).flatten(1)  # the gradient with respect to x / scale
        # First by the largest entry: gradients of confident networks are so small that their squares vanish.
        largest = uphill.abs().amax(1, keepdim=True)
        leads = (largest > 0) & largest.isfinite()
        uphill = torch.where(leads, uphill / torch.where(leads, largest, torch.ones_like(largest)), 0.0)
        norm = torch.linalg.vector_norm(uphill, dim=1, keepdim=True)
        uphill = uphill / torch.where(leads, norm, torch.ones_like(norm))
        steps = (uphill * uphill.shape[1] ** 0.5 * length).reshape(x.shape)
        leads = leads.reshape(-1, *(1,) * (x.dim() - 1))
        return torch.where(leads, self.move(at_least_float32(x), steps), x).to(x.dtype)

    def scaled(self, values: Tensor, like: Tensor) -> Tensor:
        return values * (self.scale.to(like) if isinstance(self.scale, Tensor) else self.scale)


def in_full(value: float | Tensor | None) -> str:
    """What tells it from every other one; a tensor is printed rounded, and shortened."""
    if not isinstance(value, Tensor):
        return repr(value)
    held = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return f"{value.dtype} {list(value.shape)} {hashlib.blake2b(held, digest_size=16).hexdigest()}"


PIXELS = InputSpace()
