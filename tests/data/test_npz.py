from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onefold.data import Arrays, CropFlip, beyond_pixels, load

NUMBERS = np.random.default_rng(0)
PIXELS = NUMBERS.integers(0, 256, (30, 3, 8, 9), dtype=np.uint8)  # [N, C, H, W]
FLOATS = NUMBERS.normal(size=(30, 5))
LABELS = np.arange(30) % 3


def write(path: Path, **changes: Any) -> str:
    arrays = {"train_x": PIXELS, "train_y": LABELS, "test_x": PIXELS[:6], "test_y": LABELS[:6], **changes}
    np.savez(path / "mine.npz", **{key: value for key, value in arrays.items() if value is not None})
    return f"npz:{path / 'mine.npz'}"


def test_channels_first_and_last_are_told_apart(tmp_path: Path) -> None:
    last = PIXELS.transpose(0, 2, 3, 1)
    first = load(write(tmp_path))
    source = load(write(tmp_path, train_x=last, test_x=last[:6]))
    for split in (first.test, source.test):
        assert isinstance(split, Arrays)
        np.testing.assert_array_equal(split.x.numpy(), PIXELS[:6])
        assert split.y.tolist() == LABELS[:6].tolist()
    assert first.notes[0] == "train_x read as [N, C, H, W]"
    assert source.notes[0] == "train_x read as [N, H, W, C]"
    assert (source.image_size, source.channels, source.augment) == ((8, 9), 3, CropFlip(1, True))


def test_validation_is_held_out_or_given(tmp_path: Path) -> None:
    held = load(write(tmp_path), seed=3)
    assert [len(split) for split in held.splits.values()] == [27, 3, 6]  # type: ignore[arg-type]
    assert held.notes[-1] == "val is 10% of each class of train, held out with seed 3"
    given = load(write(tmp_path, val_x=PIXELS[:4], val_y=LABELS[:4]))
    assert [len(split) for split in given.splits.values()] == [30, 4, 6]  # type: ignore[arg-type]


def test_grey_images_floats_and_features(tmp_path: Path) -> None:
    grey = load(write(tmp_path, train_x=PIXELS[:, 0], test_x=PIXELS[:6, 0]))
    assert (grey.channels, grey.image_size) == (1, (8, 9))
    features = load(write(tmp_path, train_x=FLOATS, test_x=FLOATS[:6]))
    assert isinstance(features.test, Arrays)
    assert (features.channels, features.image_size, features.augment) == (5, (5,), None)
    np.testing.assert_array_equal(features.test.x.numpy(), FLOATS[:6].astype(np.float32))
    images = load(write(tmp_path, train_x=PIXELS / 255, test_x=PIXELS[:6] / 255))
    assert (images.channels, images.augment) == (3, None)
    assert not any("perturbed" in note for note in images.notes)


def test_images_that_cannot_be_perturbed_are_told_of(tmp_path: Path) -> None:
    x = 2 * (PIXELS / 255) - 1
    (note,) = [note for note in load(write(tmp_path, train_x=x, test_x=x[:6])).notes if "perturbed" in note]
    told = "images from -1 to 1 cannot be perturbed, because that needs values in [0, 1], or uint8: "
    assert note == told + "distill needs --distill.perturbation none"


def test_one_image_of_many_that_cannot_be_perturbed() -> None:
    x = torch.rand(20_000, 1, 2, 2)
    assert beyond_pixels(Arrays(x, torch.zeros(len(x), dtype=torch.long))) is None
    for outlier in range(1, 20_000, 7_000):
        one = x.clone()
        one[outlier, 0, 1, 0] = 3
        found = beyond_pixels(Arrays(one, torch.zeros(len(x), dtype=torch.long)))
        assert found is not None
        assert found[1] == 3


