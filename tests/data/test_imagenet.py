from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from torchvision import datasets

from onefold.data import Arrays, CropFlip, ImageFiles, ResizedCrop, load
from onefold.models import IMAGENET

WriteImage = Callable[..., Path]


@pytest.fixture
def tiny(tmp_path: Path, write_image: WriteImage) -> Path:
    """Two classes of 60 images, laid out as distributed."""
    folder = tmp_path / "tiny-imagenet-200"
    for name in ("n002", "n001"):
        for number in range(60):
            write_image(folder / "train" / name / "images" / f"{name}_{number}.JPEG", size=(64, 64))
        (folder / "train" / name / f"{name}_boxes.txt").write_text("boxes")
    lines = []
    for number, name in enumerate(["n002", "n001", "n002"]):
        write_image(folder / "val" / "images" / f"val_{number}.JPEG", size=(64, 64))
        lines.append(f"val_{number}.JPEG\t{name}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder


def test_tiny_imagenet_is_read_with_the_papers_split(tiny: Path) -> None:
    source = load("tiny-imagenet", tiny.parent)
    assert isinstance(source.train, Arrays)
    assert isinstance(source.val, Arrays)
    assert isinstance(source.test, Arrays)
    assert source.classes == ("n001", "n002")
    assert source.train.y.bincount().tolist() == [10, 10]
    assert source.val.y.bincount().tolist() == [50, 50]
    assert source.test.y.tolist() == [1, 0, 1]
    assert (source.image_size, source.augment) == ((64, 64), CropFlip(4, True))
    assert source.notes == (
        "val is the last 50 training images of each class, test the official validation images",
        "found 120 training images of the 100,000 that are distributed",
    )


def test_last_is_by_number_and_not_by_letter(tiny: Path) -> None:
    source = load("tiny-imagenet", tiny.parent, image_size=32)
    assert isinstance(source.train, ImageFiles)
    assert isinstance(source.val, ImageFiles)
    folder = tiny / "train" / "n001" / "images"
    assert [source.train.where(index) for index in range(10)] == [str(folder / f"n001_{n}.JPEG") for n in range(10)]
    assert source.val.where(0) == str(folder / "n001_10.JPEG")
    assert source.val.where(49) == str(folder / "n001_59.JPEG")


def test_a_class_nobody_knows_is_named_with_its_file(tiny: Path) -> None:
    with open(tiny / "val" / "val_annotations.txt", "a") as file:
        file.write("val_9.JPEG\tn777\t0\t0\t1\t1\n")
    with pytest.raises(
        ValueError, match=r"expected the 2 classes of train, got others:\n  .*/val/images/val_9.JPEG: 'n777'"
    ):
        load("tiny-imagenet", tiny.parent)


def test_a_broken_or_missing_file_is_named(tiny: Path) -> None:
    (tiny / "train" / "n001" / "images" / "n001_3.JPEG").write_bytes(b"")
    (tiny / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(
        ValueError, match=r"tiny-imagenet: 2 files cannot be used(.|\n)*n001_3.JPEG: it is empty(.|\n)*val_1.JPEG"
    ):
        load("tiny-imagenet", tiny.parent)


def test_too_few_images_of_a_class_are_refused(tiny: Path) -> None:
    for number in range(10, 60):
        (tiny / "train" / "n002" / "images" / f"n002_{number}.JPEG").unlink()
    with pytest.raises(ValueError, match="val: expected more than 50 images of each class, got 10 of class 1"):
        load("tiny-imagenet", tiny.parent)


def test_missing_tiny_imagenet_says_where_and_how(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=rf"^tiny-imagenet: {tmp_path}/tiny-imagenet-200/train and .* not found; pass --download"
    ):
        load("tiny-imagenet", tmp_path)


def test_tiny_imagenet_is_fetched_when_asked(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tiny.rename(tiny.parent / "elsewhere")

    def fetch(url: str, root: str, md5: str) -> None:
        assert (url.rpartition("/")[2], root, len(md5)) == ("tiny-imagenet-200.zip", str(tiny.parent), 32)
        elsewhere.rename(tiny)

    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", fetch)
    assert load("tiny-imagenet", tiny.parent, download=True).classes == ("n001", "n002")


@pytest.fixture
def imagenet(tmp_path: Path, write_image: WriteImage) -> Path:
    for split, count in (("train", 200), ("val", 3)):
        for name in ("n01", "n02"):
            for number in range(count):
                write_image(tmp_path / split / name / f"{number:03}.JPEG", size=(30, 20))
    return tmp_path


def test_imagenet_is_streamed_and_val_is_the_test_split(imagenet: Path) -> None:
    source = load("imagenet", imagenet)
    assert isinstance(source.train, ImageFiles)
    assert isinstance(source.test, ImageFiles)
    assert [len(split) for split in source.splits.values()] == [396, 4, 6]  # type: ignore[arg-type]
    assert (source.image_size, source.augment) == ((224, 224), ResizedCrop(224))
    assert source.statistics == (IMAGENET.mean, IMAGENET.std)
    assert source.test.where(3) == str(imagenet / "val" / "n02" / "000.JPEG")
    assert source.notes == (
        "val is 1% of each class of train, held out with seed 0",
        "test is the val split of the data",
        "every image is scaled and cropped to 224 x 224",
    )


def test_imagenet_may_lie_in_a_folder_of_its_name(imagenet: Path) -> None:
    (imagenet / "imagenet").mkdir()
    for split in ("train", "val"):
        (imagenet / split).rename(imagenet / "imagenet" / split)
    source = load("imagenet", imagenet, val_fraction=0.1, image_size=64)
    assert [len(split) for split in source.splits.values()] == [360, 40, 6]  # type: ignore[arg-type]
    assert source.image_size == (64, 64)


@pytest.mark.parametrize("download", [True, False])
def test_missing_imagenet_says_where_and_how(tmp_path: Path, download: bool) -> None:
    with pytest.raises(
        ValueError, match=rf"^imagenet: folders train and val not found in {tmp_path}/imagenet or {tmp_path}; put"
    ):
        load("imagenet", tmp_path, download=download)


def test_imagenets_archives_are_unpacked_when_asked(imagenet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split in ("train", "val"):
        (imagenet / split).rename(imagenet / f"packed {split}")
    (imagenet / "ILSVRC2012_img_train.tar").touch()

    def unpack(root: str, split: str) -> None:
        (Path(root) / f"packed {split}").rename(Path(root) / split)

    monkeypatch.setattr(datasets, "ImageNet", unpack)
    with pytest.raises(ValueError, match=r"^imagenet: folders train and val not found in .*; put them there"):
        load("imagenet", imagenet)
    assert load("imagenet", imagenet, download=True).classes == ("n01", "n02")
