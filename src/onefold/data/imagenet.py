"""ImageNet-1k and TinyImageNet, from the folders in which they are distributed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from onefold.data.assemble import assemble
from onefold.data.fetch import missing, refused
from onefold.data.folder import class_names, left_out, list_images, read_folder
from onefold.data.holdout import Division, hold_out_last
from onefold.data.options import Options
from onefold.data.pictures import ImageFiles
from onefold.data.source import Source
from onefold.data.split import first_few
from onefold.data.statistics import IMAGENET

IMAGENET_VAL_FRACTION = 0.01  # about 13 images per class: enough for a temperature, and few lost for training
TINY_VAL = 50  # images per class
TINY_TRAIN = 100_000
TINY_FOLDER = "tiny-imagenet-200"
TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


def load_imagenet(root: Path, options: Options) -> Source:
    """`train/WNID/*.JPEG` and `val/WNID/*.JPEG` in `root/imagenet` or in `root`, as torchvision lays them out.

    The official validation images are the test split, as in the paper; the validation split is 1% of each training
    class, drawn from the seed. ImageNet cannot be downloaded without an account; `download` only unpacks the official
    archives if they are there. Classes are in the order of their WordNet ids, as in all published checkpoints.
    """
    folder = next((place for place in (root / "imagenet", root) if (place / "train").is_dir()), None)
    if folder is None and options.download:
        folder = unpacked(root)
    if folder is None or not (folder / "val").is_dir():
        raise ValueError(
            f"imagenet: folders train and val not found in {root / 'imagenet'} or {root}; "
            "put them there, or put the official archives there and pass --download to unpack them"
        )
    options = replace(
        options,
        val_fraction=IMAGENET_VAL_FRACTION if options.val_fraction is None else options.val_fraction,
        image_size=224 if options.image_size is None else options.image_size,
    )
    return read_folder("imagenet", folder, options, IMAGENET)


def unpacked(root: Path) -> Path | None:
    """Unpacks the official archives with torchvision, if they are there; returns the folder."""
    from torchvision import datasets  # slow to import, and few runs need it

    for place in (root / "imagenet", root):
        if (place / "ILSVRC2012_img_train.tar").is_file():
            with refused("imagenet", place, download=True):
                for split in ("train", "val"):
                    datasets.ImageNet(str(place), split=split)
            return place
    return None


def load_tiny_imagenet(root: Path, options: Options) -> Source:
    """`root/tiny-imagenet-200` as distributed. The last 50 training images of each class, by the number in the file
    name, are the validation split (90,000 + 10,000); the official validation images are the test split."""
    folder = root / TINY_FOLDER
    if options.download and not (folder / "train").is_dir():
        from torchvision.datasets.utils import download_and_extract_archive

        with refused("tiny-imagenet", root, download=True):
            download_and_extract_archive(TINY_URL, str(root), md5=TINY_MD5)
    if not (folder / "train").is_dir() or not (folder / "val" / "val_annotations.txt").is_file():
        raise missing("tiny-imagenet", [folder / "train", folder / "val" / "val_annotations.txt"])
    classes = class_names("tiny-imagenet", folder / "train")
    listed, odd, others = list_images("tiny-imagenet", folder / "train", classes)
    train = listed.take(by_number(listed))
    found = {"train": train, "test": annotated(folder / "val", classes)}

    def last_of_each(labels: Mapping[str, Tensor]) -> Division:
        kept, val = hold_out_last(labels["train"], TINY_VAL)
        return Division(("train", kept), ("train", val), ("test", torch.arange(len(labels["test"]))))

    notes = [f"val is the last {TINY_VAL} training images of each class, test the official validation images"]
    if len(train) != TINY_TRAIN:
        notes.append(f"found {len(train):,} training images of the {TINY_TRAIN:,} that are distributed")
    notes += left_out([file for file in others if not file.endswith("_boxes.txt")])  # part of the distribution
    return assemble("tiny-imagenet", found, classes, last_of_each, options, strangers=odd, notes=tuple(notes))


def by_number(pictures: ImageFiles) -> Tensor:
    """Sorts by class and then by the number at the end of the name: n01443537_9 before n01443537_10."""

    def key(index: int) -> tuple[int, int, str]:
        name = pictures.where(index)
        number = re.search(r"(\d+)\.[^.]*$", name)
        return int(pictures.labels[index]), int(number[1]) if number else -1, name

    return torch.tensor(sorted(range(len(pictures)), key=key), dtype=torch.long)


def annotated(folder: Path, classes: tuple[str, ...]) -> ImageFiles:
    """The official validation images, with the classes of `val_annotations.txt`."""
    index = {name: label for label, name in enumerate(classes)}
    paths, labels, unknown = [], [], []
    for line in (folder / "val_annotations.txt").read_text().splitlines():
        file, _, rest = line.partition("\t")
        name = rest.partition("\t")[0]
        if name not in index:
            unknown.append(f"{folder / 'images' / file}: {name!r}")
            continue
        paths.append(str(folder / "images" / file))
        labels.append(index[name])
    if unknown:
        listed = first_few(unknown, "\n  ")
        raise ValueError(f"tiny-imagenet: expected the {len(classes)} classes of train, got others:\n  {listed}")
    return ImageFiles(paths, torch.tensor(labels, dtype=torch.long))
