from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from onefold.data import ImageFiles, remember
from onefold.data.scan import Scan, scan

WriteImage = Callable[..., Path]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images were looked at, scan by scan."""
    counted: list[int] = []

    def counting(pictures: ImageFiles, pixels: bool, progress: None = None) -> Scan:
        counted.append(len(pictures))
        return scan(pictures, pixels, progress)

    monkeypatch.setattr(remember, "scan", counting)
    monkeypatch.setattr(remember, "LEAST", 3)
    return counted


def files(folder: Path) -> ImageFiles:
    paths = sorted(str(path) for path in folder.iterdir())
    return ImageFiles(paths, torch.zeros(len(paths)))


def test_a_clean_set_is_looked_at_once(tmp_path: Path, write_image: WriteImage, looks: list[int]) -> None:
    for number in range(4):
        write_image(tmp_path / "a" / f"{number}.png", size=(4 + number, 5), mode="L" if number == 2 else "RGB")
    first, second = (remember.remembered_scan(files(tmp_path / "a")) for _ in range(2))
    assert looks == [4]
    assert first.sizes == second.sizes
    assert first.converted == second.converted == {"L": [str(tmp_path / "a" / "2.png")]}
    assert second.readable.tolist() == [0, 1, 2, 3]
    write_image(tmp_path / "a" / "new.png")
    remember.remembered_scan(files(tmp_path / "a"))
    assert looks == [4, 5]


def test_a_folder_that_changed_is_looked_at_again(tmp_path: Path, write_image: WriteImage, looks: list[int]) -> None:
    for number in range(3):
        write_image(tmp_path / "a" / f"{number}.png")
    remember.remembered_scan(files(tmp_path / "a"))
    os.utime(tmp_path / "a", ns=(1, 1))
    remember.remembered_scan(files(tmp_path / "a"))
    assert looks == [3, 3]


def test_problems_are_never_remembered(tmp_path: Path, write_image: WriteImage, looks: list[int]) -> None:
    for number in range(3):
        write_image(tmp_path / "a" / f"{number}.png")
    good = (tmp_path / "a" / "1.png").read_bytes()
    (tmp_path / "a" / "1.png").write_bytes(b"")
    assert len(remember.remembered_scan(files(tmp_path / "a")).problems) == 1
    (tmp_path / "a" / "1.png").write_bytes(good)
    assert remember.remembered_scan(files(tmp_path / "a")).problems == []
    assert looks == [3, 3]


def test_a_damaged_or_impossible_cache_is_none(
    tmp_path: Path, write_image: WriteImage, looks: list[int], cache: Path
) -> None:
    for number in range(3):
        write_image(tmp_path / "a" / f"{number}.png")
    remember.remembered_scan(files(tmp_path / "a"))
    (kept,) = (cache / "onefold" / "scans").iterdir()
    kept.write_text("{")
    remember.remembered_scan(files(tmp_path / "a"))
    kept.unlink()
    (cache / "onefold" / "scans").rmdir()
    (cache / "onefold" / "scans").write_text("a file where the folder should be")
    remember.remembered_scan(files(tmp_path / "a"))
    assert looks == [3, 3, 3]


def test_small_sets_are_not_worth_it(tmp_path: Path, write_image: WriteImage, looks: list[int], cache: Path) -> None:
    for number in range(2):
        write_image(tmp_path / "a" / f"{number}.png")
    for _ in range(2):
        remember.remembered_scan(files(tmp_path / "a"))
    assert looks == [2, 2]
    assert not cache.exists()
