"""Some examples of a split."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from onefold.data import loader_for
from onefold.data.sample import sample


class OneWrong(Dataset[Any]):
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(2), 9 if index == 33 else 0


class Named(OneWrong):
    def where(self, index: int) -> str:
        return f"image-{index}.png"


@pytest.mark.parametrize(("data", "place"), [(OneWrong(), "example 33"), (Named(), "image-33.png")])
def test_a_wrong_label_is_told_by_its_place_in_the_data_set(data: OneWrong, place: str) -> None:
    some = cast("Dataset[Any]", sample(data, 50))
    with pytest.raises(ValueError, match=f"^{place}: expected classes 0 to 2, got label 9"):
        list(loader_for(some, 8, train=False, classes=3, workers=0).batches())
