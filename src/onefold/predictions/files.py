"""Reads predictions from files, whole or in batches. Only this module knows the different forms of files."""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from onefold.predictions.compact import FORM, unpacked

VALUES = 2**20  # logits per batch: 8 MiB in float64, and as much again for each intermediate result
MAPPED = 1 << 28  # files from this many bytes on are memory-mapped
Labels = npt.NDArray[np.int64]
Logits = npt.NDArray[np.floating]
Batch = tuple[Logits, Labels]  # [B, K] and [B]
BROKEN: tuple[type[Exception], ...] = (ValueError, EOFError, LookupError, TypeError, AttributeError)
BROKEN += (NotImplementedError, struct.error, zipfile.BadZipFile, zlib.error)


@dataclass(frozen=True, eq=False)
class Stored:
    """The predictions of a split: labels `[N]`, which are small, and the file with the logits `[N, K]`."""

    path: Path
    labels: Labels
    classes: int
    compact: bool  # whether small probabilities were rounded

    @property
    def examples(self) -> int:
        return len(self.labels)

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Logits and labels in the order of the split, `rows` at a time."""
        rows = max(1, VALUES // self.classes) if rows is None else rows
        with blaming(self.path), zipfile.ZipFile(self.path) as archive:
            pieces = self._unpacked(archive, rows) if self.compact else self._streamed(archive, rows)
            for begin, logits in zip(range(0, self.examples, rows), pieces, strict=True):
                yield logits, self.labels[begin : begin + rows]

    def _streamed(self, archive: zipfile.ZipFile, rows: int) -> Iterator[Logits]:
        with archive.open("logits.npy") as file:
            _, dtype = header(file)
            for begin in range(0, self.examples, rows):
                count = min(rows, self.examples - begin)
                content = bytearray(file.read(count * self.classes * dtype.itemsize))
                logits = np.frombuffer(content, dtype).reshape(count, self.classes)
                yield logits.astype(dtype.newbyteorder("="), copy=False)

    def _unpacked(self, archive: zipfile.ZipFile, rows: int) -> Iterator[Logits]:
        logits = unpacked(Arrays(archive))
        if logits.shape != (self.examples, self.classes):
            raise ValueError(f"labels of {self.examples} examples and logits {logits.shape}")
        return (logits[begin : begin + rows] for begin in range(0, self.examples, rows))


class Arrays(dict[str, npt.NDArray[Any]]):
    """The arrays of an archive, read on access; nothing is unpickled."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__()
        self.archive = archive

    def __missing__(self, name: str) -> npt.NDArray[Any]:
        with self.archive.open(f"{name}.npy") as file:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


def stored(path: Path) -> Stored | None:
    """The predictions in a file, reading only the labels for now; None if there is no file."""
    if not path.exists():
        return None
    form = 0
    with blaming(path), zipfile.ZipFile(path) as archive:
        if "form.npy" in archive.namelist():
            form = int(Arrays(archive)["form"])
    if form > FORM:
        raise ValueError(
            f"{path} has form {form}, but only forms up to {FORM} can be read; use a newer version of onefold"
        )
    with blaming(path), zipfile.ZipFile(path) as archive:
        labels = Arrays(archive)["labels"]
        with archive.open("codes.npy" if form else "logits.npy") as file:
            shape, dtype = header(file)
        if labels.dtype.kind not in "iu" or dtype.kind != ("u" if form else "f"):
            raise ValueError(f"labels {labels.dtype} and logits {dtype}")
        if len(shape) != 2 or labels.shape != shape[:1]:
            raise ValueError(f"labels {labels.shape} and logits {shape}")
        if shape[1] < 2 or not len(labels) or labels.min() < 0 or labels.max() >= shape[1]:
            raise ValueError(f"labels outside of {shape[1]} classes")
    return Stored(path, labels.astype(np.int64), shape[1], form > 0)


def whole(path: Path) -> tuple[Labels, Logits] | None:
    """Labels `[N]` and logits `[N, K]`; None if there is no file. Large files are memory-mapped."""
    found = stored(path)
    if found is None:
        return None
    if not found.compact and path.stat().st_size > MAPPED:
        with blaming(path):
            return found.labels, mapped(path, "logits")
    return found.labels, next(found.batches(found.examples))[0]


def write_plain(file: IO[bytes], labels: Labels, logits: Logits) -> None:
    """Writes predictions in the plain form."""
    np.savez(file, labels=labels, logits=logits)


def mapped(path: Path, name: str) -> npt.NDArray[Any]:
    """Memory-maps an array of an uncompressed .npz file."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{path}: expected an uncompressed file of this size")
    with path.open("rb") as file:
        file.seek(entry.header_offset)
        lengths = struct.unpack("<26xHH", file.read(30))  # of the name and the extra field, which follow
        file.seek(sum(lengths), os.SEEK_CUR)
        shape, dtype = header(file)
        # Copy-on-write, because torch wants writable memory.
        return np.memmap(path, dtype, "c", file.tell(), shape)


def header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Shape and dtype of the array that starts at the file's position."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if by_columns and len(shape) > 1:
        raise ValueError("an array stored by columns")
    if dtype.hasobject:
        raise ValueError("objects, where plain numbers should be")
    return shape, dtype


@contextlib.contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Turns the various errors that a damaged file causes into one sentence."""
    try:
        yield
    except BROKEN:
        raise ValueError(f"{path}: expected labels and logits, got a damaged or foreign file") from None
