"""A user's own arrays in a NumPy file: `npz:PATH`."""

from __future__ import annotations

import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onefold.data.holdout import divide
from onefold.data.options import Options
from onefold.data.source import Source, check_classes, from_arrays
from onefold.data.split import Arrays, check_range, first_few

Array = np.ndarray[Any, np.dtype[Any]]
NEEDED = ("train_x", "train_y", "test_x", "test_y")


def load_npz(given_path: str, options: Options) -> Source:
    """`train_x`, `train_y`, `test_x`, `test_y`, optionally `val_x`, `val_y` and `classes` (names, as strings).

    Images are uint8 `[N, H, W, C]` or `[N, C, H, W]`, distinguished by which axis is shorter, or `[N, H, W]` for grey
    ones. Floats keep their values: images in [0, 1] in the same layouts, or features `[N, F]`. Nothing is unpickled.
    Without val, 10% of each class of train is held out, depending on the seed.
    """
    name, path = f"npz:{given_path}", Path(given_path).expanduser()
    if not path.is_file():
        raise ValueError(f"{name}: expected a file with {', '.join(NEEDED)} at {path}, found none")
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{name}: expected an .npz file of plain arrays, got a file of another kind")
    try:
        with np.load(path, allow_pickle=False) as file:
            given = {key: file[key] for key in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"{name}: expected an .npz file of plain arrays, got one that NumPy cannot read: {error}"
        ) from error
    absent = [key for key in NEEDED if key not in given]
    if ("val_x" in given) != ("val_y" in given):
        absent.append("val_y" if "val_x" in given else "val_x")
    if absent:
        raise ValueError(f"{name}: expected {', '.join(NEEDED)}, missing {', '.join(absent)}; found {', '.join(given)}")
    arrays, notes = {}, []
    for split in ("train", "val", "test"):
        if f"{split}_x" in given:
            x, layout = as_examples(f"{split}_x", given[f"{split}_x"])
            arrays[split] = paired(split, x, as_labels(f"{split}_y", given[f"{split}_y"]))
            notes += [f"{split}_x read as {layout}"] if layout else []
    classes = class_names(given, arrays["train"].y)
    for split, part in arrays.items():
        check_range(part.y, classes, partial("{}, {}_y[{}]".format, path, split))
    if "classes" not in given:  # check here, where errors can refer to the indices of the file
        check_classes(name, arrays["train"].y, classes, "train_y[{}]".format)
    division = divide({split: part.y for split, part in arrays.items()}, options)
    train, val, test = (arrays[split].take(indices) for split, indices in division[:3])
    return from_arrays(name, train, val, test, classes, notes=(*notes, *division.notes))


def as_examples(key: str, array: Array) -> tuple[Tensor, str]:
    """The array as uint8 `[N, C, H, W]` or float32 `[N, ...]`, and the layout that was recognised."""
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        raise ValueError(
            f"{key}: expected uint8 images or floats, got {array.dtype}; convert it with astype, features to float32"
        )
    if array.dtype == np.uint8 and array.ndim == 3:
        return torch.from_numpy(array[:, None]), "grey images [N, H, W]"
    if array.ndim == 4:
        first, last = array.shape[1], array.shape[3]
        if first == last or min(first, last) > 4:
            raise ValueError(
                f"{key}: expected [N, C, H, W] or [N, H, W, C] with at most 4 channels, "
                f"got {list(array.shape)}, which leaves it open where the channels are"
            )
        images = array if first < last else np.ascontiguousarray(array.transpose(0, 3, 1, 2))
        return finite(key, images), "[N, C, H, W]" if first < last else "[N, H, W, C]"
    if array.dtype == np.uint8:
        raise ValueError(
            f"{key}: expected uint8 images of 3 or 4 axes, got {list(array.shape)}; give features as floats"
        )
    return finite(key, array), ""


def finite(key: str, array: Array) -> Tensor:
    """The array as a tensor, floats as float32; refused if values are not finite."""
    if array.dtype == np.uint8:
        return torch.from_numpy(array)
    values = torch.from_numpy(array.astype(np.float32))
    bad = (~values.flatten(1).isfinite().all(dim=1)).nonzero().flatten().tolist() if values.dim() > 1 else []
    if bad:
        raise ValueError(
            f"{key}: expected finite values, got NaN or infinite ones in {len(bad):,} examples: {first_few(bad)}; fix "
            "or remove them"
        )
    return values


def as_labels(key: str, array: Array) -> Tensor:
    """Labels `[N]`; `[N, 1]` is common enough to be accepted too."""
    if not np.issubdtype(array.dtype, np.integer) or (array.ndim != 1 and array.shape[1:] != (1,)):
        got, remedy = str(array.dtype), "convert them with astype(int)"
        if array.dtype.kind in "US":
            got, remedy = "names", "number the classes from 0, and put their names into `classes` in that order"
        elif array.ndim == 2:
            remedy = "if they are one-hot, convert them with argmax(axis=1)"
        raise ValueError(f"{key}: expected integer class indices [N], got {got} {list(array.shape)}; {remedy}")
    return torch.from_numpy(array.reshape(-1).astype(np.int64))


def paired(split: str, x: Tensor, y: Tensor) -> Arrays:
    try:
        return Arrays(x, y)
    except ValueError as error:
        raise ValueError(f"{split}_{error}") from None


def class_names(given: dict[str, Array], labels: Tensor) -> tuple[str, ...]:
    """The names in `classes`, or the numbers from 0 to the largest label of train."""
    if "classes" in given:
        return tuple(str(name) for name in given["classes"].tolist())
    if labels.max() < 0:
        raise ValueError(f"train_y: expected classes from 0 on, got labels from {labels.min()} to {labels.max()}")
    return tuple(str(label) for label in range(int(labels.max()) + 1))
