"""Data sets by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from onefold.data.cifar import load_cifar
from onefold.data.digits import load_digits
from onefold.data.folder import load_folder
from onefold.data.hub import load_hub
from onefold.data.imagenet import load_imagenet, load_tiny_imagenet
from onefold.data.npz import load_npz
from onefold.data.options import Options, Progress
from onefold.data.source import Source
from onefold.data.svhn import load_svhn

READERS: dict[str, Callable[[Path, Options], Source]] = {
    "cifar10": partial(load_cifar, "cifar10"),
    "cifar100": partial(load_cifar, "cifar100"),
    "svhn": load_svhn,
    "tiny-imagenet": load_tiny_imagenet,
    "imagenet": load_imagenet,
    "digits": load_digits,
}
KINDS: dict[str, tuple[str, Callable[[str, Options], Source]]] = {
    "folder": ("PATH", load_folder),
    "npz": ("PATH", load_npz),
    "hf": ("NAME", load_hub),
}
SCALED = ("tiny-imagenet", "imagenet", "folder", "hf")  # read image by image, and so available at any size


def load(
    spec: str,
    root: Path | str = "data",
    *,
    download: bool = False,
    seed: int = 0,
    skip_unreadable: bool = False,
    val_fraction: float | None = None,
    image_size: int | None = None,
    progress: Progress | None = None,
) -> Source:
    """The data set that `spec` names: one of `READERS` under `root`, or `folder:PATH`, `npz:PATH`, `hf:NAME`.

    `seed` determines which examples are held out, and nothing else: teachers and students of one ensemble must share
    it, or one is validated on what the other was trained on. `val_fraction` is the share of train that is held out for
    validation (10%, for ImageNet 1%); the paper's splits of CIFAR and TinyImageNet and that of the digits are fixed.
    `image_size` streams images at a size other than their own. Nothing is downloaded unless `download` is set.
    `progress` is called with the number of images checked so far.
    """
    options = Options(download, seed, skip_unreadable, val_fraction, image_size, progress)
    kind, colon, rest = spec.partition(":")
    if not (kind in KINDS if colon else kind in READERS):
        raise unknown(spec)
    if colon and not rest:
        raise ValueError(f"data: expected {kind}:{KINDS[kind][0]}, got {spec!r}")
    if image_size is not None and kind not in SCALED:
        raise ValueError(f"image_size: expected none, because {kind} is used at its own size, got {image_size}")
    if colon:
        return KINDS[kind][1](rest, options)
    return READERS[kind](Path(root).expanduser(), options)


def unknown(spec: str) -> ValueError:
    """The error for an unknown name, which suggests the closest known one."""
    kind, colon, rest = spec.partition(":")
    if colon:
        near = [f"{name}:{rest}" for name in difflib.get_close_matches(kind.lower(), KINDS, n=1, cutoff=0.3)]
    else:
        near = difflib.get_close_matches(spec.lower().replace("_", "-"), READERS, n=1, cutoff=0.5)
        near = near or ([f"folder:{spec}"] if Path(spec).expanduser().is_dir() else [])
        near = near or ([f"npz:{spec}"] if spec.endswith(".npz") else [])
    offer = f"; did you mean {near[0]}?" if near else ""
    return ValueError(f"data: expected {', '.join(READERS)}, folder:PATH, npz:PATH or hf:NAME, got {spec!r}{offer}")
