from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onefold.data import Arrays, ImageFiles, load
from onefold.data.pictures import Pictures
from onefold.data.scan import scan

WriteImage = Callable[..., Path]
PROBLEMS = {
    "empty.png": r"it is empty \(0 bytes\)",
    "text.jpg": "it is not an image",
    "cut.jpg": ".*",
    "cut.png": ".*",
    "deep.png": r"its pixels have more than 8 bits \(mode I;16\)",
    "moving.gif": "its image format is not supported; convert it to PNG or JPEG",
}


@pytest.fixture
def broken(tmp_path: Path, write_image: WriteImage) -> Path:
    """Twenty good images and six that are not, spread over splits and classes."""
    for split in ("train", "test"):
        for name in "ab":
            for number in range(5):
                write_image(tmp_path / split / name / f"{number}.png", size=(32, 32))
    (tmp_path / "train" / "a" / "empty.png").touch()
    (tmp_path / "train" / "b" / "text.jpg").write_text("not an image at all")
    Image.new("RGB", (32, 32)).save(tmp_path / "test" / "a" / "moving.gif")
    for ending in ("jpg", "png"):
        whole = write_image(tmp_path / f"whole.{ending}", size=(32, 32))
        data = whole.read_bytes()
        whole.unlink()
        (tmp_path / "test" / "b" / f"cut.{ending}").write_bytes(data[: len(data) * 2 // 3])
    Image.fromarray(np.full((32, 32), 40_000, dtype=np.uint16)).save(tmp_path / "train" / "a" / "deep.png")
    return tmp_path


@pytest.mark.parametrize("pixels", [True, False])
def test_everything_wrong_is_listed_at_once(broken: Path, pixels: bool) -> None:
    size = None if pixels else 32
    with pytest.raises(
        ValueError, match=r"6 files cannot be used; .*--data.skip-unreadable \(skip_unreadable=True"
    ) as error:
        load(f"folder:{broken}", image_size=size)
    lines = str(error.value).splitlines()[1:]
    assert len(lines) == 6
    for file, problem in PROBLEMS.items():
        with pytest.raises(ValueError, match=rf"\n  {broken}/\w+/[ab]/{file}: {problem}"):
            raise error.value


@pytest.mark.parametrize("pixels", [True, False])
def test_what_cannot_be_used_can_be_left_out(broken: Path, pixels: bool) -> None:
    source = load(f"folder:{broken}", image_size=None if pixels else 32, skip_unreadable=True)
    assert isinstance(source.train, Arrays if pixels else ImageFiles)
    assert [len(split) for split in source.splits.values()] == [8, 2, 10]  # type: ignore[arg-type]
    assert source.notes[0].startswith("left out 6 files that cannot be used:\n")
    assert all(file in source.notes[0] for file in PROBLEMS)
    if isinstance(source.train, Arrays) and isinstance(source.val, Arrays):
        images, labels = torch.cat([source.train.x, source.val.x]), torch.cat([source.train.y, source.val.y])
        for label, name in enumerate("ab"):
            for number in range(5):
                pixels_of_it = np.array(Image.open(broken / "train" / name / f"{number}.png"))
                same = (images == torch.from_numpy(pixels_of_it).permute(2, 0, 1)).flatten(1).all(dim=1)
                assert labels[same].tolist() == [label]


def test_a_set_of_broken_files_only_is_refused(tmp_path: Path, write_image: WriteImage) -> None:
    for name in "ab":
        for split in ("train", "test"):
            write_image(tmp_path / split / name / "0.png").write_bytes(b"" if split == "test" else b"no")
    with pytest.raises(ValueError, match="expected readable images in test, got none"):
        load(f"folder:{tmp_path}", skip_unreadable=True)


def test_other_channels_are_converted_and_mentioned(tmp_path: Path, write_image: WriteImage) -> None:
    for name in "ab":
        for number in range(6):
            write_image(tmp_path / name / f"{number}.png")
    write_image(tmp_path / "a" / "grey.png", mode="L")
    write_image(tmp_path / "b" / "clear.png", mode="RGBA")
    palette = Image.open(write_image(tmp_path / "b" / "palette.png", mode="P"))
    palette.load()
    palette.save(tmp_path / "b" / "palette.png", transparency=bytes(range(256)))
    source = load(f"folder:{tmp_path}")
    assert isinstance(source.train, Arrays)
    assert source.train.x.shape[1] == 3
    assert source.notes[:3] == (
        f"converted 1 image ({tmp_path}/a/grey.png) from L to RGB",
        f"converted 1 image ({tmp_path}/b/palette.png) from P to RGB",
        f"converted 1 image ({tmp_path}/b/clear.png) from RGBA to RGB",
    )


def test_a_grey_image_has_three_equal_channels(tmp_path: Path, write_image: WriteImage) -> None:
    file = write_image(tmp_path / "grey.png", mode="L")
    image, label = ImageFiles([str(file)], torch.tensor([4]))[0]
    expected = np.asarray(Image.open(file))
    for channel in range(3):
        np.testing.assert_array_equal(np.asarray(image)[:, :, channel], expected)
    assert label == 4


def test_counts_sizes_and_keeps_pixels_of_one_size_only(tmp_path: Path, write_image: WriteImage) -> None:
    files = [str(write_image(tmp_path / f"{number}.png", size=(5, 9))) for number in range(3)]
    found = scan(ImageFiles(files, torch.arange(3)), pixels=True)
    assert dict(found.sizes) == {(9, 5): 3}
    assert found.pixels is not None
    for index, file in enumerate(files):
        np.testing.assert_array_equal(found.pixels[index].permute(1, 2, 0).numpy(), np.asarray(Image.open(file)))
    files.append(str(write_image(tmp_path / "wide.png", size=(10, 4))))
    found = scan(ImageFiles(files, torch.arange(4)), pixels=True)
    assert dict(found.sizes) == {(9, 5): 3, (4, 10): 1}
    assert found.pixels is None
    assert scan(ImageFiles(files[:3], torch.arange(3)), pixels=False).pixels is None


def test_the_order_of_images_is_not_the_threads(tmp_path: Path, write_image: WriteImage) -> None:
    files = [str(write_image(tmp_path / f"{number}.png", size=(4 + number % 3, 4))) for number in range(60)]
    pictures: Pictures = ImageFiles(files, torch.arange(60))
    assert scan(pictures, pixels=False).readable.tolist() == list(range(60))


def test_many_images_of_another_mode_are_counted_with_one_example(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for k in range(1500):
            Image.new("L" if k % 2 else "RGB", (2, 2)).save(tmp_path / name / f"{k:04}.png")
    (note,) = [note for note in load(f"folder:{tmp_path}").notes if note.startswith("converted")]
    assert note == f"converted 1,500 images (such as {tmp_path}/a/0001.png) from L to RGB"
