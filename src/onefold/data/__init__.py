"""Data sources, checks before they are used, and loaders of batches: images in [0, 1] `[B, C, H, W]`."""

from __future__ import annotations

from onefold.data.augment import Augmentation, CropFlip, Draws, ResizedCrop, crop_and_flip, draw
from onefold.data.corrupt import CORRUPTIONS, EXTRA, Corrupted, corrupt, published
from onefold.data.describe import describe, rows
from onefold.data.given import GivenLoader
from onefold.data.loader import DeviceLoader, Loader, loader_for
from onefold.data.pictures import ImageFiles, Pictures
from onefold.data.source import Source, beyond_pixels, from_arrays
from onefold.data.specs import KINDS, READERS, load
from onefold.data.split import Arrays, Split, as_split, labels_of, targets_of
from onefold.data.statistics import Statistics, statistics_of
from onefold.data.stream import StreamLoader

__all__ = [
    "CORRUPTIONS",
    "EXTRA",
    "KINDS",
    "READERS",
    "Arrays",
    "Augmentation",
    "Corrupted",
    "CropFlip",
    "DeviceLoader",
    "Draws",
    "GivenLoader",
    "ImageFiles",
    "Loader",
    "Pictures",
    "ResizedCrop",
    "Source",
    "Split",
    "Statistics",
    "StreamLoader",
    "as_split",
    "beyond_pixels",
    "corrupt",
    "crop_and_flip",
    "describe",
    "draw",
    "from_arrays",
    "labels_of",
    "load",
    "loader_for",
    "published",
    "rows",
    "statistics_of",
    "targets_of",
]
