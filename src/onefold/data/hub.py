"""Image classification sets from the Hugging Face hub: `hf:NAME` or `hf:NAME:CONFIG`, with the extra `datasets`."""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

import torch
from torch import Tensor

from onefold.data.assemble import assemble
from onefold.data.holdout import divide
from onefold.data.options import Options
from onefold.data.pictures import Pictures
from onefold.data.source import Source
from onefold.install import install

SPLITS = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}


def load_hub(spec: str, options: Options) -> Source:
    """Reads the image column and the class label column of a data set in the library's own cache.

    Missing splits are held out, depending on the seed; see `divide`. Without `download`, the network is not used.
    """
    name, _, config = spec.partition(":")
    library = import_datasets()
    with network(library, allowed=options.download):
        try:
            splits = library.load_dataset(name, config or None)
        except Exception as error:  # the library raises many unrelated types
            reason = " ".join(str(error).split())
            remedy = (
                "" if options.download else "; pass --download (download=True in Python) if it is not in the cache yet"
            )
            raise ValueError(f"hf:{spec}: the datasets library could not load it: {reason}{remedy}") from error
    known = {SPLITS[split]: rows for split, rows in splits.items() if split in SPLITS}
    if "train" not in known:
        raise ValueError(f"hf:{spec}: expected a split named train, got {', '.join(splits)}")
    features = known["train"].features
    image = column(spec, features, "Image")
    label = column(spec, features, "ClassLabel")
    # Not decoded here, so that the scan finds and names a broken image like a broken file.
    found = {
        split: HubImages(f"hf:{spec} {split}", rows.cast_column(image, library.Image(decode=False)), image, label)
        for split, rows in known.items()
    }
    hidden = [split for split, pictures in found.items() if bool((pictures.labels == -1).all())]
    notes = tuple(f"{split} has no labels and is not used" for split in hidden)
    found = {split: pictures for split, pictures in found.items() if split not in hidden}
    if len(found) == 1:
        found = {"all": found["train"]}
    by_seed = partial(divide, options=options)
    return assemble(f"hf:{spec}", found, tuple(features[label].names), by_seed, options, notes=notes)


def import_datasets() -> Any:
    """The `datasets` library, if it is installed."""
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise ValueError(
            f"hf:NAME needs the package datasets, which is not installed; run: {install('datasets')}"
        ) from None


@contextmanager
def network(library: Any, allowed: bool) -> Iterator[None]:
    """Puts the library offline unless a download was asked for: it contacts the hub even for cached data sets."""
    modules = [library.config, importlib.import_module("huggingface_hub.constants")]
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module, offline in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = offline or not allowed
        yield
    finally:
        for module, offline in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = offline


def column(spec: str, features: Mapping[str, Any], kind: str) -> str:
    """The name of the only column of a kind; if there are several, the first with a usual name."""
    fitting = [name for name, feature in features.items() if type(feature).__name__ == kind]
    usual = [name for name in ("image", "img", "label", "labels", "fine_label") if name in fitting]
    if len(fitting) == 1 or usual:
        return (usual or fitting)[0]
    got = ", ".join(fitting) or "none"
    raise ValueError(f"hf:{spec}: expected one column of type {kind}, got {got} among {', '.join(features)}")


class HubImages(Pictures):
    """Rows of a split, with undecoded images."""

    def __init__(self, name: str, rows: Any, image: str, label: str, indices: Tensor | None = None) -> None:
        self.name, self.rows, self.image, self.label = name, rows, image, label
        self.indices = torch.arange(len(rows)) if indices is None else indices
        self.labels = torch.tensor(rows[label][:])[self.indices]

    def where(self, index: int) -> str:
        return f"{self.name}[{int(self.indices[index])}]"

    def open(self, index: int) -> BinaryIO:
        given = self.rows[int(self.indices[index])][self.image]
        return io.BytesIO(given["bytes"]) if given["bytes"] is not None else open(given["path"], "rb")

    def take(self, indices: Tensor) -> HubImages:
        return HubImages(self.name, self.rows, self.image, self.label, self.indices[indices])
