"""The published sets, from the folders in which they are distributed: CIFAR-10-C, CIFAR-100-C and TinyImageNet-C."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from onefold.data.corrupt.severities import CORRUPTIONS, EXTRA, check_name
from onefold.data.pictures import ImageFiles, Unreadable

LEVELS = range(1, 6)
LABELS = "labels.npy"
Array = np.ndarray[Any, np.dtype[Any]]


class Corrupted(NamedTuple):
    """One corruption at one severity."""

    name: str
    severity: int
    images: Tensor  # uint8 [N, 3, H, W]
    labels: Tensor  # int64 [N]


def published(folder: str | Path, names: Sequence[str] | None = None) -> Iterator[Corrupted]:
    """Yields every corruption at every severity, with one at a time in memory.

    `names` chooses the corruptions; by default the 15 of the benchmark and those of the 4 extra ones that the folder
    has. The whole folder is checked first; one ValueError lists everything that is missing or malformed. Labels of
    TinyImageNet-C are positions in the sorted names of its classes, as for TinyImageNet.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ValueError(f"corruptions: expected a folder at {path}, found none")
    for name in names or ():
        check_name(name)
    arrays = (path / LABELS).exists() or any(path.glob("*.npy"))
    extra = [name for name in EXTRA if (path / (f"{name}.npy" if arrays else name)).exists()]
    wanted = [*CORRUPTIONS, *extra] if names is None else list(names)
    return from_arrays(path, wanted) if arrays else from_files(path, wanted)


def incomplete(path: Path, kind: str, faults: Sequence[str]) -> ValueError:
    return ValueError(f"{path}: expected {kind} as distributed, got {'; '.join(faults)}; download or unpack it again")


# CIFAR-10-C and CIFAR-100-C: NAME.npy, uint8 [5 N, 32, 32, 3], ordered by severity; labels.npy [5 N].


def from_arrays(path: Path, names: Sequence[str]) -> Iterator[Corrupted]:
    labels, faults = opened(path / LABELS)
    if labels is not None and (labels.ndim != 1 or len(labels) % 5 or not np.issubdtype(labels.dtype, np.integer)):
        faults.append(f"{LABELS} as {labels.dtype} {list(labels.shape)}, not whole numbers [5 N]")
        labels = None
    for name in names:
        array, wrong = opened(path / f"{name}.npy")
        faults += wrong
        if array is None:
            continue
        if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] != 3:
            faults.append(f"{name}.npy as {array.dtype} {list(array.shape)}, not uint8 [5 N, H, W, 3]")
        elif labels is not None and len(array) != len(labels):
            faults.append(f"{name}.npy with {len(array):,} images for {len(labels):,} labels")
    if faults or labels is None:
        raise incomplete(path, "CIFAR-10-C or CIFAR-100-C", faults)
    return read_arrays(path, names, torch.from_numpy(labels.astype(np.int64)))


def read_arrays(path: Path, names: Sequence[str], labels: Tensor) -> Iterator[Corrupted]:
    count = len(labels) // 5
    for name in names:
        array = np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        for severity in LEVELS:
            part = slice((severity - 1) * count, severity * count)
            images = torch.from_numpy(np.ascontiguousarray(array[part].transpose(0, 3, 1, 2)))
            yield Corrupted(name, severity, images, labels[part])


def opened(file: Path) -> tuple[Array | None, list[str]]:
    """The memory-mapped array, or what is wrong with the file. A truncated file is detected here."""
    if not file.is_file():
        return None, [f"no {file.name}"]
    try:
        array: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        return None, [f"a damaged {file.name} ({error})"]
    return array, []


# TinyImageNet-C: NAME/SEVERITY/CLASS/*.JPEG.


def from_files(path: Path, names: Sequence[str]) -> Iterator[Corrupted]:
    folders = [(name, severity) for name in names for severity in LEVELS]
    whole: frozenset[str] = frozenset()
    shorter: dict[tuple[str, int], frozenset[str]] = {}  # only incomplete sets are kept: each set has 10,000 names
    for place in folders:
        found = frozenset(listed(path / place[0] / str(place[1])))
        if not found <= whole:
            # The set seemed complete and was not: every earlier folder has exactly `whole`, or is in `shorter`.
            shorter |= {before: whole for before in folders[: folders.index(place)] if before not in shorter}
            whole |= found
        if found != whole:
            shorter[place] = found
    faults = [shortage(name, severity, whole - found) for (name, severity), found in shorter.items() if found != whole]
    if not whole:
        faults = [f"none of the folders {names[0]}/1, {names[0]}/2, ... and no {LABELS} either"]
    if faults:
        raise incomplete(path, "NAME.npy and labels.npy, or TinyImageNet-C's NAME/SEVERITY/CLASS/*.JPEG,", faults)
    files = sorted(whole)
    classes = sorted({file.partition("/")[0] for file in files})
    places = {name: label for label, name in enumerate(classes)}
    labels = torch.tensor([places[file.partition("/")[0]] for file in files])
    return (
        Corrupted(name, severity, read_files(path / name / str(severity), files, labels), labels)
        for name, severity in folders
    )


def listed(folder: Path) -> Iterator[str]:
    """CLASS/FILE of every image that is not empty."""
    from torchvision.datasets.folder import IMG_EXTENSIONS  # imported only where it is used

    if not folder.is_dir():
        return
    for place in os.scandir(folder):
        if place.is_dir() and place.name[0] != ".":
            for file in os.scandir(place.path):
                if file.name.lower().endswith(IMG_EXTENSIONS) and file.name[0] != "." and file.stat().st_size:
                    yield f"{place.name}/{file.name}"


def shortage(name: str, severity: int, absent: frozenset[str]) -> str:
    """Which images a folder lacks, in words."""
    classes = sorted({file.partition("/")[0] for file in absent})
    shown = f"{len(absent):,} images of {len(classes)} classes" if len(absent) > 3 else ", ".join(sorted(absent))
    return f"{name}/{severity} without {shown}"


def read_files(folder: Path, files: Sequence[str], labels: Tensor) -> Tensor:
    """Reads uint8 `[N, 3, H, W]`, all of the same size; raises an error that names every unusable file."""
    pictures = ImageFiles([str(folder / file) for file in files], labels)

    def pixels(index: int) -> Tensor | str:
        try:
            return torch.from_numpy(np.array(pictures[index][0])).permute(2, 0, 1)
        except Unreadable as error:
            return str(error)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        read = list(threads.map(pixels, range(len(files))))
    images = [image for image in read if not isinstance(image, str)]
    faults = [fault for fault in read if isinstance(fault, str)]
    sizes = {tuple(image.shape[1:]) for image in images}
    if len(sizes) > 1:
        faults.append(f"images of different sizes: {', '.join(f'{high} x {wide}' for high, wide in sorted(sizes))}")
    if faults:
        raise incomplete(folder, "images of one size", faults)
    return torch.stack(images)
