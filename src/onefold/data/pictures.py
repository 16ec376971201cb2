"""Images that are decoded on access, always to RGB."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Self

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

if TYPE_CHECKING:
    from PIL import Image

# Modes whose values PIL silently clips or truncates when it converts to eight bits.
DEEP_MODES = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")
# The marker near the end of a complete file, and how near. A truncated file still has a valid header.
ENDINGS = {"JPEG": (b"\xff\xd9", 64), "PNG": (b"IEND", 16)}


class Unreadable(ValueError):
    """An image that cannot be read; the message names its file."""


class Pictures(Dataset[tuple["Image.Image", int]], abc.ABC):
    """Encoded images with labels `[N]`; a subclass knows where image i is and how to read its bytes."""

    labels: Tensor

    @abc.abstractmethod
    def where(self, index: int) -> str:
        """The name by which a user finds image `index`."""

    @abc.abstractmethod
    def open(self, index: int) -> BinaryIO:
        """The encoded image, positioned at its start."""

    @abc.abstractmethod
    def take(self, indices: Tensor) -> Self:
        """The images at `indices`, in that order."""

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        try:
            with self.open(index) as file:
                image = decoded(opened(file))
        except Exception as error:  # whatever the decoder raises, name the file
            raise Unreadable(f"{self.where(index)} cannot be read: {error}; fix or remove it and run again") from error
        return image, int(self.labels[index])


class ImageFiles(Pictures):
    """Image files. The paths are a single array of bytes, which workers share instead of copying a million strings."""

    def __init__(self, paths: Sequence[str] | np.ndarray[Any, Any], labels: Tensor) -> None:
        self.paths = paths if isinstance(paths, np.ndarray) else np.array([os.fsencode(path) for path in paths])
        self.labels = labels.long()

    def where(self, index: int) -> str:
        return os.fsdecode(bytes(self.paths[index]))

    def open(self, index: int) -> BinaryIO:
        return open(bytes(self.paths[index]), "rb")

    def take(self, indices: Tensor) -> ImageFiles:
        return ImageFiles(self.paths[indices.numpy()], self.labels[indices])


def opened(file: BinaryIO) -> Image.Image:
    """Opens an image and reads its header; refuses images with more than eight bits per channel."""
    from PIL import Image, UnidentifiedImageError  # many runs have no image files

    if not file.seek(0, os.SEEK_END):
        raise ValueError("it is empty (0 bytes)")
    file.seek(0)
    try:
        image = Image.open(file)
    except UnidentifiedImageError:  # its message names a Python object
        raise ValueError("it is not an image") from None
    if image.mode in DEEP_MODES:
        raise ValueError(f"its pixels have more than 8 bits (mode {image.mode})")
    return image


def check_ending(file: BinaryIO, image: Image.Image) -> None:
    """Refuses a truncated file, without decoding it."""
    mark, reach = ENDINGS.get(image.format or "", (b"", 0))
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - reach))
    if mark not in file.read():
        raise ValueError(f"it is truncated: the end of a {image.format} file is missing")


def decoded(image: Image.Image) -> Image.Image:
    """The whole image, as RGB."""
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # otherwise PIL warns
    rgb: Image.Image = image.convert("RGB")
    return rgb
