"""Steps have the norm they should, stay in range, and leave flat places alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.perturb import PIXELS, InputSpace
from onefold.perturb.direction import check_inputs


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


def test_a_range_may_be_another_for_each_channel() -> None:
    low, high = torch.tensor([-1.0, 0.0]).view(2, 1, 1), torch.tensor([0.0, 3.0]).view(2, 1, 1)
    x = torch.stack([torch.full((3, 4, 4), -0.5), torch.full((3, 4, 4), 1.5)], dim=1)
    steps = 10 * torch.randn_like(x)
    for space, expected in (
        (InputSpace(1.0, low, high), [(-1, 0), (0, 3)]),
        (InputSpace(1.0, low, None), [(-1, math.inf), (0, math.inf)]),
        (InputSpace(1.0, low, 3.0), [(-1, 3), (0, 3)]),
    ):
        moved = space.move(x, steps)
        for channel, (least, most) in enumerate(expected):
            torch.testing.assert_close(moved[:, channel], (x + steps)[:, channel].clamp(least, most))


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_a_space_of_normalised_images_is_that_of_pixels() -> None:
    space = InputSpace.standardized(MEAN, STD)
    pixels, gradient = torch.rand(2, 3, 5, 5).double(), torch.randn(2, 3, 5, 5).double()
    pixels[0], pixels[1, :, 0] = pixels[0].round(), 1.0  # where clipping shows
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        x = (pixels[:, channel : channel + 1] - mean) / std
        one = InputSpace.standardized([mean], [std])
        expected = (PIXELS.ascend(pixels[:, channel : channel + 1], gradient[:, :1]) - mean) / std
        torch.testing.assert_close(one.ascend(x, gradient[:, :1] * std), expected, rtol=1e-12, atol=1e-12)
        assert space != one
    assert InputSpace.standardized(torch.tensor(MEAN), torch.tensor(STD)).tensors().keys() == {"scale", "low", "high"}
    assert InputSpace.standardized(0.5, 0.25) == InputSpace.standardized([0.5], torch.tensor([0.25]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rounding_is_not_refused(dtype: torch.dtype) -> None:
    pixels = torch.tensor([0.0, 1.0]).repeat(3, 1).view(1, 3, 1, 2)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    x = ((pixels - mean) / std).to(dtype)  # in float32, and the ends were computed in float64
    space = InputSpace.standardized(MEAN, STD)
    space.check(x)
    InputSpace.of(x.repeat(2, 1, 1, 1)).check(100 * x)
    for pushed in (x * 1.1, x * torch.tensor([1.0, 1.0, 1.1], dtype=dtype).view(3, 1, 1)):
        with pytest.raises(
            ValueError, match=r"^space: expected inputs from \[-2\.12, -2\.04, -1\.8\] to \[2\.25, .*, got"
        ):
            space.check(pushed)
    space.check(x[:0])


def test_inputs_may_leave_the_range_where_nothing_is_clipped() -> None:
    x, gradient = 9 * torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4)
    free = InputSpace.standardized(MEAN, STD, clip=False)
    free.check(x)
    steps = (free.ascend(x, gradient) - x) * 255 * torch.tensor(STD).view(3, 1, 1)
    torch.testing.assert_close(steps.flatten(1).norm(dim=1), torch.full((2,), 48**0.5), rtol=1e-3, atol=0)
    clipped = InputSpace.standardized(MEAN, STD)
    with pytest.raises(ValueError, match="clip=False"):
        clipped.check(x)
    pixels = torch.rand(2, 3, 4, 4) * 0.5 + 0.25  # which no step takes out of the range
    x = (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    assert torch.equal(free.ascend(x, gradient), clipped.ascend(x, gradient))


def test_what_does_not_fit_an_example_is_refused() -> None:
    """It would be broadcast to three channels without a word."""
    with pytest.raises(
        ValueError, match=r"^space: expected a scale that broadcasts to one example \[1, 8, 8\], got .*3, 1"
    ):
        InputSpace.standardized(MEAN, STD).check(torch.zeros(4, 1, 8, 8))
    with pytest.raises(ValueError, match=r"one example \[5\], got shape \[6\]"):
        InputSpace(torch.ones(6), None, None).check(torch.zeros(4, 5))


def test_a_tensor_is_never_broadcast_over_the_batch() -> None:
    """Not even where the batch has as many examples as an example has channels."""
    scale = torch.rand(8, 1, 1)
    for series in (torch.rand(8, 8, 5), torch.rand(3, 8, 5)):
        for space in (
            InputSpace(scale, None, None),
            InputSpace(0.1, scale - 1, None),
            InputSpace(0.1, None, scale + 1),
        ):
            with pytest.raises(
                ValueError, match=r"one example \[8, 5\], got shape \[8, 1, 1\]; .* per channel .* \[8, 1\]$"
            ):
                check_inputs(series, space)
    with pytest.raises(ValueError, match=r"one example \[5\], got shape \[4, 5\]$"):
        InputSpace(torch.rand(4, 5), None, None).check(torch.rand(4, 5))
    with pytest.raises(ValueError, match=r"one example \[5\], got shape \[1, 1, 5\]"):
        InputSpace(torch.rand(1, 1, 5), None, None).check(torch.rand(4, 5))
    images, each = torch.rand(3, 3, 4, 4), torch.rand(3, 1, 1)
    one, other = (InputSpace(scale, None, None) for scale in (each, each[None]))  # a leading one does no harm
    other.check(images)
    assert torch.equal(one.ascend(images, images), other.ascend(images, images))


def test_a_space_that_was_not_looked_at_is_looked_at_without_reading_values() -> None:
    """On a GPU: there the shapes alone are known without waiting for it."""
    with pytest.raises(ValueError, match=r"one example \[8, 5\]"):
        check_inputs(torch.rand(8, 8, 5, device="meta"), InputSpace(torch.rand(8, 1, 1), None, None))


@pytest.mark.parametrize("shape", [(5,), (), (5, 6, 7)], ids=["series", "features", "video"])
def test_a_space_of_normalised_inputs_knows_their_channels(shape: tuple[int, ...]) -> None:
    pixels, gradient = torch.rand(3, 3, *shape).double(), torch.randn(3, 3, *shape).double()
    mean, std = (torch.tensor(values, dtype=torch.float64).view(3, *(1,) * len(shape)) for values in (MEAN, STD))
    space = InputSpace.standardized(MEAN, STD).on(torch.device("cpu"))
    x = (pixels - mean) / std
    space.check(x)
    expected = (PIXELS.ascend(pixels, gradient) - mean) / std
    torch.testing.assert_close(space.ascend(x, gradient * std), expected, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match=r"expected inputs from \[-2\.12, "):
        space.check(x + 5)
    with pytest.raises(ValueError, match="broadcasts to one example"):
        space.check(torch.zeros(3, 4, *shape))


def test_one_deviation_may_stand_for_all_channels() -> None:
    for mean, std, means, stds in ((MEAN, 0.5, MEAN, [0.5] * 3), (0.5, STD, [0.5] * 3, STD), (0.5, 0.2, [0.5], [0.2])):
        assert InputSpace.standardized(mean, std) == InputSpace.standardized(means, stds)


def test_what_is_no_tensor_is_said_to_be_none() -> None:
    array = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    with pytest.raises(ValueError, match=r"^x: expected a tensor .*, got ndarray; make .* with torch\.as_tensor$"):
        InputSpace.of(array)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^x: expected a tensor of examples, got list$"):
        InputSpace.of([1.0, 2.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^scale: expected a number or a tensor, got ndarray; make a tensor"):
        InputSpace(scale=array)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^low: expected a number, a tensor or None, got str$"):
        InputSpace(low="0")  # type: ignore[arg-type]


def test_a_space_on_a_device_is_the_same_one() -> None:
    for space in (PIXELS, InputSpace.standardized(MEAN, STD), InputSpace(torch.rand(3), None, 1.0)):
        assert space.on(torch.device("cpu")) == space


def test_errors() -> None:
    with pytest.raises(ValueError, match="scale: expected a positive number, got 0"):
        InputSpace(scale=0)
    with pytest.raises(ValueError, match="scale: expected finite"):
        InputSpace(scale=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"low, high: expected low < high, got 1\.0 and 0\.0"):
        InputSpace(low=1.0, high=0.0)
    with pytest.raises(ValueError, match="low, high: expected low < high"):
        InputSpace(low=torch.tensor([0.0, 2.0]), high=1.0)
    with pytest.raises(ValueError, match=r"std: expected 3 values, one for each mean, got 2"):
        InputSpace.standardized(MEAN, STD[:2])
    with pytest.raises(ValueError, match=r"std: expected finite positive values"):
        InputSpace.standardized([0.5], [0.0])
    with pytest.raises(ValueError, match="at least two floating-point examples"):
        InputSpace.of(torch.zeros(3, 2, dtype=torch.int64))


def test_a_training_looks_once() -> None:
    space, outside = InputSpace(), torch.full((2, 3), 1.5)
    with pytest.raises(ValueError, match=r"expected inputs from 0\.0 to 1\.0"):
        check_inputs(outside, space)
    check_inputs(outside, space.seen())
    assert space.seen() == space
    assert not space.looked_at
