"""Images in folders, one folder per class: `folder:PATH` and ImageNet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from onefold.data.assemble import assemble
from onefold.data.holdout import divide
from onefold.data.options import Options
from onefold.data.pictures import ImageFiles
from onefold.data.source import Source
from onefold.data.split import first_few
from onefold.data.statistics import Statistics

SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
# Image formats that are not supported. Such files are reported: silently ignoring them would lose data.
UNREAD = (".gif", ".heic", ".heif", ".avif", ".jfif", ".jp2", ".jxl")
CLUTTER = {"thumbs.db", "desktop.ini"}  # files that file managers leave behind; ignored, like names with a leading dot


def load_folder(given_path: str, options: Options) -> Source:
    """`PATH/train/CLASS/...`, `PATH/val/...` and `PATH/test/...` (val, test or both), or `PATH/CLASS/...` alone.

    A class has all images at any depth below its folder; its index is the position of its name among the sorted folder
    names of train. A missing split is held out, depending on the seed; see `divide`.
    """
    return read_folder(f"folder:{given_path}", Path(given_path).expanduser(), options)


def read_folder(name: str, path: Path, options: Options, statistics: Statistics | None = None) -> Source:
    """`load_folder` for a data set with any name and possibly known statistics."""
    if not path.is_dir():
        raise ValueError(f"{name}: expected a folder with one subfolder per class at {path}, found none")
    folders = split_folders(path)
    classes = class_names(name, folders["all"] if "all" in folders else folders["train"])
    found, strangers, others = {}, [], []
    for split, folder in folders.items():
        found[split], odd, beside = list_images(name, folder, classes)
        strangers += odd
        others += beside
    by_seed, notes = partial(divide, options=options), left_out(others)
    return assemble(name, found, classes, by_seed, options, strangers=strangers, statistics=statistics, notes=notes)


def split_folders(path: Path) -> dict[str, Path]:
    """The folder of each split; only "all" if there is one folder for everything."""
    folders = {SPLITS[entry.name]: entry for entry in sorted(path.iterdir()) if entry.name in SPLITS and entry.is_dir()}
    if "train" not in folders:
        return {"all": path}
    return {"all": folders["train"]} if len(folders) == 1 else folders


def class_names(name: str, folder: Path) -> tuple[str, ...]:
    """The sorted names of the folders in `folder`."""
    classes = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."))
    if not classes:
        raise ValueError(f"{name}: expected one folder per class in {folder}, got none")
    return classes


def list_images(name: str, folder: Path, classes: Sequence[str]) -> tuple[ImageFiles, list[str], list[str]]:
    """The images of every class in sorted order, messages about unusable ones, and the files that are not images."""
    index = {wanted: label for label, wanted in enumerate(classes)}
    paths: list[str] = []
    labels: list[int] = []
    strangers: list[str] = []
    foreign: list[str] = []
    others: list[str] = []
    for entry in sorted(folder.iterdir()):
        if hidden(entry.name):
            continue
        outside = not entry.is_dir()
        for file in [str(entry)] if outside else files_below(str(entry)):
            if not file.lower().endswith(ENDINGS + UNREAD):
                others.append(file)
            elif outside:
                strangers.append(f"{file}: it is not in the folder of a class")
            elif entry.name not in index:
                foreign.append(file)
            elif file.lower().endswith(ENDINGS):
                paths.append(file)
                labels.append(index[entry.name])
            else:
                strangers.append(f"{file}: its image format is not supported; convert it to PNG or JPEG")
    if foreign:
        listed = first_few(foreign, "\n  ")
        raise ValueError(
            f"{name}: expected the {len(classes)} classes of train, got files of other classes:\n  {listed}"
        )
    return ImageFiles(paths, torch.tensor(labels, dtype=torch.long)), strangers, others


def left_out(files: Sequence[str]) -> tuple[str, ...]:
    """A note about files that are not images, if there are any."""
    if not files:
        return ()
    count = "1 file that is not an image" if len(files) == 1 else f"{len(files):,} files that are not images"
    return (f"left out: {count}, such as {files[0]}",)


def files_below(folder: str) -> list[str]:
    """Every file at any depth, sorted, so that the order does not depend on the file system."""
    found: list[str] = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(inner for inner in folders if not hidden(inner))
        found += [os.path.join(parent, file) for file in sorted(files) if not hidden(file)]
    return found


def hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in CLUTTER
