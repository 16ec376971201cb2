"""The description of a data set that is shown before it is used."""

from __future__ import annotations

from onefold.data.source import Source
from onefold.data.split import Split, labels_of

NAMED = 20  # up to this many classes, each is counted by name


def rows(source: Source) -> list[tuple[str, str]]:
    """Rows of a table: splits with class counts, image size, channel statistics, notes."""
    classes = len(source.classes)
    names = ", ".join(source.classes[:NAMED]) + (", ..." if classes > NAMED else "")
    table = [("data", source.name), ("classes", f"{classes:,}: {names}")]
    table += [(name, counts(split, source.classes)) for name, split in source.splits.items()]
    if len(source.image_size) == 2:
        height, width = source.image_size
        table.append(("images", f"{width} x {height} pixels, {channels(source.channels)}"))
    else:
        table.append(("features", " x ".join(f"{size:,}" for size in source.image_size)))
    mean, std = source.statistics
    table += [("mean", values(mean)), ("deviation", values(std))]
    return table + [("note", note) for note in source.notes]


def describe(source: Source) -> str:
    """`rows` as text in two columns."""
    table = rows(source)
    width = max(len(name) for name, _ in table)
    indented = [(name, text.replace("\n", "\n" + " " * (width + 2))) for name, text in table]
    return "\n".join(f"{name:<{width}}  {text}" for name, text in indented)


def counts(split: Split, classes: tuple[str, ...]) -> str:
    """The number of examples, in all and per class."""
    labels = labels_of(split)
    if labels is None:
        return f"{len(split):,} examples" if hasattr(split, "__len__") else "examples not counted"
    each = labels.bincount(minlength=len(classes)).tolist()
    total = f"{len(labels):,} example{'s' * (len(labels) != 1)}"
    if min(each) == max(each):
        return f"{total}, {each[0]:,} of each class"
    if len(classes) <= NAMED:
        return f"{total}: " + ", ".join(f"{name} {count:,}" for name, count in zip(classes, each, strict=True))
    fewest, most = each.index(min(each)), each.index(max(each))
    return f"{total}, from {min(each):,} ({classes[fewest]}) to {max(each):,} ({classes[most]}) per class"


def channels(count: int) -> str:
    return "1 channel" if count == 1 else f"{count} channels"


def values(numbers: tuple[float, ...]) -> str:
    """Up to four numbers; of more, only the range."""
    if len(numbers) <= 4:
        return ", ".join(f"{number:g}" for number in numbers)
    return f"from {min(numbers):g} to {max(numbers):g}"
