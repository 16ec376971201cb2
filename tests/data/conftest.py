from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

WriteImage = Callable[..., Path]


@pytest.fixture
def write_image() -> WriteImage:
    """Writes an image of random pixels, another one for every path."""

    def write(path: Path, size: tuple[int, int] = (8, 8), mode: str = "RGB") -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        numbers = np.random.default_rng(list(str(path).encode()))
        pixels = numbers.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).convert(mode).save(path)
        return path

    return write


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test writes into the user's cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder
