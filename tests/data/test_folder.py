from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS

from onefold.data import Arrays, CropFlip, ImageFiles, ResizedCrop, Source, load, loader_for
from onefold.data.folder import ENDINGS

WriteImage = Callable[..., Path]


@pytest.fixture
def write_classes(write_image: WriteImage) -> Callable[..., None]:
    def write(folder: Path, count: int, classes: str = "ab", **options: object) -> None:
        for name in classes:
            for number in range(count):
                write_image(folder / name / f"{number:03}.png", **options)

    return write


def lengths(source: Source) -> list[int]:
    return [len(split) for split in source.splits.values()]  # type: ignore[arg-type]


def test_three_splits_are_kept(tmp_path: Path, write_classes: Callable[..., None]) -> None:
    for split, count in (("train", 5), ("val", 2), ("test", 3)):
        write_classes(tmp_path / split, count)
    source = load(f"folder:{tmp_path}")
    assert lengths(source) == [10, 4, 6]
    assert (source.classes, source.notes, source.image_size) == (("a", "b"), (), (8, 8))
    assert source.augment == CropFlip(1, True)
    assert isinstance(source.test, Arrays)
    assert source.test.y.tolist() == [0, 0, 0, 1, 1, 1]
    expected = np.asarray(Image.open(tmp_path / "test" / "b" / "001.png"))
    np.testing.assert_array_equal(source.test.x[4].permute(1, 2, 0).numpy(), expected)


@pytest.mark.parametrize(
    ("present", "expected", "notes"),
    [
        (("train", "test"), [18, 2, 20], ("val is 10% of each class of train, held out with seed 0",)),
        (
            ("train", "validation"),
            [18, 2, 20],
            ("val is 10% of each class of train, held out with seed 0", "test is the val split of the data"),
        ),
        (
            ("train",),
            [14, 2, 4],
            ("only one set: 20% of each class is held out for test, then 10% for val, with seed 0",),
        ),
        (("",), [14, 2, 4], ("only one set: 20% of each class is held out for test, then 10% for val, with seed 0",)),
    ],
)
def test_missing_splits_are_held_out(
    present: tuple[str, ...],
    expected: list[int],
    notes: tuple[str, ...],
    tmp_path: Path,
    write_classes: Callable[..., None],
) -> None:
    for split in present:
        write_classes(tmp_path / split, 10)
    source = load(f"folder:{tmp_path}")
    assert lengths(source) == expected
    assert source.notes == notes


def test_the_seed_alone_decides_what_is_held_out(tmp_path: Path, write_classes: Callable[..., None]) -> None:
    write_classes(tmp_path, 20)

    def test_images(seed: int) -> list[list[int]]:
        split = load(f"folder:{tmp_path}", seed=seed).test
        assert isinstance(split, Arrays)
        return split.x.flatten(1).tolist()

    assert test_images(0) == test_images(0)
    assert test_images(0) != test_images(1)


def test_images_of_several_sizes_are_streamed(tmp_path: Path, write_classes: Callable[..., None]) -> None:
    write_classes(tmp_path / "train", 6, size=(40, 30))
    write_classes(tmp_path / "val", 2, size=(40, 30))
    write_classes(tmp_path / "test", 2, size=(20, 50))
    source = load(f"folder:{tmp_path}")
    assert isinstance(source.train, ImageFiles)
    assert (source.augment, source.image_size) == (ResizedCrop(30), (30, 30))
    assert source.notes == (
        "images of 2 sizes (width x height): 40 x 30 (16), 20 x 50 (4)",
        "channel statistics from 12 of the training images",
        "every image is scaled and cropped to 30 x 30",
    )
    assert source.train[7][1] == 1
    ((x, y),) = loader_for(source.test, 4, train=False, augment=source.augment, workers=0).batches()
    assert (x.shape, y.tolist()) == ((4, 3, 30, 30), [0, 0, 1, 1])


def test_a_size_may_be_asked_for(tmp_path: Path, write_classes: Callable[..., None]) -> None:
    write_classes(tmp_path, 10)
    source = load(f"folder:{tmp_path}", image_size=16)
    assert isinstance(source.train, ImageFiles)
    assert (source.augment, source.image_size) == (ResizedCrop(16), (16, 16))


