"""Splits that were prepared otherwise, or cut badly, are told; those that merely differ are not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from onefold.data import Arrays
from onefold.data.compare import EXAMPLES, FEW, check_scale, class_notes, looked_at, range_notes, scale_notes

CHANNELS = torch.tensor([0.4, 0.45, 0.5])[:, None, None], torch.tensor([0.25, 0.24, 0.26])[:, None, None]


def photos(count: int, seed: int) -> Tensor:
    """Pixels in [0, 1] around a brightness of their own."""
    draws = torch.Generator().manual_seed(seed)
    brightness = torch.rand(count, 1, 1, 1, generator=draws)
    return (brightness + 0.3 * torch.randn(count, 3, 8, 8, generator=draws)).clamp(0, 1)


def standardised(x: Tensor) -> Tensor:
    return (x - CHANNELS[0]) / CHANNELS[1]


def strokes(count: int, seed: int) -> Tensor:
    """White on black: four pixels of five are zero."""
    draws = torch.Generator().manual_seed(seed)
    shape = count, 1, 8, 8
    return torch.rand(shape, generator=draws) * (torch.rand(shape, generator=draws) < 0.2)


def table(count: int, seed: int) -> Tensor:
    """Years, incomes, shares and counts: features of very different sizes."""
    draws = torch.Generator().manual_seed(seed)
    normal = torch.randn(count, 4, generator=draws)
    years, income = 40 + 12 * normal[:, 0], (10 + normal[:, 1]).exp()
    return torch.stack([years, income, normal[:, 2].sigmoid(), (2 * normal[:, 3].exp()).round()], dim=1)


def scaled(x: Tensor, like: Tensor) -> Tensor:
    return (x - like.mean(0)) / like.std(0)


@pytest.mark.parametrize("name", ["val", "test"])
@pytest.mark.parametrize("images", [photos, strokes])
def test_bytes_and_pixels_are_refused_in_both_directions(name: str, images: object) -> None:
    assert callable(images)
    pixels, others = images(64, 0), 255 * images(40, 1)
    with pytest.raises(ValueError, match=rf"^{name}: expected inputs on the same scale as train, got 0 to 25\d where"):
        check_scale({"train": pixels, name: others})
    with pytest.raises(ValueError, match=r"times as small; scale both alike"):
        check_scale({"train": others, name: pixels})
    with pytest.raises(ValueError, match="times as large"):
        check_scale({"train": standardised(photos(64, 0)), name: 255 * photos(40, 1)})
    assert range_notes({"train": pixels, name: others}) == []  # one sentence for one mistake


def test_standardised_images_beside_those_that_are_not() -> None:
    plain, other = photos(64, 0), standardised(photos(40, 1))
    for train, val in ((plain, other), (other, plain)):
        (note,) = range_notes({"train": train, "val": val, "test": train})
        assert note.startswith("val ranges from ")
        assert note.endswith("one looks standardised and the other does not; if so, prepare both in the same way")
        check_scale({"train": train, "val": val})  # noise that is added in training looks so, too


def test_a_table_of_which_one_part_was_standardised() -> None:
    train, test = table(400, 0), table(100, 1)
    (note,) = scale_notes({"train": scaled(train, train), "test": test})
    assert note.startswith("test: expected inputs on the same scale as train, got ")
    assert note.endswith(" times as large")
    train, test = table(400, 0)[:, [0, 2, 3]], table(100, 1)[:, [0, 2, 3]]  # without incomes
    (note,) = range_notes({"train": test, "val": scaled(train, train)})
    assert note.startswith("val ranges from -")  # years, shares and counts are never negative
    assert note.endswith("one looks standardised and the other does not; if so, prepare both in the same way")
    # Of readings around -5 and 3 only where they lie tells that they were not standardised.
    readings = torch.randn(500, 6, generator=torch.Generator().manual_seed(0)) * 0.5
    readings += torch.tensor([-5.0, 3, 3, -5, 3, 3])
    done = scaled(readings, readings)
    for one, other in ((readings, done), (done, readings)):
        (note,) = range_notes({"train": one[:400], "test": other[400:]})
        assert note.startswith("test: most features have a different range than in train (-")
    assert range_notes({"train": readings[:400], "test": readings[400:]}) == []


def test_splits_prepared_alike_are_not_worth_a_word() -> None:
    train, val, dark = photos(64, 0), photos(20, 1), photos(64, 2) * 0.2
    assert range_notes({"train": train, "val": val, "test": dark}) == []
    assert range_notes({"train": standardised(train), "val": standardised(val), "test": standardised(dark)}) == []
    assert range_notes({"train": strokes(64, 0), "val": strokes(9, 1)}) == []
    many, few = table(1000, 0), table(40, 1)
    assert range_notes({"train": many, "val": few, "test": table(3, 2)}) == []
    assert range_notes({"train": scaled(many, many), "val": scaled(few, few), "test": scaled(few, many)}) == []
    assert range_notes({"train": many.log1p(), "val": few.log1p()}) == []
    older = few + torch.tensor([10.0, 5000.0, 0.0, 0.0])  # other people, measured alike
    assert range_notes({"train": many, "test": older}) == []
    assert range_notes({"train": many, "test": few[:, None]}) == []  # whose shape a network may flatten
    assert range_notes({"train": many[:, 2], "test": few[:, 2]}) == []


@pytest.mark.parametrize("seed", range(5))
def test_heavy_tails_outliers_and_sparse_inputs_are_no_other_scale(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    heavy = (3 * torch.randn(1100, 2, generator=draws)).exp()
    assert range_notes({"train": heavy[:1000], "val": heavy[1000:]}) == []
    outlier = torch.randn(100, 5, generator=draws)
    train = torch.randn(1000, 5, generator=draws)
    outlier[3] = 1e6
    assert range_notes({"train": train, "val": outlier}) == []
    words = torch.poisson(torch.full((300, 200), 0.01), generator=draws)
    assert range_notes({"train": words[:250], "val": words[250:]}) == []
    nothing = torch.zeros(40, 200)
    assert range_notes({"train": words, "val": nothing}) == []


@pytest.mark.parametrize("shape", [(512, 2), (2, 512), (32, 32, 2)])
def test_which_places_are_looked_at_has_nothing_to_do_with_how_many_examples_there_are(shape: tuple[int, ...]) -> None:
    """Prices beside volumes, in turns: whatever is regular would see the ones here and the others there."""
    sizes = torch.where(torch.arange(2).view(2, *[1] * (shape[0] == 2)) == 0, 1.0, 1e6)
    for many, few in ((1500, 200), (1024, 37), (64, 32)):
        train, val = (torch.rand(n, *shape, generator=torch.Generator().manual_seed(n)) * sizes for n in (many, few))
        assert scale_notes({"train": train, "val": val}) == []
        assert range_notes({"train": train, "val": val}) == []


def test_what_is_looked_at_is_bounded_and_as_the_network_sees_it() -> None:
    small = Arrays(torch.full((3000, 1, 2, 2), 255, dtype=torch.uint8), torch.zeros(3000).long())
    assert looked_at(small).shape == (EXAMPLES, 1, 2, 2)
    assert float(looked_at(small).max()) == 1
    large = Arrays(torch.zeros(100, 3, 600, 600, dtype=torch.uint8), torch.zeros(100).long())
    assert looked_at(large).shape[0] == FEW
    features = Arrays(torch.arange(2000.0)[:, None], torch.zeros(2000).long())
    assert float(looked_at(features).max()) > 1900  # not the first ones


def labels(**splits: list[int]) -> dict[str, Tensor]:
    return {name: torch.tensor(values) for name, values in splits.items()}


def test_classes_that_are_missing() -> None:
    names = ("ant", "bee", "cat")
    assert class_notes(labels(train=[0, 1, 2, 2], val=[2, 1, 0], test=[0, 1, 2]), names) == []
    assert class_notes(labels(train=[0, 1, 2], val=[2, 1, 1], test=[2]), names) == [
        "val has no example of 1 of the 3 classes: ant",
        "test has no example of 2 of the 3 classes: ant, bee",
    ]
    assert class_notes(labels(train=[0, 2], val=[2, 0]), names) == [
        "train has no example of 1 of the 3 classes: bee, for which the network has outputs"
    ]
    (sorted_, lacking) = class_notes(labels(train=[0, 0, 1], val=[2, 2, 2, 1]), names)
    assert sorted_.startswith("train has no example of 1 of the 3 classes: cat, but val has 3; if the data are sorted")
    assert lacking == "val has no example of 1 of the 3 classes: ant"
    (many,) = class_notes({"train": torch.arange(1000), "val": torch.arange(500)}, list(map(str, range(1000))))
    assert many == (
        "val has no example of 500 of the 1,000 classes: 500, 501, 502, 503, 504, 505, 506, 507, 508, 509, and 490 more"
    )
