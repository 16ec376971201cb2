"""Steps have the norm they should, stay in range, and leave flat places alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.perturb import PIXELS, InputSpace


@settings(deadline=None, max_examples=30)
@given(
    batch=st.integers(1, 4),
    size=st.integers(1, 8),
    exponent=st.integers(-30, 30),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_pixel_steps_have_norm_sqrt_d_over_255(batch: int, size: int, exponent: int, dtype: torch.dtype) -> None:
    x = torch.full((batch, 3, size, size), 0.5, dtype=dtype)
    gradient = torch.randn(x.shape, dtype=dtype) * 10.0**exponent  # squares of the small ones vanish in float32
    step = PIXELS.ascend(x, gradient) - x
    wanted = math.sqrt(3 * size * size) / 255
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(
        step.flatten(1).norm(dim=1), torch.full((batch,), wanted, dtype=dtype), rtol=tolerance, atol=0
    )
    direction = gradient.double().flatten(1) / gradient.double().flatten(1).norm(dim=1, keepdim=True)
    torch.testing.assert_close(step.double().flatten(1) / wanted, direction, rtol=1e-3, atol=1e-4)


def test_results_are_clipped() -> None:
    x = torch.rand(4, 3, 5, 5).round()  # at the borders already
    moved = PIXELS.ascend(x, torch.randn_like(x))
    assert bool(((moved >= 0) & (moved <= 1)).all())
    assert not torch.equal(moved, x)


def test_an_input_without_gradient_stays_as_it_is() -> None:
    x = torch.rand(3, 2, 4) * 2 - 0.5  # even where it lies outside the range
    gradient = torch.randn_like(x)
    gradient[1] = 0
    moved = PIXELS.ascend(x, gradient)
    assert torch.equal(moved[1], x[1])
    assert not torch.equal(moved[0], x[0])


def test_tabular_space_steps_by_each_features_deviation() -> None:
    data = torch.randn(500, 4) * torch.tensor([1.0, 10.0, 0.1, 0.0]) + 7
    space = InputSpace.of(data, step=0.2)
    x, gradient = data[:3], torch.randn(3, 4)
    moved = space.ascend(x, gradient)
    # In units of the scale this is one steepest-ascent step of norm sqrt(D); a constant feature does not move.
    units = (moved - x)[:, :3] / (0.2 * data.std(0)[:3])
    torch.testing.assert_close(units.norm(dim=1), torch.full((3,), 2.0), rtol=1e-3, atol=0)
    uphill = (gradient * 0.2 * data.std(0))[:, :3]
    torch.testing.assert_close(units / 2, uphill / uphill.norm(dim=1, keepdim=True), rtol=1e-2, atol=1e-2)
    assert torch.equal(moved[:, 3], x[:, 3])
    assert bool((moved.abs() > 1).any())  # no clipping


def test_spaces_are_equal_where_their_numbers_are() -> None:
    scale = torch.rand(3000)
    space, other = InputSpace(scale, None, None), InputSpace(scale.clone(), None, None)
    assert space == other
    assert hash(space) == hash(other)
    assert InputSpace() == PIXELS
    changed = scale.clone()
    changed[1500] += 1e-6  # in the middle, where torch prints dots
    for different in (changed, scale.double(), scale.view(3, 1000), 0.5):
        assert space != InputSpace(different, None, None)
    assert space != InputSpace(scale, 0.0, None)
    assert InputSpace(0.1) != InputSpace(0.1 + 1e-16)
    assert repr(PIXELS) != PIXELS


def test_errors() -> None:
    with pytest.raises(ValueError, match="scale: expected a positive number, got 0"):
        InputSpace(scale=0)
    with pytest.raises(ValueError, match="scale: expected finite"):
        InputSpace(scale=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"low, high: expected low < high, got 1\.0 and 0\.0"):
        InputSpace(low=1.0, high=0.0)
    with pytest.raises(ValueError, match="at least two floating-point examples"):
        InputSpace.of(torch.zeros(3, 2, dtype=torch.int64))
