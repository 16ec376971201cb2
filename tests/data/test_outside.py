from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, TensorDataset

from onefold.data import Arrays, ImageFiles, load
from onefold.data.outside import outside
from onefold.data.sample import sample


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(path)


def test_any_folder_of_images(tmp_path: Path) -> None:
    for name in ("a.png", "deep/er/b.jpg"):
        picture(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not an image")
    found = outside(f"folder:{tmp_path}")
    assert isinstance(found, ImageFiles)
    assert [Path(found.where(i)).name for i in range(len(found))] == ["a.png", "b.jpg"]
    picture(tmp_path / "test" / "c.png")
    found = outside(f"folder:{tmp_path}")
    assert isinstance(found, ImageFiles)
    assert [Path(found.where(i)).name for i in range(len(found))] == ["c.png"]


@pytest.mark.parametrize("key", ["test_x", "x", "images", "anything"])
def test_an_array(key: str, tmp_path: Path) -> None:
    images = np.arange(3 * 8 * 8 * 3, dtype=np.uint8).reshape(3, 8, 8, 3)
    np.savez(tmp_path / "a.npz", **{key: images})  # type: ignore[arg-type]
    found = outside(f"npz:{tmp_path}/a.npz")
    assert isinstance(found, Arrays)
    assert torch.equal(found.x, torch.from_numpy(images).permute(0, 3, 1, 2))


def test_a_known_set_is_its_test_split() -> None:
    found, test = outside("digits"), load("digits").test
    assert isinstance(found, Arrays)
    assert isinstance(test, Arrays)
    assert torch.equal(found.x, test.x)


def test_a_name_is_a_folder_under_the_root(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"lsun: expected a folder of its images at .*lsun, found none"):
        outside("lsun", tmp_path)
    picture(tmp_path / "lsun" / "bedroom" / "a.png")
    found = outside("lsun", tmp_path)
    assert isinstance(found, ImageFiles)
    assert len(found) == 1
    picture(tmp_path / "digits" / "a.png")
    assert isinstance(outside("digits", tmp_path), Arrays)  # a known set is itself


@pytest.mark.parametrize("broken", [b"no image", None])
def test_unreadable_files_are_refused_or_left_out(broken: bytes | None, tmp_path: Path) -> None:
    """Also one that is damaged in the middle, which only decoding finds."""
    for name in ("a.png", "b.png"):
        picture(tmp_path / name)
    noise = np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "c.png")
    content = bytearray((tmp_path / "c.png").read_bytes())
    content[200:400] = bytes(200)
    (tmp_path / "c.png").write_bytes(bytes(content) if broken is None else broken)
    said: list[str] = []
    found = outside(f"folder:{tmp_path}", skip_unreadable=True, tell=said.append)
    assert isinstance(found, ImageFiles)
    assert [Path(found.where(i)).name for i in range(len(found))] == ["a.png", "b.png"]
    (sentence,) = said
    assert "left out 1 file" in sentence
    assert "c.png" in sentence
    if broken is not None:
        with pytest.raises(ValueError, match="1 file cannot be used"):
            outside(f"folder:{tmp_path}")
        for name in ("a.png", "b.png"):
            (tmp_path / name).unlink()
        with pytest.raises(ValueError, match="expected readable images"):
            outside(f"folder:{tmp_path}", skip_unreadable=True)


def test_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder of images"):
        outside(f"folder:{tmp_path}/no")
    with pytest.raises(ValueError, match=r"expected images .* got none"):
        outside(f"folder:{tmp_path}")
    with pytest.raises(ValueError, match="found none"):
        outside(f"npz:{tmp_path}/no.npz")
    np.savez(tmp_path / "two.npz", a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(ValueError, match="expected one of test_x, x, images in it, found a, b"):
        outside(f"npz:{tmp_path}/two.npz")
    with pytest.raises(ValueError, match="did you mean svhn"):
        outside("shvn")


def test_a_sample_is_drawn_by_the_seed_and_mixed() -> None:
    arrays = Arrays(torch.arange(100.0)[:, None], torch.arange(100))
    one, again, other = sample(arrays, 10), sample(arrays, 10), sample(arrays, 10, seed=1)
    assert isinstance(one, Arrays)
    assert isinstance(again, Arrays)
    assert isinstance(other, Arrays)
    assert torch.equal(one.y, again.y)
    assert not torch.equal(one.y, other.y)
    assert torch.equal(one.x[:, 0].long(), one.y)
    assert len(set(one.y.tolist())) == 10
    assert one.y.tolist() != sorted(one.y.tolist())
    everything = sample(arrays, 1000)
    assert isinstance(everything, Arrays)
    assert sorted(everything.y.tolist()) == list(range(100))


def test_a_sample_of_a_dataset_and_of_a_loader() -> None:
    dataset = TensorDataset(torch.arange(20), torch.arange(20))
    found = sample(dataset, 5)
    assert isinstance(found, Dataset)
    assert len({int(found[i][0]) for i in range(5)}) == 5
    assert sample(DataLoader(dataset), 5) is None