def test_small_images_too_many_to_keep_are_streamed_at_their_size(
    tmp_path: Path, write_classes: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_classes(tmp_path, 10)
    kept = load(f"folder:{tmp_path}")
    monkeypatch.setattr("onefold.data.assemble.MEMORY", 20 * 8 * 8 * 3 - 1)
    streamed = load(f"folder:{tmp_path}")
    assert isinstance(kept.val, Arrays)
    assert isinstance(streamed.val, ImageFiles)
    assert (streamed.augment, streamed.image_size) == (CropFlip(), (8, 8))
    both = [next(loader_for(source.val, 2, train=False, workers=0).batches()) for source in (kept, streamed)]
    assert torch.equal(both[0][0], both[1][0])
    assert torch.equal(both[0][1], both[1][1])


def test_images_lie_at_any_depth_and_clutter_is_passed_over(
    tmp_path: Path, write_classes: Callable[..., None], write_image: WriteImage
) -> None:
    write_classes(tmp_path, 4)
    write_image(tmp_path / "a" / "deep" / "er" / "more.png")
    write_image(tmp_path / "a" / ".thumbnails" / "small.png")
    for clutter in (tmp_path / ".DS_Store", tmp_path / "a" / "Thumbs.db", tmp_path / "b" / ".hidden.png"):
        clutter.write_bytes(b"clutter")
    assert sum(lengths(load(f"folder:{tmp_path}"))) == 9


def test_files_that_are_no_images_get_one_note(
    tmp_path: Path, write_classes: Callable[..., None], write_image: WriteImage
) -> None:
    for split in ("train", "val", "test"):
        write_classes(tmp_path / split, 4)
    whole = load(f"folder:{tmp_path}")
    notes = tmp_path / "train" / "a" / "notes.txt"
    notes.write_text("taken on a Sunday")
    source = load(f"folder:{tmp_path}")
    assert lengths(source) == lengths(whole)
    assert source.notes == (f"left out: 1 file that is not an image, such as {notes}",)
    for file in ("test/b/deep/er/labels.csv", "val/README", "test/extra/why.md", "train/a/.DS_Store"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("no image")
    source = load(f"folder:{tmp_path}")
    assert lengths(source) == lengths(whole)
    first = tmp_path / "test" / "b" / "deep" / "er" / "labels.csv"
    assert source.notes == (f"left out: 4 files that are not images, such as {first}",)
    # What is an image by its ending still stops it: unreadable, of a kind that is not read, or in no class.
    write_image(tmp_path / "val" / "lost.png")
    (tmp_path / "train" / "b" / "cut.png").write_bytes(b"no image")
    (tmp_path / "train" / "b" / "new.HEIC").write_bytes(b"an image that is not read")
    with pytest.raises(ValueError, match="3 files cannot be used") as error:
        load(f"folder:{tmp_path}")
    for told in (
        "lost.png: it is not in the folder of a class",
        "cut.png: it is not an image",
        "new.HEIC: its image format",
    ):
        assert told in str(error.value)


def test_a_folder_of_other_files_alone_says_so(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.npy").touch()
    with pytest.raises(ValueError, match="expected images in all, got none; left out: 2 files that are not images"):
        load(f"folder:{tmp_path}")


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ([], "expected one folder per class in .*, got none"),
        (["a/0.png"], "expected at least two classes, got 1"),
        (
            ["train/a/0.png", "train/b/0.png", "train/c/", "test/a/0.png"],
            "training examples of every class, got none of c",
        ),
        (
            ["train/a/0.png", "train/a/1.png", "train/b/0.png", "train/b/1.png", "test/z/5.png"],
            "expected the 2 classes of train, got files of other classes:\n  .*/test/z/5.png",
        ),
        (
            [
                "train/a/0.png",
                "train/a/1.png",
                "train/b/0.png",
                "train/b/1.png",
                *(f"test/z/{i}.png" for i in range(30)),
            ],
            "got files of other classes:(\n  .*/test/z/.*){10}\n  and 20 more$",
        ),
        (["train/a/0.png", "train/b/0.png", "test/a/"], "expected images in test, got none"),
        (["a/0.png", "b/0.png"], "test: expected a class with two examples or more, to hold one out, got none"),
    ],
)
def test_refuses_folders_nothing_can_be_learned_from(
    prepare: list[str], message: str, tmp_path: Path, write_image: WriteImage
) -> None:
    for entry in prepare:
        if entry.endswith("/"):
            (tmp_path / entry).mkdir(parents=True)
        else:
            write_image(tmp_path / entry)
    with pytest.raises(ValueError, match=message):
        load(f"folder:{tmp_path}")


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"^folder:{tmp_path}/no: expected a folder with one subfolder per class at {tmp_path}/no"
    ):
        load(f"folder:{tmp_path}/no")


def test_progress_is_told(tmp_path: Path, write_classes: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.data.scan.BLOCK", 4)
    write_classes(tmp_path / "train", 3)
    write_classes(tmp_path / "test", 1)
    told: list[tuple[int, int]] = []
    load(f"folder:{tmp_path}", progress=lambda done, total: told.append((done, total)))
    assert told == [(2, 8), (6, 8), (8, 8)]


def test_names_end_as_torchvision_has_them() -> None:
    assert ENDINGS == IMG_EXTENSIONS