def test_labels_in_a_column_and_names_of_classes(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat"])
    source = load(write(tmp_path, train_y=LABELS[:, None].astype(np.uint8), classes=names))
    assert source.classes == ("ant", "bee", "cat")
    assert load(write(tmp_path)).classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_y": None, "train_x": None}, "missing train_x, test_y; found train_y, test_x"),
        ({"val_x": PIXELS}, "missing val_y"),
        ({"train_x": PIXELS.astype(np.int32)}, "floats, got int32; convert it with astype, features to float32"),
        ({"train_x": PIXELS[:, :, :, :3]}, "which leaves it open where the channels are"),
        ({"train_x": np.zeros((30, 6, 8, 9), np.uint8)}, "with at most 4 channels, got .30, 6, 8, 9."),
        (
            {"train_x": np.zeros((30, 6), np.uint8)},
            "train_x: expected uint8 images of 3 or 4 axes.*give features as floats",
        ),
        (
            {"train_x": np.where(np.arange(30)[:, None] % 20 == 4, np.nan, FLOATS)},
            r"train_x: expected finite values, got NaN or infinite ones in 2 examples: 4, 24; fix or remove them",
        ),
        (
            {"train_y": LABELS / 2},
            r"train_y: expected integer class indices \[N\], got float64 \[30\]; convert them",
        ),
        (
            {"train_y": np.eye(3)[LABELS]},
            r"indices \[N\], got float64 \[30, 3\]; if they are one-hot, .* argmax\(axis=1\)",
        ),
        ({"train_y": LABELS.astype(str)}, r"indices \[N\], got names \[30\]; number the classes from 0, and put their"),
        ({"train_y": LABELS[:29]}, "train_y: expected 30 labels, one for each example, got 29"),
        (
            {"test_y": LABELS[:6] + 1},
            r"classes 0 to 2, got 2 outside of them:\n  .*/mine.npz, test_y\[2\]: label 3\n  .*test_y\[5\]: label 3",
        ),
        ({"train_y": LABELS - 1}, r"train_y\[0\]: label -1"),
        ({"train_y": LABELS - 9}, "train_y: expected classes from 0 on, got labels from -9 to -7"),
        (
            {"train_y": LABELS * 1000},
            r"got none of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, and 1,988 more; number classes from 0",
        ),
        (
            {"train_x": np.full((30, 5), np.nan)},
            r"in 30 examples: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, and 20 more; fix or remove them",
        ),
        ({"train_y": LABELS + 1}, "expected training examples of every class, got none of 0"),
        (
            {"train_y": np.where(np.arange(30) == 17, 9, LABELS)},
            r"got none of 3, 4, 5, 6, 7, 8; .* The largest label is 9: 1 example has it, train_y\[17\]$",
        ),
        (
            {"train_y": np.where(np.arange(30) > 27, 4, LABELS)},
            r"got none of 3; .* The largest label is 4: 2 examples have it, the first train_y\[28\]$",
        ),
        (
            {"test_x": PIXELS[:6, :1]},
            r"expected every split to be like train, torch.uint8 \[3, 8, 9\], got test torch.uint8 \[1, 8, 9\]",
        ),
        ({"test_y": np.array([{}] * 6)}, "expected an .npz file of plain arrays"),
    ],
)
def test_refuses_what_it_cannot_read(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    spec = write(tmp_path, **changes)
    with pytest.raises(ValueError, match=message):
        load(spec)


def test_a_file_that_is_not_there_or_no_npz_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"^npz:{tmp_path}/no.npz: expected a file with train_x, .* at {tmp_path}/no.npz"
    ):
        load(f"npz:{tmp_path}/no.npz")
    for content in (b"not a zip", b""):
        (tmp_path / "text.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"text.npz: expected an .npz file of plain arrays"):
            load(f"npz:{tmp_path}/text.npz")
    np.save(tmp_path / "one.npy", LABELS)
    with pytest.raises(ValueError, match=r"one.npy: expected an .npz file of plain arrays"):
        load(f"npz:{tmp_path}/one.npy")
