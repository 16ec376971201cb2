"""Transforms an image from a `Dataset` before it is batched, with torchvision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onefold.data.augment import Augmentation, CropFlip, ResizedCrop

View = Callable[[Any], Any]


def transforms() -> Any:
    """torchvision's transforms, imported on first use: most data are on the device and do not need them.

    Untyped, because they are star-exported, so type checkers do not find the names.
    """
    from torchvision.transforms import v2

    return v2


def as_tensor(image: object) -> Tensor | None:
    """A tensor `[C, H, W]` from an image, or from whatever else a `Dataset` may return; None if it is unsuitable."""
    if isinstance(image, Tensor):
        return image.as_subclass(Tensor)  # otherwise a tv_tensor would reach the network
    if isinstance(image, np.ndarray):
        return torch.from_numpy(image)
    from PIL import Image

    if isinstance(image, Image.Image):
        return torch.as_tensor(transforms().functional.pil_to_tensor(image))
    return None


def view_of(augment: Augmentation | None, train: bool) -> View | None:
    """The transform of an image before it is batched, if any."""
    view: View | None = None
    if isinstance(augment, ResizedCrop):
        v2 = transforms()
        if train:
            steps = [v2.RandomResizedCrop(augment.size), v2.RandomHorizontalFlip(0.5 if augment.flip else 0.0)]
        else:
            steps = [v2.Resize(augment.shorter_side), v2.CenterCrop(augment.size)]
        view = v2.Compose(steps)
    elif train and augment is not None:
        view = PaddedCrop(augment)
    return view


@dataclass(frozen=True)
class PaddedCrop:
    """`CropFlip` for one image at a time; floats and features pass unchanged."""

    augment: CropFlip

    def __call__(self, image: Any) -> Any:
        if isinstance(image, Tensor) and image.is_floating_point():
            return image
        v2 = transforms()
        size = v2.functional.get_size(image)
        crop = v2.RandomCrop(size, padding=self.augment.pad)
        return v2.RandomHorizontalFlip(0.5 if self.augment.flip else 0.0)(crop(image))
