"""Images in folders, one folder a class: `folder:PATH` and ImageNet."""

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
CLUTTER = {"thumbs.db", "desktop.ini"}  # what file managers leave behind; names with a dot in front likewise


def load_folder(given_path: str, options: Options) -> Source:
    """`PATH/train/CLASS/...`, `PATH/val/...` and `PATH/test/...` (val, test or both), or `PATH/CLASS/...` alone.

    A class is every image at any depth below its folder; its index is its place in the sorted names of the folders of
    train. A split that is missing is held out by the seed, see `divide`.
    """
    return read_folder(f"folder:{given_path}", Path(given_path).expanduser(), options)


def read_folder(name: str, path: Path, options: Options, statistics: Statistics | None = None) -> Source:
    """`load_folder`, for a data set of any name whose statistics may be known."""
    if not path.is_dir():
        raise ValueError(f"{name}: expected a folder with one folder a class at {path}, and there is none")
    folders = {SPLITS[entry.name]: entry for entry in sorted(path.iterdir()) if entry.name in SPLITS and entry.is_dir()}
    if "train" not in folders:
        folders = {"all": path}
    elif len(folders) == 1:
        folders = {"all": folders["train"]}
    classes = class_names(name, folders["all"] if "all" in folders else folders["train"])
    found, strangers = {}, []
    for split, folder in folders.items():
        found[split], odd = list_images(name, folder, classes)
        strangers += odd
    by_seed = partial(divide, options=options)
    return assemble(name, found, classes, by_seed, options, strangers=strangers, statistics=statistics)


def class_names(name: str, folder: Path) -> tuple[str, ...]:
    """The sorted names of the folders in `folder`."""
    classes = tuple(sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != "."))
    if not classes:
        raise ValueError(f"{name}: expected one folder a class in {folder}, got none")
    return classes


def list_images(name: str, folder: Path, classes: Sequence[str]) -> tuple[ImageFiles, list[str]]:
    """The images of every class in sorted order, and what else lies there."""
    index = {wanted: label for label, wanted in enumerate(classes)}
    paths: list[str] = []
    labels: list[int] = []
    strangers: list[str] = []
    foreign: list[str] = []
    for entry in sorted(folder.iterdir()):
        if hidden(entry.name):
            continue
        if not entry.is_dir():
            strangers.append(f"{entry}: it lies outside the folders of the classes")
            continue
        for file in files_below(str(entry)):
            if entry.name not in index:
                foreign.append(file)
            elif file.lower().endswith(ENDINGS):
                paths.append(file)
                labels.append(index[entry.name])
            else:
                strangers.append(f"{file}: its name does not end like an image's")
    if foreign:
        listed = first_few(foreign, "\n  ")
        raise ValueError(
            f"{name}: expected the {len(classes)} classes of train, got files of other classes:\n  {listed}"
        )
    return ImageFiles(paths, torch.tensor(labels, dtype=torch.long)), strangers


def files_below(folder: str) -> list[str]:
    """Every file at any depth, sorted, so that the order is not the file system's."""
    found: list[str] = []
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(inner for inner in folders if not hidden(inner))
        found += [os.path.join(parent, file) for file in sorted(files) if not hidden(file)]
    return found


def hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in CLUTTER
