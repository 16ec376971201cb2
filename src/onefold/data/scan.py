"""Checks every image before training starts, so that all problems are reported at once and not one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from onefold.data.options import Progress
from onefold.data.pictures import Pictures, check_ending, decoded, opened

BLOCK = 1024  # images given to the threads at a time: a future for each one of ImageNet would take a gigabyte
THREADS = 8  # PIL releases the GIL while decoding


class Look(NamedTuple):
    """What was found out about one image."""

    problem: str | None
    size: tuple[int, int] = (0, 0)  # (H, W)
    mode: str = ""
    pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None = None  # [H, W, 3]


@dataclass
class Scan:
    """What was found out about a split. `pixels` `[N, 3, H, W]` if all images were decoded and have the same size."""

    readable: Tensor  # indices
    problems: list[str] = field(default_factory=list)  # each names its file
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)  # (H, W)
    converted: dict[str, list[str]] = field(default_factory=dict)  # mode that was not RGB: files
    pixels: Tensor | None = None


def scan(pictures: Pictures, pixels: bool, progress: Progress | None = None) -> Scan:
    """Opens every image. With `pixels`, images are decoded, and kept as long as all have the same size; without, for
    sets that are too large, only the header and the end of each file are checked."""
    found = Scan(readable=torch.empty(0, dtype=torch.long))
    readable: list[int] = []
    kept: Tensor | None = None
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(pictures), BLOCK):
            block = range(start, min(start + BLOCK, len(pictures)))
            for index, look in zip(block, pool.map(lambda i: look_at(pictures, i, pixels), block), strict=True):
                if look.problem is not None:
                    found.problems.append(f"{pictures.where(index)}: {look.problem}")
                    continue
                readable.append(index)
                found.sizes[look.size] += 1
                if look.mode != "RGB":
                    found.converted.setdefault(look.mode, []).append(pictures.where(index))
                if look.pixels is None or len(found.sizes) > 1:
                    kept = None
                    continue
                if kept is None:
                    kept = torch.empty(len(pictures), 3, *look.size, dtype=torch.uint8)
                kept[len(readable) - 1] = torch.from_numpy(look.pixels).permute(2, 0, 1)
            if progress is not None:
                progress(block.stop, len(pictures))
    found.readable = torch.tensor(readable, dtype=torch.long)
    found.pixels = None if kept is None else kept[: len(readable)]
    return found


def look_at(pictures: Pictures, index: int, pixels: bool) -> Look:
    """Checks one image."""
    try:
        with pictures.open(index) as file:
            image = opened(file)
            size, mode = (image.height, image.width), image.mode
            if pixels:
                return Look(None, size, mode, np.array(decoded(image)))
            check_ending(file, image)
            return Look(None, size, mode)
    except Exception as error:  # decoders raise all sorts of exceptions for broken files
        return Look(str(error).strip() or type(error).__name__)


def refuse_unreadable(name: str, problems: Sequence[str], skip_unreadable: bool) -> tuple[str, ...]:
    """Raises one error that lists all problems, or returns one note that does if bad files may be skipped."""
    if not problems:
        return ()
    listed = "\n".join(f"  {problem}" for problem in problems)
    count = "1 file" if len(problems) == 1 else f"{len(problems)} files"
    if skip_unreadable:
        return (f"left out {count} that cannot be used:\n{listed}",)
    raise ValueError(
        f"{name}: {count} cannot be used; fix or remove them, or skip them with --data.skip-unreadable "
        f"(skip_unreadable=True in Python):\n{listed}"
    )


def oddities(scans: Sequence[Scan]) -> tuple[str, ...]:
    """Notes about images that are usable but different: other colour modes, several sizes."""
    converted: dict[str, list[str]] = {}
    for found in scans:
        for mode, files in found.converted.items():
            converted.setdefault(mode, []).extend(files)
    notes = [f"converted {counted(files)} from {mode} to RGB" for mode, files in sorted(converted.items())]
    sizes = all_sizes(scans)
    if len(sizes) > 1:
        common = ", ".join(f"{w} x {h} ({count:,})" for (h, w), count in sizes.most_common(10))
        more = f" and {len(sizes) - 10:,} more" if len(sizes) > 10 else ""
        notes.append(f"images of {len(sizes):,} sizes (width x height): {common}{more}")
    return tuple(notes)


def all_sizes(scans: Sequence[Scan]) -> Counter[tuple[int, int]]:
    """How often each size (H, W) occurs."""
    sizes: Counter[tuple[int, int]] = Counter()
    for found in scans:
        sizes += found.sizes
    return sizes


def counted(files: Sequence[str]) -> str:
    """A count with one name."""
    return f"1 image ({files[0]})" if len(files) == 1 else f"{len(files):,} images (such as {files[0]})"
