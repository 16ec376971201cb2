"""The space inputs live in: how long a perturbation step is, and the range it must stay in."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from onefold.models import ChannelStatistics
from onefold.types import at_least_float32

ROUNDINGS = 4  # rounding errors by which inputs may exceed the range, because its ends were computed differently
MOST = 4  # numbers shown in an error message
ARRAY = "; make a tensor of it with torch.as_tensor"


@dataclass(frozen=True)
class InputSpace:
    """`scale` is the step size in each input dimension; `low` and `high` are the range inputs are clipped to.

    The default is for images in [0, 1]: a step has the L2 norm sqrt(D)/255, the expected norm of Gaussian noise with a
    standard deviation of 1/255. `InputSpace.standardized(mean, std)` is the same for normalised images. For features,
    give a scale for each (a tensor that broadcasts to one example) and no range; `InputSpace.of(x)` measures it from
    data.
    """

    scale: float | Tensor = 1 / 255
    low: float | Tensor | None = 0.0
    high: float | Tensor | None = 1.0

    def __post_init__(self) -> None:
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            may_lack = entry.name != "scale"
            if not isinstance(value, Real | Tensor) and not (may_lack and value is None):
                raise ValueError(
                    f"{entry.name}: expected a number{', a tensor or None' if may_lack else ' or a tensor'}, got "
                    f"{type(value).__name__}" + ARRAY * isinstance(value, np.ndarray)
                )
        if isinstance(self.scale, (int, float)) and not 0 < self.scale < float("inf"):
            raise ValueError(f"scale: expected a positive number, got {self.scale}")
        if isinstance(self.scale, Tensor) and not bool((self.scale >= 0).all() & self.scale.isfinite().all()):
            raise ValueError("scale: expected finite values of at least 0, one for each feature")
        if self.low is not None and self.high is not None and not bool(torch.as_tensor(self.low < self.high).all()):
            raise ValueError(f"low, high: expected low < high, got {self.low} and {self.high}")

    @property
    def described(self) -> str:
        """What a run folder records: plain numbers in full, and for a tensor a hash of its values, on any device."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return f"{type(self).__qualname__}({', '.join(f'{name}={in_full(value)}' for name, value in values.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputSpace) and self.described == other.described

    def __hash__(self) -> int:
        return hash(self.described)

    @staticmethod
    def of(x: Tensor, step: float = 0.1) -> InputSpace:
        """For inputs that are not pixels: the scale is `step` times each feature's standard deviation; no clipping."""
        if not isinstance(x, Tensor):
            raise ValueError(
                f"x: expected a tensor of examples, got {type(x).__name__}" + ARRAY * isinstance(x, np.ndarray)
            )
        if not x.is_floating_point() or x.shape[0] < 2:
            raise ValueError(f"x: expected at least two floating-point examples, got {x.dtype} {list(x.shape)}")
        return InputSpace(scale=step * x.std(0), low=None, high=None)

    @staticmethod
    def standardized(
        mean: Sequence[float] | Tensor | float, std: Sequence[float] | Tensor | float, clip: bool = True
    ) -> InputSpace:
        """For inputs normalised as (x - mean) / std with a mean and standard deviation per channel, or one for all of
        them: a step is 1/255 in pixel values, and pixels stay in [0, 1] unless `clip` is False, for transforms that
        leave it. Channels are the first dimension of an example: `[C, H, W]` for images, `[C, L]` for series."""
        m, s = (torch.as_tensor(values, dtype=torch.float64) for values in (mean, std))
        m, s = (values.expand(max(m.numel(), s.numel())) if values.dim() == 0 else values for values in (m, s))
        m, s = (values.reshape(-1, 1, 1) for values in (m, s))  # [C, 1, 1]
        ChannelStatistics(tuple(m.flatten().tolist()), tuple(s.flatten().tolist()))  # validates them
        low, high = (-m / s, (1 - m) / s) if clip else (None, None)
        return InputSpace(scale=1 / (255 * s), low=low, high=high).with_own(by_channel=True)

    looked_at = False  # whether inputs were checked once already, so that they are not checked at every step
    by_channel = False  # whether the tensors have a value per channel, whatever dimensions come after the channels

    def seen(self) -> InputSpace:
        """A copy that skips the input checks, for a training run that has checked some inputs at its start: random
        transforms may now and then leave the range a little, which must not abort a run halfway."""
        return self.with_own(looked_at=True)

    def with_own(self, **changes: object) -> InputSpace:
        """A copy with other attributes, which are not checked again."""
        space = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(space, name, value)
        return space

    def check_shapes(self, x: Tensor) -> None:
        """Refuses tensors that do not broadcast to one example: they could be broadcast over the batch."""
        for name, value in self.tensors().items():
            shape = self.fitted(value, x).shape
            shape = shape[1:] if len(shape) == x.dim() and shape[0] == 1 else shape
            sizes = zip(reversed(shape), reversed(x.shape[1:]), strict=False)
            if len(shape) >= x.dim() or any(one not in (1, wanted) for one, wanted in sizes):
                each = [value.numel(), *(1,) * (x.dim() - 2)]
                fits = [value.numel()] == list(x.shape[1:2])
                raise ValueError(
                    f"space: expected a {name} that broadcasts to one example {list(x.shape[1:])}, got shape "
                    f"{list(value.shape)}" + f"; for one value per channel give it the shape {each}" * fits
                )

    def check(self, x: Tensor) -> None:
        """Refuses inputs that a step would clip, in a single pass over the values if low and high are numbers."""
        self.check_shapes(x)
        if not x.numel():
            return
        least, most = (x, x) if {"low", "high"} & self.tensors().keys() else x.aminmax()
        low, high = (
            None if end is None else self.fitted(end, x) if isinstance(end, Tensor) else torch.as_tensor(end).to(x)
            for end in (self.low, self.high)
        )
        rounding = ROUNDINGS * max(torch.finfo(x.dtype).eps, torch.finfo(torch.float32).eps)
        odd = low is not None and bool((least < low - rounding * low.abs()).any())
        odd |= high is not None and bool((most > high + rounding * high.abs()).any())
        if odd:
            raise ValueError(
                f"space: expected inputs from {ends(self.low)} to {ends(self.high)}, got {ends(x.amin())} to "
                f"{ends(x.amax())}, which a perturbation would clip. For images that were normalised with mean and std "
                "give space=InputSpace.standardized(mean, std) (from onefold import InputSpace), for features "
                "space=InputSpace.of(x); or give images in [0, 1], and standardise them in the network. Where "
                "transforms leave the range, as RandomErasing with noise does, do not clip: "
                "InputSpace.standardized(mean, std, clip=False), or InputSpace(low=None, high=None)"
            )

    def on(self, device: torch.device) -> InputSpace:
        """A copy with its tensors on a device, so that they are not transferred at every step."""
        return self.with_own(**{name: value.to(device) for name, value in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def move(self, x: Tensor, steps: Tensor) -> Tensor:
        """x displaced by `steps`, in units of the scale, and clipped."""
        moved = x + self.scaled(steps, x)
        if isinstance(self.low, Tensor) or isinstance(self.high, Tensor):
            low, high = (self.fitted(end, moved) if isinstance(end, Tensor) else end for end in (self.low, self.high))
            moved = moved if low is None else moved.clamp(min=low)
            return moved if high is None else moved.clamp(max=high)
        return moved if self.low is None and self.high is None else moved.clamp(self.low, self.high)

    def ascend(self, x: Tensor, gradient: Tensor, length: Tensor | float = 1.0) -> Tensor:
        """One step of norm `length` * sqrt(D), in units of the scale, along the gradient of each example.

        An example whose gradient is zero or not finite is left unchanged.
        """
        gradient = at_least_float32(gradient)
        uphill = self.scaled(gradient, gradient).flatten(1)  # the gradient with respect to x / scale
        # Divide by the largest entry first: gradients of confident networks are so small that squares underflow.
        largest = uphill.abs().amax(1, keepdim=True)
        leads = (largest > 0) & largest.isfinite()
        uphill = torch.where(leads, uphill / torch.where(leads, largest, torch.ones_like(largest)), 0.0)
        norm = torch.linalg.vector_norm(uphill, dim=1, keepdim=True)
        uphill = uphill / torch.where(leads, norm, torch.ones_like(norm))
        steps = (uphill * uphill.shape[1] ** 0.5 * length).reshape(x.shape)
        leads = leads.reshape(-1, *(1,) * (x.dim() - 1))
        return torch.where(leads, self.move(at_least_float32(x), steps), x).to(x.dtype)

    def scaled(self, values: Tensor, like: Tensor) -> Tensor:
        return values * (self.fitted(self.scale, like) if isinstance(self.scale, Tensor) else self.scale)

    def fitted(self, value: Tensor, x: Tensor) -> Tensor:
        """One of the tensors with the dtype and on the device of inputs `[B, ...]`, in a shape that goes with them."""
        value = value.to(x)
        return value.reshape(-1, *(1,) * (x.dim() - 2)) if self.by_channel else value


def check_is_space(space: object) -> None:
    if not isinstance(space, InputSpace):
        raise ValueError(
            f"space: expected an InputSpace, got {type(space).__name__}; give onefold.InputSpace.standardized(mean, "
            "std) for normalised images, onefold.InputSpace.of(x) for features"
        )


def ends(end: float | Tensor | None) -> str:
    """For messages: one number, or one for each channel."""
    if not isinstance(end, Tensor):
        return str(end)
    numbers = [f"{value:.3g}" for value in end.flatten().tolist()]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers[:MOST])}{', ...' if len(numbers) > MOST else ''}]"


def in_full(value: float | Tensor | None) -> str:
    """An exact description; the repr of a tensor is rounded and shortened, so a hash of its bytes is used instead."""
    if not isinstance(value, Tensor):
        return repr(value)
    held = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return f"{value.dtype} {list(value.shape)} {hashlib.blake2b(held, digest_size=16).hexdigest()}"


PIXELS = InputSpace()
