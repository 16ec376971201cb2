"""What goes into an exported network, and how images are preprocessed for it: as facts, in words and as code."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from onefold.data import ResizedCrop
from onefold.engine.measure.inputs import DataOptions, preprocessing_of, source_of
from onefold.recipe import from_dict
from onefold.run import RunFolder

CHANNELS = {"L": "grey", "RGB": "RGB"}  # PIL's modes


def input_of(run: RunFolder, about: dict[str, Any], example: Tensor) -> dict[str, Any]:
    """Shape, layout and preprocessing; `preprocessing` is None if it is not known, and empty if there is none."""
    shape = {"shape": list(example.shape[1:]), "dtype": str(example.dtype).removeprefix("torch.")}
    size = about.get("image_size")
    layout = "[B, ...]" if size is None else "[B, C, H, W]" if len(size) == 2 else "[B, F]"
    steps = steps_of(run, about)
    scaled = {"range": [0.0, 1.0]} if steps and steps["divide_by"] == 255 else {}
    return {"layout": layout} | shape | scaled | {"preprocessing": steps}


def steps_of(run: RunFolder, about: dict[str, Any]) -> dict[str, Any] | None:
    if "image_size" not in about:  # trained from Python
        return dict(about.get("preprocessing", {}))
    try:
        return preprocessing_of(about, lambda: source_of(from_dict(run.recipe).data, about, DataOptions()))
    except (ValueError, OSError):
        return None  # an older run, which does not record it, and its data are gone


def in_words(given: dict[str, Any]) -> str:
    """A sentence on the preprocessing of images; empty for other inputs."""
    steps = given["preprocessing"]
    if steps is None:
        return unknown(given["shape"])
    if not steps:
        return ""
    if steps["divide_by"] == 1:
        return "Images are floats, with values as in the data it was trained on."
    words = [f"converted to {CHANNELS[steps['mode']]}"] if steps["mode"] else []
    if steps["resize"]:
        how = f"{steps['interpolation']}, antialiased"
        high, wide = steps["center_crop"]
        words.append(f"scaled so that its shorter side is {steps['resize']} pixels ({how})")
        words.append(f"cropped to the {wide} x {high} pixels at its centre")
    words.append(f"divided by {steps['divide_by']}")
    listed = ", ".join(words[:-1]) + (" and " if words[1:] else "") + words[-1]
    high, wide = given["shape"][-2:]
    size = "of any size" if steps["resize"] else f"of {wide} x {high} pixels"
    return f"Each image, {size}, is {listed}."


def unknown(shape: list[int]) -> str:
    high, wide = shape[-2:]
    side = ResizedCrop(wide).shorter_side
    return (
        "The run does not record how images were brought to this size: it is from an older version of onefold, and its "
        f"data cannot be read now. If they had several sizes, each image was scaled so that its shorter side is {side} "
        f"pixels (bilinear, antialiased) and cropped to the {wide} x {high} pixels at its centre; if they all had this "
        "size, they were used as they were. Pixels of 8 bits were divided by 255."
    )


def in_code(given: dict[str, Any]) -> list[str]:
    """Lines of Python that turn images into inputs; none if their values are kept."""
    steps = given["preprocessing"]
    if not steps or steps["divide_by"] == 1:
        return []
    if steps["mode"] is None and not steps["resize"]:
        return ["import torch", "", "x = torch.from_numpy(images).float() / 255  # images: uint8, [B, C, H, W]"]
    lines = ["import torch", "from torchvision.transforms import v2", "", "steps = ["]
    if mode := steps["mode"]:
        lines.append(f'    v2.Lambda(lambda image: image.convert("{mode}")),')
    if steps["resize"]:
        how = f"v2.InterpolationMode.{steps['interpolation'].upper()}, antialias={steps['antialias']}"
        lines.append(f"    v2.Resize({steps['resize']}, {how}),")
        lines.append(f"    v2.CenterCrop({steps['center_crop']}),")
    lines += ["    v2.PILToTensor(),", "    v2.ToDtype(torch.float32, scale=True),  # divides by 255", "]"]
    lines += ["prepare = v2.Compose(steps)"]
    return [*lines, "x = torch.stack([prepare(image) for image in images])  # images: opened with PIL"]
