"""A data set in the form that the rest of the program uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_low

from torch import Tensor

from onefold.data.augment import Augmentation, CropFlip, ResizedCrop
from onefold.data.compare import check_scale, class_notes, looked_at, range_notes
from onefold.data.pictures import Pictures
from onefold.data.split import FEW, Arrays, Split, check_range, first_few, labels_of
from onefold.data.statistics import SAMPLE, Statistics, sampled, statistics_of

SMALL = 96  # pixels: streamed images with sides up to this keep their size
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Source:
    """Three splits and what is known about them."""

    name: str
    train: Split
    val: Split
    test: Split
    classes: tuple[str, ...]
    statistics: Statistics  # of the training split, for values in [0, 1]
    image_size: tuple[int, ...]  # (H, W) as the network sees it; (F,) for features
    augment: Augmentation | None  # suitable for training on these data
    notes: tuple[str, ...] = ()  # sentences about how the data were read

    @property
    def channels(self) -> int:
        """C, or F for features."""
        return len(self.statistics.mean)

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "val": self.val, "test": self.test}


def from_arrays(
    name: str,
    train: Arrays,
    val: Arrays,
    test: Arrays,
    classes: tuple[str, ...],
    *,
    flip: bool = True,
    notes: tuple[str, ...] = (),
) -> Source:
    """A source in memory. Images get the paper's crops (by an eighth of the side, at most 4 pixels), and flips if
    `flip`."""
    shape = tuple(train.x.shape[1:])
    if not train.images and not train.x.is_floating_point():
        raise ValueError(f"{name}: expected uint8 images or floats, got {train.x.dtype}; onefold.distill takes tokens")
    for split, arrays in (("train", train), ("val", val), ("test", test)):
        if tuple(arrays.x.shape[1:]) != shape or arrays.x.dtype != train.x.dtype:
            raise ValueError(
                f"{name}: expected every split to be like train, {train.x.dtype} {list(shape)}, "
                f"got {split} {arrays.x.dtype} {list(arrays.x.shape[1:])}"
            )
    splits = {"train": train, "val": val, "test": test}
    check_every_label(name, splits, classes)
    if not train.images:  # uint8 images have the same scale in all splits
        seen = {split: looked_at(arrays) for split, arrays in splits.items()}
        try:
            check_scale(seen)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        notes = (*notes, *range_notes(seen))
    notes = (*notes, *class_notes({split: arrays.y for split, arrays in splits.items()}, classes))
    augment = CropFlip(min(4, min(shape[1:]) // 8), flip) if train.images else None
    if len(shape) == 3 and not train.images:
        notes = (*notes, f"{train.x.dtype} images are used as they are: random crops and flips need uint8")
        if (ends := beyond_pixels(train)) is not None:
            notes = (
                *notes,
                f"images from {ends[0]:.3g} to {ends[1]:.3g} cannot be perturbed, because that needs values in [0, 1], "
                "or uint8: distill needs --distill.perturbation none",
            )
    size = shape[1:] if len(shape) > 1 else shape
    return Source(name, train, val, test, classes, statistics_of(train.x), size, augment, notes)


def beyond_pixels(train: Split) -> tuple[float, float] | None:
    """The range of float images that leave [0, 1], as normalised ones do, so that they cannot be perturbed."""
    if not isinstance(train, Arrays) or train.images or train.x.dim() != 4:
        return None
    low, high = (float(end) for end in train.x.aminmax())
    return (low, high) if low < 0 or high > 1 + ROUNDING else None


def from_pictures(
    name: str,
    train: Pictures,
    val: Pictures,
    test: Pictures,
    classes: tuple[str, ...],
    sizes: Counter[tuple[int, int]],
    *,
    image_size: int | None = None,
    statistics: Statistics | None = None,
    notes: tuple[str, ...] = (),
) -> Source:
    """A source that is streamed. Small images of a single size keep it and get the paper's crops and flips; others are
    cropped to squares of `image_size`, by default their median shorter side, at most 224."""
    splits = {"train": train, "val": val, "test": test}
    check_every_label(name, splits, classes)
    notes = (*notes, *class_notes({split: pictures.labels for split, pictures in splits.items()}, classes))
    if statistics is None:
        statistics = sampled(train)
        notes = (*notes, f"channel statistics from {min(SAMPLE, len(train)):,} of the training images")
    augment: Augmentation = CropFlip()
    size = max(sizes)
    if image_size is not None or len(sizes) > 1 or max(size) > SMALL:
        if image_size is None:
            image_size = min(224, median_low(min(size) for size in sizes.elements()))
        augment, size = ResizedCrop(image_size), (image_size, image_size)
        notes = (*notes, f"every image is scaled and cropped to {image_size} x {image_size}")
    return Source(name, train, val, test, classes, statistics, size, augment, notes)


def check_every_label(name: str, splits: Mapping[str, Split], classes: tuple[str, ...]) -> None:
    """Refuses labels outside the classes, saying where they are, and classes without training examples."""
    for split, examples in splits.items():
        labels = labels_of(examples)
        if labels is None:
            continue
        where = getattr(examples, "where", None) or (lambda index, split=split: f"{name} {split}[{index}]")
        check_range(labels, classes, where)
        if split == "train":
            check_classes(name, labels, classes)


def check_classes(
    name: str, labels: Tensor, classes: tuple[str, ...], where: Callable[[int], str] | None = None
) -> None:
    """Refuses fewer than two classes, and classes without training examples. With `where`, the number of classes comes
    from the largest label, which may be a typo, so the message says where that is."""
    if len(classes) < 2:
        raise ValueError(f"{name}: expected at least two classes, got {len(classes)}")
    missing = sorted(set(range(len(classes))) - set(labels.unique().tolist()))
    if missing:
        names, slip = first_few(missing, told=classes.__getitem__), "" if where is None else largest(labels, where)
        raise ValueError(
            f"{name}: expected training examples of every class, got none of {names}; "
            f"number classes from 0 without gaps, or drop those without examples{slip}"
        )


def largest(labels: Tensor, where: Callable[[int], str]) -> str:
    """A sentence on how many examples have the largest label, and where the first one is; empty if there are many."""
    label = int(labels.max())
    places = (labels == label).nonzero().flatten().tolist()
    if len(places) > FEW:
        return ""
    many = "examples have it, the first" if len(places) > 1 else "example has it,"
    return f". The largest label is {label}: {len(places)} {many} {where(places[0])}"
