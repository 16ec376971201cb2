"""The forms of a split: arrays in memory, a `Dataset`, or a user's own `DataLoader`."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

TOKENS = (torch.int32, torch.int64)  # the types that embeddings take
COLLATE = "give a DataLoader with a collate_fn that makes batches (x, y)"
FEW = 10  # items of a long list that an error message shows


@dataclass(frozen=True, eq=False)
class Arrays:
    """A split in memory: labels `[N]`, and uint8 images `[N, C, H, W]`, any floats `[N, ...]`, or token indices
    `[N, L]` as int32 or int64.

    Loaders divide uint8 images by 255; floats and token indices reach the network unchanged.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if self.x.dtype == torch.uint8:
            if self.x.dim() != 4:
                raise ValueError(
                    f"x: expected uint8 images [N, C, H, W], got {list(self.x.shape)}; give other inputs as floats, "
                    "and token indices as int64"
                )
        elif self.x.dim() < 2 or not (self.x.is_floating_point() or (self.x.dtype in TOKENS and self.x.dim() != 4)):
            raise ValueError(
                "x: expected uint8 images [N, C, H, W], floats [N, ...] or token indices [N, L] as int32 or int64, got "
                f"{self.x.dtype} {list(self.x.shape)}"
            )
        if self.y.dtype == torch.bool or self.y.is_floating_point() or self.y.is_complex() or self.y.dim() != 1:
            raise ValueError(f"y: expected integer class indices [N], got {self.y.dtype} {list(self.y.shape)}")
        if len(self.x) != len(self.y):
            raise ValueError(f"y: expected {len(self.x)} labels, one for each example, got {len(self.y)}")
        if len(self.x) == 0:
            raise ValueError("x: expected at least one example, got none")
        object.__setattr__(self, "y", self.y.long())

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index], int(self.y[index])

    @property
    def images(self) -> bool:
        """Whether these are uint8 pixels, which can be cropped and flipped."""
        return self.x.dtype == torch.uint8

    @property
    def nbytes(self) -> int:
        """The size of the split in memory."""
        return self.x.nbytes + self.y.nbytes

    def take(self, indices: Tensor) -> Arrays:
        """The examples at `indices`, in that order."""
        return Arrays(self.x[indices], self.y[indices])


Split = Arrays | Dataset[Any] | DataLoader[Any]


def as_split(split: object, name: str = "split") -> Split:
    """Checks and converts any of the forms in which data can be given from Python.

    A pair of tensors or NumPy arrays `(x, y)`, or a `TensorDataset` of two, becomes `Arrays`; NumPy floats become
    float32, and tensors keep their dtype. A map-style `Dataset` of `(image, label)` stays as it is; our loader shuffles
    it and seeds its random transforms. A `DataLoader` is iterated as it is: its order and its random transforms are the
    user's, and reproducible only if the user makes them so.
    """
    if isinstance(split, TensorDataset) and len(split.tensors) == 2:
        split = split.tensors
    if isinstance(split, tuple | list):
        if len(split) != 2 or not all(isinstance(part, Tensor | np.ndarray) for part in split):
            kinds = ", ".join(type(part).__name__ for part in split[:4])
            raise ValueError(f"{name}: expected a pair of tensors (x, y), got {type(split).__name__} of {kinds}")
        try:
            return Arrays(torch.as_tensor(single(split[0])), torch.as_tensor(split[1]))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if isinstance(split, Arrays | DataLoader):
        return split
    if isinstance(split, IterableDataset):
        raise ValueError(
            f"{name}: an IterableDataset cannot be shuffled; give a map-style Dataset, or wrap it in a DataLoader"
        )
    if isinstance(split, Dataset):
        if not hasattr(split, "__len__"):
            raise ValueError(f"{name}: expected a Dataset with a length, got {type(split).__name__} without __len__")
        return split
    kind = f"{type(split).__module__}.{type(split).__name__}".removeprefix("builtins.")
    raise ValueError(
        f"{name}: expected a torch Dataset, a DataLoader or a pair of tensors (x, y), got {kind}; for examples of "
        f"another form, {COLLATE}"
    )


def single(x: object) -> object:
    """Converts NumPy floats, which are float64 by default, to the precision of networks."""
    return x.astype(np.float32, copy=False) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x


def labels_of(split: Split) -> Tensor | None:
    """The labels `[N]` of a split, if they are known without reading all examples."""
    labels = split.y if isinstance(split, Arrays) else getattr(split, "labels", None)
    return labels if isinstance(labels, Tensor) else None


def targets_of(split: Split) -> Tensor | None:
    """The labels `[N]`, also of torchvision's data sets and of subsets, if no transform changes them."""
    if type(split) is Subset:  # a user's subclass may return something else
        whole = targets_of(split.dataset)
        return None if whole is None else whole[torch.as_tensor(split.indices, dtype=torch.long)]
    found: Any = labels_of(split)
    if found is None and type(split) is TensorDataset and len(split.tensors) == 2:
        found = split.tensors[1]
    if found is None and not changes_labels(split):
        found = getattr(split, "targets", None)
    try:
        labels = torch.as_tensor(found)
        count = len(cast(Sized, split))
    except (TypeError, ValueError, RuntimeError):  # no labels, or names, or boxes; or no length
        return None
    whole_numbers = not labels.is_floating_point() and not labels.is_complex()
    return labels if labels.shape == (count,) and whole_numbers else None


def changes_labels(split: object) -> bool:
    """Whether a data set like torchvision's transforms its labels, alone or together with the image."""
    joint = getattr(split, "transforms", None)
    plain = joint is None or type(joint).__name__ == "StandardTransform"  # torchvision's, which is slow to import
    return not plain or any(getattr(one, "target_transform", None) is not None for one in (split, joint))


def first_few(items: Sequence[Any], between: str = ", ", told: Callable[[Any], str] = str) -> str:
    """The first items of a list that may have thousands, and how many more there are."""
    shown = between.join(told(item) for item in items[:FEW])
    return shown if len(items) <= FEW else f"{shown}{between}and {len(items) - FEW:,} more"


def check_range(labels: Tensor, classes: Sized, where: Callable[[int], str]) -> None:
    """Refuses labels outside the classes, listing the first of them with their positions."""
    outside = ((labels < 0) | (labels >= len(classes))).nonzero().flatten().tolist()
    if outside:
        listed = first_few(outside, "\n  ", lambda index: f"{where(index)}: label {int(labels[index])}")
        raise ValueError(
            f"labels: expected classes 0 to {len(classes) - 1}, got {len(outside):,} outside of them:\n  {listed}"
        )
