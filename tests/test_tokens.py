"""Token indices are given like images: as a pair of tensors, or as a Dataset."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from onefold import distill, evaluate
from onefold.data import CropFlip
from onefold.perturb import gaussian
from onefold.perturb.direction import check_inputs
from onefold.perturb.space import PIXELS

WORDS = 50


class Bag(nn.Module):
    """Embeds tokens `[B, L]` and answers for their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8)
        self.hidden = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.hidden(self.words(x)).relu().mean(1)))


class Pairs(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index], int(self.y[index])


def data(count: int, dtype: torch.dtype = torch.int64, most: int = WORDS) -> tuple[Tensor, Tensor]:
    return torch.randint(most, (count, 6), dtype=dtype), torch.arange(count) % 3


def short(train: object, **given: Any) -> Any:
    torch.manual_seed(0)
    nets = [Bag() for _ in range(3)]
    few: dict[str, Any] = {"epochs": 2, "batch_size": 12, "workers": 0, "device": "cpu", "perturbation": "none"}
    return distill(nets[:2], nets[2], train, **(few | given))


def test_a_pair_of_tensors_is_as_good_as_a_data_set() -> None:
    train, val = data(48), data(24, most=3)  # of other words, which are on no other scale
    expected = short(train, val=val, test=val)
    for given in (
        short(Pairs(*train), val=Pairs(*val), test=Pairs(*val)),
        short((train[0].int(), train[1]), val=val, test=(val[0].int(), val[1])),
    ):
        assert given.metrics == pytest.approx(expected.metrics)
        assert all(torch.equal(v, given.model.state_dict()[k]) for k, v in expected.model.state_dict().items())
    assert evaluate(expected.model, val, calibrate_on=val, device="cpu") == pytest.approx(expected.metrics)


def test_token_indices_are_never_perturbed() -> None:
    for dtype in (torch.int32, torch.int64):
        for perturbation in ("tdiv-sdiv", "gaussian", None):
            with pytest.raises(
                ValueError, match=r"^x: .* got torch\.int\d\d; token indices cannot be perturbed: .*'none'"
            ):
                short(data(24, dtype), perturbation=perturbation)
        with pytest.raises(ValueError, match="token indices cannot be perturbed"):
            gaussian(data(4, dtype)[0], None, nn.Identity())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"got torch\.uint8; divide images by 255"):
        check_inputs(torch.zeros(2, 3, dtype=torch.uint8), PIXELS)


@pytest.mark.parametrize("augment", [True, CropFlip()])
def test_token_indices_are_never_cropped(augment: Any) -> None:
    for train in (data(24), Pairs(*data(24))):
        with pytest.raises(ValueError, match=r"augment: expected uint8 images to crop and flip, got torch\.int64"):
            short(train, augment=augment)


def test_a_word_that_a_network_does_not_know_is_told_before_training() -> None:
    many = data(24)[0] + WORDS, data(24)[1]
    with pytest.raises(ValueError, match=r"^net: cannot take inputs torch\.int64 \[8, 6\]: index out of range"):
        short(many)
    with pytest.raises(ValueError, match=r"^val: .* like those of train, .*: index out of range"):
        short(data(24), val=many)


def test_a_perturbation_of_one_s_own_may_replace_tokens() -> None:
    seen = []

    def other_words(x: Tensor, teachers: object, student: object) -> Tensor:  # noqa: ARG001
        seen.append(x.dtype)
        return torch.where(torch.rand(x.shape) < 0.1, torch.randint_like(x, WORDS), x)

    assert short(data(24), perturbation=other_words, epochs=1).model is not None
    assert set(seen) == {torch.int64}
