"""Crops and flips that `distill` is asked for happen, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset
from torchvision.transforms.functional import pil_to_tensor, to_tensor

from onefold import distill
from onefold.data import CropFlip, ResizedCrop


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int) -> tuple[Tensor, Tensor]:
    return torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8), torch.arange(count) % 3


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(v, other.state_dict()[k]) for k, v in one.state_dict().items())


def short(*arguments: Any, **given: Any) -> Any:
    return distill(*arguments, method="supervised", epochs=1, workers=0, **given)


def test_crops_that_would_not_happen_are_refused() -> None:
    x, y = data(50)
    with pytest.raises(ValueError, match=r"augment: expected uint8 images to crop and flip, got torch\.float32"):
        short(None, net(), (x / 255, y), augment=True)
    assert short(None, net(), (x / 255, y)).metrics == {}


class Transformed(Dataset[Any]):
    """Pictures with a transform, as torchvision's data sets have them."""

    def __init__(self, x: Tensor, y: Tensor, transform: Any) -> None:
        self.x, self.y, self.transform = x, y, transform

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.transform(Image.fromarray(self.x[index, 0].numpy())), int(self.y[index])


def noisy(image: Any) -> Tensor:
    return torch.as_tensor(to_tensor(image) + torch.rand(1, 4, 4) / 255)


def array(image: Any) -> Any:
    return np.asarray(image, dtype=np.float32)[None]


@pytest.mark.parametrize("transform", [to_tensor, noisy, array])
def test_crops_that_would_not_happen_are_refused_of_a_data_set_too(transform: Any) -> None:
    """Floats pass them, and ToTensor makes floats of pictures."""
    own, split = net(), Transformed(*data(50), transform)
    before = torch.get_rng_state()
    for augment in (True, CropFlip(1)):
        with pytest.raises(ValueError, match=r"augment: expected uint8 images to crop and flip, got torch\.float32"):
            short(None, own, split, augment=augment)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("transform", "augment"), [(pil_to_tensor, True), (lambda image: image, True), (to_tensor, ResizedCrop(4))]
)
def test_crops_that_happen_are_taken(transform: Any, augment: Any) -> None:
    own, split = net(), Transformed(*data(48), transform)
    base, other = (short(None, own, split, augment=crops) for crops in (False, augment))
    assert not same(base.model, other.model)


def test_a_data_set_without_examples_is_not_looked_into() -> None:
    with pytest.raises(ValueError, match="at least one"):
        short(None, net(), Transformed(*data(0), to_tensor), augment=True)
