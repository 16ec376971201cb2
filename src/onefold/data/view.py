"""What is done to an image on its way from a `Dataset` into a batch, in torchvision's transforms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2 as transforms

from onefold.data.augment import Augmentation, CropFlip, ResizedCrop

View = Callable[[Any], Any]
v2: Any = transforms  # untyped, and exported by star: no type checker finds its names


def as_tensor(image: object) -> Tensor | None:
    """A tensor `[C, H, W]` of an image, or of what else a `Dataset` may give."""
    if isinstance(image, Tensor):
        return image.as_subclass(Tensor)  # a tv_tensor would follow into the network
    if isinstance(image, Image.Image):
        return torch.as_tensor(v2.functional.pil_to_tensor(image))
    return torch.from_numpy(image) if isinstance(image, np.ndarray) else None


def view_of(augment: Augmentation | None, train: bool) -> View | None:
    """What is done to an image before it is batched."""
    view: View | None = None
    if isinstance(augment, ResizedCrop):
        if train:
            steps = [v2.RandomResizedCrop(augment.size), v2.RandomHorizontalFlip(0.5 if augment.flip else 0.0)]
        else:
            steps = [v2.Resize(round(augment.size * 256 / 224)), v2.CenterCrop(augment.size)]
        view = v2.Compose(steps)
    elif train and augment is not None:
        view = PaddedCrop(augment)
    return view


@dataclass(frozen=True)
class PaddedCrop:
    """`CropFlip` for one image at a time; floats and features pass."""

    augment: CropFlip

    def __call__(self, image: Any) -> Any:
        if isinstance(image, Tensor) and image.is_floating_point():
            return image
        size = v2.functional.get_size(image)
        crop = v2.RandomCrop(size, padding=self.augment.pad)
        return v2.RandomHorizontalFlip(0.5 if self.augment.flip else 0.0)(crop(image))
