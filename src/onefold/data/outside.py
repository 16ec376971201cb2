"""Out-of-distribution images: their classes do not matter, so any folder of images will do."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from onefold.data.folder import ENDINGS, files_below
from onefold.data.npz import as_examples
from onefold.data.options import Progress
from onefold.data.pictures import ImageFiles
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
) -> Arrays | Dataset[Any]:
    """The images that `spec` names: the test split of a known data set; for `folder:PATH` all images below PATH/test,
    or below PATH if there is no such folder; for `npz:PATH` the array test_x, x or images, or the only one. Any other
    name, such as `lsun`, is a folder of images under `root`."""
    kind, colon, rest = spec.partition(":")
    if colon and kind == "folder":
        return images_below(spec, Path(rest).expanduser())
    if colon and kind == "npz":
        return array_of(spec, Path(rest).expanduser())
    folder = Path(root).expanduser() / spec
    if not colon and spec not in READERS and folder.is_dir():
        return images_below(spec, folder)
    if spec in UNPACKED:
        raise ValueError(
            f"{spec}: expected a folder of its images at {folder}, and there is none; unpack its test images there, or "
            f"say where they are with {spec}=folder:PATH"
        )
    given: dict[str, Any] = {"download": download, "skip_unreadable": skip_unreadable}
    test = load(spec, root, progress=progress, **given).test
    assert not isinstance(test, DataLoader), "sources are no loaders"
    return test


def images_below(spec: str, folder: Path) -> ImageFiles:
    if not folder.is_dir():
        raise ValueError(f"{spec}: expected a folder of images at {folder}, and there is none")
    inner = folder / "test"
    paths = [path for path in files_below(str(inner if inner.is_dir() else folder)) if path.lower().endswith(ENDINGS)]
    if not paths:
        raise ValueError(f"{spec}: expected images ({', '.join(ENDINGS)}) below {folder}, got none")
    return ImageFiles(paths, torch.zeros(len(paths), dtype=torch.long))


def array_of(spec: str, path: Path) -> Arrays:
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ValueError(f"{spec}: expected an .npz file of plain arrays at {path}, and there is none")
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [key for key in KEYS if key in file.files] or (file.files if len(file.files) == 1 else [])
            if not names:
                raise ValueError(f"expected one of {', '.join(KEYS)} in it, found {', '.join(file.files)}")
            x, _ = as_examples(names[0], file[names[0]])
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{spec}: {error}") from None
    return Arrays(x, torch.zeros(len(x), dtype=torch.long))
