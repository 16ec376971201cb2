"""Gradients of weights in their precision and layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onefold.fast.convolve import like_weights

SHAPES = [(8, 4, 3, 3), (8, 4, 1, 1), (4, 1, 3, 3), (2, 3, 5, 5)]


def laid_out(shape: tuple[int, ...], last: bool) -> Tensor:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("last", [True, False])
def test_values_stay_and_layouts_are_the_weights(dtype: torch.dtype, last: bool) -> None:
    torch.manual_seed(0)
    found = [(laid_out(shape, True), laid_out(shape, last).to(dtype)) for shape in SHAPES]
    found.append((laid_out((8, 3, 3, 3), True), laid_out((8, 8, 3, 3), last).to(dtype)[:, :3]))  # filled up to eight
    for (weight, given), gradient in zip(found, like_weights(found), strict=True):
        assert gradient.dtype == weight.dtype
        assert gradient.stride() == weight.stride()
        torch.testing.assert_close(gradient, given.float(), rtol=0, atol=0)


def test_strides_that_differ_in_name_only_do_not_part_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution of 1 x 1 has any strides for its kernel: as long as one pair differs, nothing is copied at once."""
    weights = [laid_out(shape, True) for shape in SHAPES]
    gradients = [torch.randn(w.shape).bfloat16().as_strided(w.shape, w.stride()) for w in weights]
    gradients[1] = gradients[1].as_strided((8, 4, 1, 1), (4, 1, 4, 4))
    together: list[int] = []
    copy = torch._foreach_copy_

    def counted(to: list[Tensor], of: list[Tensor]) -> None:
        together.append(len(to))
        copy(to, of)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    like_weights(list(zip(weights, gradients, strict=True)))
    assert together == [len(SHAPES)]


def test_nothing_to_do() -> None:
    assert like_weights([]) == []
    weight = torch.randn(8, 4, 1, 1)
    gradient = torch.randn(8, 4, 1, 1)
    (found,) = like_weights([(weight, gradient)])
    assert found.data_ptr() == gradient.data_ptr()
