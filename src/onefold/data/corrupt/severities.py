"""How strong each corruption is: the constants of the published benchmark, severity 1 to 5.

Three sets of constants were published, for images of 32 x 32 (CIFAR-10-C and CIFAR-100-C), 64 x 64 (TinyImageNet-C) and
224 x 224 (ImageNet-C). An image of another size gets the set whose side has the ratio closest to one to the shorter
side of the image: the first up to 45 pixels, the second up to 119, the third from 120 on. The constants are used as
they are; only elastic_transform's lengths and pixelate's factor are fractions of the side, as in the benchmark.
"""

from __future__ import annotations

import difflib

Constants = tuple[float, ...]
Levels = tuple[Constants, ...]  # one per severity

SIDES = (32, 64, 224)


def each(*values: float) -> Levels:
    """Levels with a single constant per severity."""
    return tuple((value,) for value in values)


# The three sets of each corruption, in the order of SIDES.
PUBLISHED: dict[str, tuple[Levels, Levels, Levels]] = {
    # deviation
    "gaussian_noise": (
        each(0.04, 0.06, 0.08, 0.09, 0.10),
        each(0.04, 0.08, 0.12, 0.15, 0.18),
        each(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    # photons for a white pixel
    "shot_noise": (each(500, 250, 100, 75, 50), each(250, 100, 50, 30, 15), each(60, 25, 12, 5, 3)),
    # share of the values that are replaced
    "impulse_noise": (
        each(0.01, 0.02, 0.03, 0.05, 0.07),
        each(0.01, 0.02, 0.05, 0.08, 0.14),
        each(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    # radius of the disk, deviation of the smoothing of its edge
    "defocus_blur": (
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # deviation of the blur, maximum move, rounds of moves
    "glass_blur": (
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    # radius, deviation
    "motion_blur": (
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    # end and step of the zoom factors, which start at 1
    "zoom_blur": (
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    ),
    # mean and deviation of the flakes, zoom, threshold, radius and deviation of their motion, weight of the image
    "snow": (
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    # weight of the image, weight of the frost, size of the frost
    "frost": (
        ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
        ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
    ),
    # weight of the fog, how fast its finer structure fades
    "fog": (
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # added to the value of HSV
    "brightness": (
        each(0.05, 0.1, 0.15, 0.2, 0.3),
        each(0.1, 0.2, 0.3, 0.4, 0.5),
        each(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    # remaining share of the distance to the mean
    "contrast": (
        each(0.75, 0.5, 0.4, 0.3, 0.15),
        each(0.4, 0.3, 0.2, 0.1, 0.05),
        each(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    # as fractions of the side: height and deviation of the displacements, maximum move of the affine map's points.
    # The published script for 224 uses fractions of 244.
    "elastic_transform": (
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ((0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        tuple(
            (244 / 224 * height, 244 / 224 * deviation, 244 / 224 * reach)
            for height, deviation, reach in (
                (2, 0.7, 0.1),
                (2, 0.08, 0.2),
                (0.05, 0.01, 0.02),
                (0.07, 0.01, 0.02),
                (0.12, 0.01, 0.02),
            )
        ),
    ),
    # fraction of the side that is kept
    "pixelate": (
        each(0.95, 0.9, 0.85, 0.75, 0.65),
        each(0.9, 0.8, 0.7, 0.6, 0.5),
        each(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    # quality
    "jpeg_compression": (each(80, 65, 58, 50, 40), each(65, 58, 50, 40, 25), each(25, 18, 15, 10, 7)),
    # deviation, as a fraction of the value
    "speckle_noise": (
        each(0.06, 0.1, 0.12, 0.16, 0.2),
        each(0.15, 0.2, 0.25, 0.3, 0.35),
        each(0.15, 0.2, 0.35, 0.45, 0.6),
    ),
    # deviation
    "gaussian_blur": (each(0.4, 0.6, 0.7, 0.8, 1), each(0.5, 0.75, 1, 1.25, 1.5), each(1, 2, 3, 4, 6)),
    # mean, deviation and smoothing of the liquid, threshold, strength of water or smoothing of mud, 0 water or 1 mud
    "spatter": (
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        (
            (0.62, 0.1, 0.7, 0.7, 0.6, 0),
            (0.65, 0.1, 0.8, 0.7, 0.6, 0),
            (0.65, 0.3, 1, 0.69, 0.6, 0),
            (0.65, 0.1, 0.7, 0.68, 0.6, 1),
            (0.65, 0.1, 0.5, 0.67, 0.6, 1),
        ),
        (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
    ),
    # factor and summand of the saturation of HSV
    "saturate": (
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ),
}

EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
CORRUPTIONS = tuple(name for name in PUBLISHED if name not in EXTRA)


def nearest_side(height: int, width: int) -> int:
    """The side of the published images whose constants an image of this size gets."""
    side = min(height, width)
    return min(SIDES, key=lambda known: max(side / known, known / side))


def constants(name: str, severity: int, height: int, width: int) -> Constants:
    """The constants of a corruption for an image of this size."""
    check_name(name)
    if isinstance(severity, bool) or not isinstance(severity, int) or not 1 <= severity <= 5:
        raise ValueError(f"severity: expected a whole number from 1 to 5, got {severity!r}")
    return PUBLISHED[name][SIDES.index(nearest_side(height, width))][severity - 1]


def check_name(name: str) -> None:
    if name in PUBLISHED:
        return
    near = difflib.get_close_matches(str(name).lower().replace(" ", "_").replace("-", "_"), PUBLISHED, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}" if near else f"choose one of {', '.join((*CORRUPTIONS, *EXTRA))}"
    raise ValueError(f"corruption: expected one of the {len(PUBLISHED)} of the benchmark, got {name!r}; {hint}")
