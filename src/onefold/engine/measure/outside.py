"""Out-of-distribution images as inputs of a run's network, preprocessed as its own test images are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from onefold.data import Arrays, Loader, StreamLoader, loader_for
from onefold.data.folder import split_folders
from onefold.data.outside import folder_of, outside
from onefold.data.place import found_again, place_of
from onefold.data.preprocessing import view_from
from onefold.data.specs import SCALED
from onefold.data.view import transforms
from onefold.engine.measure.inputs import RunData, batch_size, fitted
from onefold.engine.measure.subject import Subject

Tell = Callable[[str], None]


def scaling(subject: Subject, data: RunData) -> dict[str, Any]:
    """The preprocessing of the run's test images, if they are scaled and cropped; else empty."""
    kind = subject.recipe.data.source.partition(":")[0]
    steps = data.preprocessing() if subject.images and kind in SCALED else {}
    return steps if steps.get("resize") else {}


def outside_batches(
    subject: Subject, spec: str, data: RunData, steps: dict[str, Any], tell: Tell | None = None
) -> tuple[int, Callable[[], Iterator[Tensor]]]:
    """The number of images in an out-of-distribution set, and a function that gives batches in the network's size.

    `steps` is the run's `scaling`. A run whose own images all have the network's size says nothing about others: they
    are scaled to that size without keeping their proportions.
    """
    check_other(subject, spec, data)
    given: dict[str, Any] = {"download": data.options.download, "skip_unreadable": data.options.skip_unreadable}
    split = outside(spec, Path(data.root), progress=data.progress, tell=tell, **given)
    count = len(split)  # type: ignore[arg-type]
    if isinstance(split, Arrays) and (split.x.dim() == 4) != subject.images:
        raise ValueError(
            f"ood: expected examples like those of the run, of shape {list(subject.image_size)}, got "
            f"{list(split.x.shape[1:])} in {spec}"
        )
    view = view_from(steps)
    if isinstance(split, Arrays) and view is None:
        loader: Loader = loader_for(split, batch_size(subject), train=False, device=subject.device)
    else:
        view = view or transforms().Resize(subject.image_size, antialias=True)
        place: dict[str, Any] = {"device": subject.device, "workers": data.workers}
        loader = StreamLoader(split, batch_size(subject), view=view, **place)
    return count, lambda: (fitted(x, subject) for x, _ in loader.batches())


def check_other(subject: Subject, spec: str, data: RunData) -> None:
    """Refuses the run's own data, which are what the others are told from."""
    own = found_again(subject.recipe.data.source, subject.about.get("data_place"))
    same = spec == own or (place_of(spec) is not None and place_of(spec) == place_of(own))
    folder = folder_of(spec, data.root)
    if own.startswith("folder:") and folder is not None:
        place, one = Path(str(place_of(own))), folder.resolve()
        others = [each.resolve() for each in split_folders(place).values()] if place.is_dir() else []
        same |= any(one.is_relative_to(each) or each.is_relative_to(one) for each in others)
    if same:
        raise ValueError(f"{spec} has images of the run's own data, {own}; give images of another kind")
