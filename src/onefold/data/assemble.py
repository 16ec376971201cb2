"""Turns the images that were found into the three splits of a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from onefold.data.holdout import Division
from onefold.data.options import Options, Progress
from onefold.data.pictures import Pictures, opened
from onefold.data.remember import remembered_scan
from onefold.data.scan import all_sizes, oddities, refuse_unreadable
from onefold.data.source import Source, check_classes, from_arrays, from_pictures
from onefold.data.split import Arrays, check_range
from onefold.data.statistics import Statistics

MEMORY = 2 * 1024**3  # bytes of pixels up to which a set is decoded once and kept in memory: TinyImageNet has 1.35e9


def assemble(
    name: str,
    found: Mapping[str, Pictures],
    classes: tuple[str, ...],
    divide: Callable[[Mapping[str, Tensor]], Division],
    options: Options,
    *,
    strangers: Sequence[str] = (),
    statistics: Statistics | None = None,
    notes: tuple[str, ...] = (),
) -> Source:
    """Scans every image, refuses or skips unusable ones, and splits the rest; keeps pixels in memory if they fit."""
    for split, pictures in found.items():
        if not len(pictures):
            raise ValueError("; ".join([f"{name}: expected images in {split}, got none", *notes]))
        check_range(pictures.labels, classes, pictures.where)
    pixels = options.image_size is None and expected_bytes(list(found.values())) <= MEMORY
    total, before = sum(len(pictures) for pictures in found.values()), 0
    scans = {}
    for split, pictures in found.items():
        scans[split] = remembered_scan(pictures, pixels, shifted(options.progress, before, total))
        before += len(pictures)
    problems = [*strangers, *(problem for result in scans.values() for problem in result.problems)]
    notes = (*notes, *refuse_unreadable(name, problems, options.skip_unreadable))
    for split, result in scans.items():
        if not len(result.readable):
            raise ValueError(f"{name}: expected readable images in {split}, got none")
    labels = {split: found[split].labels[result.readable] for split, result in scans.items()}
    check_classes(name, labels["all" if "all" in labels else "train"], classes)
    train, val, test, how = divide(labels)
    notes = (*notes, *oddities(list(scans.values())), *how)
    sizes = all_sizes(list(scans.values()))
    if pixels and len(sizes) == 1:

        def arrays(part: tuple[str, Tensor]) -> Arrays:
            split, indices = part
            kept = scans[split].pixels
            assert kept is not None, "a scan with pixels and one size keeps them"
            return Arrays(kept, labels[split]).take(indices)

        return from_arrays(name, arrays(train), arrays(val), arrays(test), classes, notes=notes)

    def streamed(part: tuple[str, Tensor]) -> Pictures:
        split, indices = part
        return found[split].take(scans[split].readable[indices])

    return from_pictures(
        name,
        streamed(train),
        streamed(val),
        streamed(test),
        classes,
        sizes,
        image_size=options.image_size,
        statistics=statistics,
        notes=notes,
    )


def shifted(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Reports progress within one split as progress over all splits."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def expected_bytes(splits: Sequence[Pictures]) -> float:
    """The size of the decoded images, if all have the size of the first that can be opened."""
    total = sum(len(pictures) for pictures in splits)
    for pictures in splits:
        for index in range(min(len(pictures), 100)):
            try:
                with pictures.open(index) as file:
                    image = opened(file)
                    return 3.0 * image.width * image.height * total
            except Exception:  # the scan will report what is wrong with it
                continue
    return 0.0
