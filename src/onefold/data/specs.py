"""Data sets by name."""

from __future__ import annotations

import difflib
from pathlib import Path

from onefold.data.cifar import LAYOUTS, load_cifar
from onefold.data.digits import load_digits
from onefold.data.folder import load_folder
from onefold.data.hub import load_hub
from onefold.data.imagenet import load_imagenet, load_tiny_imagenet
from onefold.data.npz import load_npz
from onefold.data.source import Source
from onefold.data.svhn import load_svhn

NAMES = ("cifar10", "cifar100", "svhn", "tiny-imagenet", "imagenet", "digits")
KINDS = ("folder", "npz", "hf")  # followed by a colon and a path or a name


def load(
    spec: str,
    root: Path | str = "data",
    *,
    download: bool = False,
    seed: int = 0,
    skip_unreadable: bool = False,
    val_fraction: float | None = None,
    image_size: int | None = None,
) -> Source:
    """The data set `spec` names: one of `NAMES` under `root`, or `folder:PATH`, `npz:PATH`, `hf:NAME`.

    `seed` decides splits that are held out, and nothing else: teachers and students of one ensemble must share it, or
    one is validated on what the other learned from. `val_fraction` is how much of train such a split takes (10%, of
    ImageNet 1%); the paper's splits of CIFAR and TinyImageNet and the one of the digits are fixed. `image_size` asks
    for images streamed at another size than they have. Nothing is fetched unless `download` says so.
    """
    kind, colon, rest = spec.partition(":")
    if colon and kind in KINDS and not rest:
        raise ValueError(f"data: expected {kind}:{'NAME' if kind == 'hf' else 'PATH'}, got {spec!r}")
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size: expected at least 1, got {image_size}")
    if val_fraction is not None and not 0 < val_fraction < 1:
        raise ValueError(f"val_fraction: expected a value between 0 and 1, got {val_fraction}")
    root = Path(root).expanduser()
    if image_size is not None and (spec in (*LAYOUTS, "svhn", "digits") or kind == "npz"):
        raise ValueError(f"image_size: {spec} is used at the size it has; leave image_size out")
    if colon and kind == "folder":
        return load_folder(
            spec,
            Path(rest).expanduser(),
            seed=seed,
            skip_unreadable=skip_unreadable,
            val_fraction=val_fraction,
            image_size=image_size,
        )
    if colon and kind == "npz":
        return load_npz(spec, Path(rest).expanduser(), seed=seed, val_fraction=val_fraction)
    if colon and kind == "hf":
        return load_hub(
            rest,
            download=download,
            seed=seed,
            skip_unreadable=skip_unreadable,
            val_fraction=val_fraction,
            image_size=image_size,
        )
    if spec in LAYOUTS:
        return load_cifar(spec, root, download=download)
    if spec == "svhn":
        return load_svhn(root, download=download, seed=seed, val_fraction=val_fraction)
    if spec == "tiny-imagenet":
        return load_tiny_imagenet(root, download=download, skip_unreadable=skip_unreadable, image_size=image_size)
    if spec == "imagenet":
        return load_imagenet(
            root,
            download=download,
            seed=seed,
            skip_unreadable=skip_unreadable,
            val_fraction=val_fraction,
            image_size=image_size,
        )
    if spec == "digits":
        return load_digits()
    raise unknown(spec)


def unknown(spec: str) -> ValueError:
    """A name nobody has, with the nearest one somebody has."""
    kind, colon, rest = spec.partition(":")
    if colon:
        near = [f"{name}:{rest}" for name in difflib.get_close_matches(kind, KINDS, n=1, cutoff=0.3)]
    else:
        near = difflib.get_close_matches(spec.lower().replace("_", "-"), NAMES, n=1, cutoff=0.4)
        near = near or ([f"folder:{spec}"] if Path(spec).expanduser().is_dir() else [])
    offer = f"; did you mean {near[0]}?" if near else ""
    return ValueError(f"data: expected {', '.join(NAMES)}, folder:PATH, npz:PATH or hf:NAME, got {spec!r}{offer}")
