"""From images as they were found to the three splits of a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from onefold.data.holdout import hold_out
from onefold.data.pictures import Pictures, opened
from onefold.data.remember import remembered_scan
from onefold.data.scan import all_sizes, oddities, refuse_unreadable, scan
from onefold.data.source import Source, from_arrays, from_pictures
from onefold.data.split import Arrays, check_range
from onefold.data.statistics import Statistics

MEMORY = 2 * 1024**3  # bytes of pixels up to which a set is decoded once and kept: TinyImageNet takes 1.35e9

Part = TypeVar("Part", Arrays, Pictures)
# Found splits to train, val and test, and sentences that say how.
Divide = Callable[[Mapping[str, Part]], tuple[Part, Part, Part, tuple[str, ...]]]


def assemble(
    name: str,
    found: Mapping[str, Pictures],
    classes: tuple[str, ...],
    divide: Dividing,
    *,
    strangers: Sequence[str] = (),
    skip_unreadable: bool = False,
    image_size: int | None = None,
    statistics: Statistics | None = None,
    notes: tuple[str, ...] = (),
) -> Source:
    """Looks at every image, refuses or leaves out what cannot be used, divides the rest; in memory where it fits."""
    for split, pictures in found.items():
        if not len(pictures):
            raise ValueError(f"{name}: expected images in {split}, got none")
        check_range(pictures.labels, classes, pictures.where)
    pixels = image_size is None and expected_bytes(list(found.values())) <= MEMORY
    look = scan if pixels else remembered_scan
    scans = {split: look(pictures, pixels) for split, pictures in found.items()}
    problems = [*strangers, *(problem for result in scans.values() for problem in result.problems)]
    notes = (*notes, *refuse_unreadable(name, problems, skip_unreadable))
    for split, result in scans.items():
        if not len(result.readable):
            raise ValueError(f"{name}: expected readable images in {split}, got none")
    sizes = all_sizes(list(scans.values()))
    notes = (*notes, *oddities(list(scans.values())))
    if len(sizes) == 1 and pixels:
        arrays = {}
        for split, result in scans.items():
            assert result.pixels is not None
            arrays[split] = Arrays(result.pixels, found[split].labels[result.readable])
        train, val, test, how = divide(arrays)
        return from_arrays(name, train, val, test, classes, notes=(*notes, *how))
    usable = {split: found[split].take(result.readable) for split, result in scans.items()}
    streams = divide(usable)
    return from_pictures(
        name, *streams[:3], classes, sizes, image_size=image_size, statistics=statistics, notes=(*notes, *streams[3])
    )


def expected_bytes(splits: Sequence[Pictures]) -> float:
    """What the decoded images would take, if all were like the first that can be opened."""
    total = sum(len(pictures) for pictures in splits)
    for pictures in splits:
        for index in range(min(len(pictures), 100)):
            try:
                with pictures.open(index) as file:
                    image = opened(file)
                    return 3.0 * image.width * image.height * total
            except Exception:  # the scan will say what is wrong with it
                continue
    return 0.0
