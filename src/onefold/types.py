"""The protocols that connect the package's layers, and the argument checks they share.

Ensembles return logits `[M, B, K]`: M members, B examples, K classes. A plain network has M = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Ensemble(Protocol):
    """Teachers or a student: M networks called as one."""

    @property
    def members(self) -> int:
        """The number of members, M."""

    def __call__(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Logits `[M, B, K]`, or `[len(members), B, K]` for the members an index tensor picks."""

    def picking(self, members: Tensor) -> AbstractContextManager[Callable[[Tensor], Tensor]]:
        """Yields a function that runs the picked members; forward and backward must both happen inside the context."""


class Student(Ensemble, Protocol):
    """An ensemble in training; `at_rest` is the same student in evaluation mode."""

    @property
    def at_rest(self) -> Ensemble:
        """The student in evaluation mode, sharing every parameter and buffer."""


class Objective(Protocol):
    """A loss: maps student logits `[m, B, K]`, teacher logits `[M, B, K]` or None, and labels `[B]` to a scalar."""

    def __call__(self, student: Tensor, teachers: Tensor | None, labels: Tensor) -> Tensor: ...


class Perturbation(Protocol):
    """Perturbs the inputs `[B, ...]`, keeping their shape. `teachers` is None only in supervised training."""

    def __call__(self, x: Tensor, teachers: Ensemble | None, student: Student) -> Tensor: ...


class Prediction(Protocol):
    """Combines member logits `[M, B, K]` into the log-probabilities `[B, K]` of one prediction."""

    def __call__(self, logits: Tensor) -> Tensor: ...


def readable(values: Tensor) -> bool:
    """Whether values can be read without a device sync: on the CPU, and not under torch.compile or functorch.

    Value checks run only then: on a GPU they would make every step wait for the device, and break graph capture.
    """
    return (
        values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not torch._C._functorch.is_functorch_wrapped_tensor(values)
    )


def check_logits(name: str, logits: Tensor) -> None:
    """Refuses anything but finite floating-point logits `[M, B, K]`."""
    if not logits.is_floating_point():
        raise ValueError(f"{name}: expected floating-point logits, got {logits.dtype}")
    if logits.dim() != 3:
        raise ValueError(f"{name}: expected logits [M, B, K], got shape {list(logits.shape)}")
    if readable(logits) and not bool(logits.isfinite().all()):
        kind = "NaN" if bool(logits.isnan().any()) else "infinite"
        raise ValueError(f"{name}: expected finite logits, got {kind} values; check whether a network has diverged")


def check_labels(labels: Tensor, classes: int, batch: int | None = None) -> None:
    """Refuses labels that are not class indices `[B]` from 0 to K - 1."""
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"labels: expected integer class indices, got {labels.dtype}")
    if labels.dim() != 1 or (batch is not None and labels.shape[0] != batch):
        wanted = "[B]" if batch is None else f"[{batch}]"
        raise ValueError(f"labels: expected shape {wanted}, got {list(labels.shape)}")
    if readable(labels) and labels.numel() and not bool(((labels >= 0) & (labels < classes)).all()):
        low, high = int(labels.min()), int(labels.max())
        raise ValueError(f"labels: expected classes 0 to {classes - 1}, got values from {low} to {high}")


def check_two(name: str, classes: int) -> None:
    """Refuses networks with fewer than two outputs."""
    if classes < 2:
        raise ValueError(
            f"{name}: expected at least two classes, got {classes}; give a network two outputs, one for each class: "
            "logits (0, z) predict what the sigmoid of z does"
        )


def check_classes(student: Tensor, teachers: Tensor) -> None:
    """Refuses student and teacher logits that differ in the number of classes or examples."""
    if student.shape[-1] != teachers.shape[-1]:
        raise ValueError(
            f"student has {student.shape[-1]} classes and the teachers have {teachers.shape[-1]}; "
            "give the student's last layer as many outputs as the teachers have"
        )
    if student.shape[1] != teachers.shape[1]:
        raise ValueError(f"student has logits for {student.shape[1]} examples and the teachers for {teachers.shape[1]}")


def at_least_float32(logits: Tensor) -> Tensor:
    """Upcasts half-precision logits to float32: losses are never computed in half precision."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


def logits_in(answer: Any) -> Any:
    """What a network answered, without the output object in which classifiers of the transformers library return it."""
    return getattr(answer, "logits", answer)
