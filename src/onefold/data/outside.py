"""Out-of-distribution images: their classes do not matter, so any folder of images will do."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from onefold.data.assemble import MEMORY, expected_bytes
from onefold.data.folder import ENDINGS, files_below
from onefold.data.npz import as_examples
from onefold.data.options import Progress
from onefold.data.pictures import ImageFiles
from onefold.data.remember import remembered_scan
from onefold.data.scan import refuse_unreadable
from onefold.data.specs import READERS, load
from onefold.data.split import Arrays

UNPACKED = ("lsun",)  # distributed as a database, which users have to unpack
KEYS = ("test_x", "x", "images")  # arrays of an .npz file; the first that is there is used


def outside(
    spec: str,
    root: Path | str = "data",
    *,
    download: bool = False,
    skip_unreadable: bool = False,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Arrays | Dataset[Any]:
    """The images that `spec` names: the test split of a known data set; for `folder:PATH` all images below PATH/test,
    or below PATH if there is no such folder; for `npz:PATH` the array test_x, x or images, or the only one. Any other
    name, such as `lsun`, is a folder of images under `root`. `tell` is called with a sentence on what is left out."""
    kind, _, rest = spec.partition(":")
    folder = folder_of(spec, root)
    if folder is not None:
        return images_below(spec, folder, skip_unreadable, progress, tell)
    if kind == "npz":
        return array_of(spec, Path(rest).expanduser())
    if spec in UNPACKED:
        raise ValueError(
            f"{spec}: expected a folder of its images at {Path(root).expanduser() / spec}, found none; unpack "
            f"its test images there, or say where they are with {spec}=folder:PATH"
        )
    given: dict[str, Any] = {"download": download, "skip_unreadable": skip_unreadable}
    test = load(spec, root, progress=progress, **given).test
    assert not isinstance(test, DataLoader), "sources are no loaders"
    return test


def folder_of(spec: str, root: Path | str = "data") -> Path | None:
    """The folder that has the images; None if `spec` is no folder."""
    kind, colon, rest = spec.partition(":")
    folder = Path(rest if colon else Path(root) / spec).expanduser()
    if kind != "folder" and (colon or spec in READERS or not folder.is_dir()):
        return None
    return folder / "test" if (folder / "test").is_dir() else folder


def images_below(
    spec: str, folder: Path, skip_unreadable: bool, progress: Progress | None, tell: Callable[[str], None] | None
) -> ImageFiles:
    """All images that can be read."""
    if not folder.is_dir():
        raise ValueError(f"{spec}: expected a folder of images at {folder}, found none")
    paths = [path for path in files_below(str(folder)) if path.lower().endswith(ENDINGS)]
    if not paths:
        raise ValueError(f"{spec}: expected images ({', '.join(ENDINGS)}) below {folder}, got none")
    images = ImageFiles(paths, torch.zeros(len(paths), dtype=torch.long))
    decoding = skip_unreadable and expected_bytes([images]) <= MEMORY  # finds all that would fail later
    found = remembered_scan(images, decoding, progress)
    for note in refuse_unreadable(spec, found.problems, skip_unreadable):
        if tell is not None:
            tell(f"{spec}: {note}")
    if not len(found.readable):
        raise ValueError(f"{spec}: expected readable images below {folder}, got none")
    return images.take(found.readable)


def array_of(spec: str, path: Path) -> Arrays:
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ValueError(f"{spec}: expected an .npz file of plain arrays at {path}, found none")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [key for key in KEYS if key in file.files] or (file.files if len(file.files) == 1 else [])
            if not names:
                raise ValueError(f"expected one of {', '.join(KEYS)} in it, found {', '.join(file.files)}")
            x, _ = as_examples(names[0], file[names[0]])
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{spec}: {error}") from None
    return Arrays(x, torch.zeros(len(x), dtype=torch.long))
