"""How an image becomes a network's input in evaluation, described so that other programs can do the same."""

from __future__ import annotations

from typing import Any

from onefold.data.augment import Augmentation, ResizedCrop
from onefold.data.pictures import Pictures
from onefold.data.source import Source
from onefold.data.specs import READERS
from onefold.data.split import Arrays, Split
from onefold.data.view import View, transforms

MODES = {1: "L", 3: "RGB"}  # PIL's names


def preprocessing(split: Split, augment: Augmentation | None, mode: str | None = None) -> dict[str, Any]:
    """The steps in order; empty for features, and for a `Dataset` whose own transforms do everything.

    mode: the colour mode that images are converted to; None if they keep their channels.
    resize: the length to which the shorter side is scaled, with this interpolation; None if the size is kept.
    center_crop: the (H, W) that is cut from the centre.
    divide_by: what uint8 pixels are divided by; 1 for floats, which keep their values.
    """
    known = isinstance(split, Arrays | Pictures) or isinstance(augment, ResizedCrop)
    if not known or (isinstance(split, Arrays) and split.x.dim() != 4):
        return {}
    size = augment.size if isinstance(augment, ResizedCrop) else None
    floats = isinstance(split, Arrays) and not split.images
    return steps(size, mode, 1 if floats else 255)


def steps(size: int | None, mode: str | None, divide_by: int = 255) -> dict[str, Any]:
    """`size` is that of a `ResizedCrop`; None if images keep their size."""
    crop = None if size is None else ResizedCrop(size)
    return {
        "mode": mode,
        "resize": None if crop is None else crop.shorter_side,
        "interpolation": None if crop is None else "bilinear",
        "antialias": None if crop is None else True,
        "center_crop": None if crop is None else [crop.size, crop.size],
        "divide_by": divide_by,
    }


def of_source(source: Source) -> dict[str, Any]:
    """The steps for a source's test images; the channels of a user's own arrays may mean anything."""
    floats = isinstance(source.train, Arrays) and not source.train.images
    mode = None if floats or source.name.startswith("npz:") else MODES.get(source.channels)
    return preprocessing(source.train, source.augment, mode)


def of_name(data: str, channels: int, image_size: list[int]) -> dict[str, Any] | None:
    """The steps for a data set that has its own name, for runs that do not record them; None for other data."""
    if data not in READERS:
        return None
    return steps(image_size[0] if data == "imagenet" else None, MODES.get(channels))


def view_from(described: dict[str, Any]) -> View | None:
    """The transform of an image before it is batched, if its size changes."""
    if not described.get("resize"):
        return None
    v2 = transforms()
    view: View = v2.Compose([v2.Resize(described["resize"]), v2.CenterCrop(described["center_crop"])])
    return view
