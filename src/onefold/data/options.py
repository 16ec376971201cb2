"""Options for reading a data set, common to all sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[int, int], None]  # images scanned so far, images in all


@dataclass(frozen=True)
class Options:
    """See `load`."""

    download: bool = False
    seed: int = 0
    skip_unreadable: bool = False
    val_fraction: float | None = None
    image_size: int | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.val_fraction is not None and not 0 < self.val_fraction < 1:
            raise ValueError(f"val_fraction: expected a value between 0 and 1, got {self.val_fraction}")
        if self.image_size is not None and self.image_size < 1:
            raise ValueError(f"image_size: expected at least 1, got {self.image_size}")
