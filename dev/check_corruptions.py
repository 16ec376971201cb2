"""Compares corruptions with OpenCV, scikit-image, SciPy, Pillow and ImageMagick, which made the published benchmark.

    pip install opencv-python-headless scikit-image scipy
    python dev/check_corruptions.py [--convert convert] [--through pnm] [--raw] [--sides 32 64 224] [--images 20]

Computes each corruption with `corrupt` and with those libraries, following the benchmark's definition step by step with
the same random numbers. Prints, for each severity, the share of bytes that are equal, the share that differ by more
than one, and the largest difference. Frost has no counterpart, and shot_noise and impulse_noise draw their random
numbers differently from NumPy; for these, the tests compare distributions.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from onefold.data.corrupt import corrupt
from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.severities import constants

# Not dependencies of the project, and untyped.
cv2, ndimage, color, filters = (
    importlib.import_module(name) for name in ("cv2", "scipy.ndimage", "skimage.color", "skimage.filters")
)
hsv2rgb, rgb2hsv, gaussian = color.hsv2rgb, color.rgb2hsv, filters.gaussian
Array = np.ndarray[Any, np.dtype[Any]]
SEED = 3
CONVERT = ["convert"]
THROUGH = ["pnm"]
SLACK = [1e-3]  # values this close below an integer count as that integer


def pictures(count: int, side: int) -> Array:
    """uint8 `[N, H, W, 3]`: coloured blobs with edges, gradients and a little noise."""
    numbers = np.random.default_rng(side)
    coarse = numbers.integers(0, 256, (count, 5, 5, 3)).astype(np.float64)
    zoom = (1, side / 5, side / 5, 1)
    smooth, blocks = (ndimage.zoom(coarse, zoom, order=order) for order in (1, 0))
    mixed = np.where(numbers.random((count, 1, 1, 1)) < 0.5, smooth, blocks)
    found: Array = np.clip(mixed[:, :side, :side] + numbers.normal(0, 6, (count, side, side, 3)), 0, 255).astype(
        np.uint8
    )
    return found


def drawn(values: torch.Tensor) -> Array:
    """The random numbers of an image, in float64."""
    found: Array = values[0].double().numpy()
    return found


def bytes_of(image: Array) -> Array:
    """Clips as the benchmark does."""
    return np.clip(image, 0, 1).astype(np.float64) * 255


def gaussian_noise(x: Array, draws: Draws, deviation: float) -> Array:
    return bytes_of(x / 255 + deviation * drawn(draws.normal(3, *x.shape[:2])).transpose(1, 2, 0))


def speckle_noise(x: Array, draws: Draws, deviation: float) -> Array:
    noise = drawn(draws.normal(3, *x.shape[:2])).transpose(1, 2, 0)
    return bytes_of(x / 255 + x / 255 * deviation * noise)


def gaussian_blur(x: Array, draws: Draws, deviation: float) -> Array:  # noqa: ARG001
    return bytes_of(gaussian(x / 255, sigma=deviation, channel_axis=-1))


def defocus_blur(x: Array, draws: Draws, radius: float, alias_blur: float) -> Array:  # noqa: ARG001
    places = np.arange(-8, 9) if radius <= 8 else np.arange(-radius, radius + 1)
    size = 3 if radius <= 8 else 5
    across, down = np.meshgrid(places, places)
    disk = np.array(across**2 + down**2 <= radius**2, dtype=np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (size, size), sigmaX=alias_blur)
    return bytes_of(np.stack([cv2.filter2D(x[..., c] / 255, -1, kernel) for c in range(3)], axis=-1))


def glass_blur(x: Array, draws: Draws, deviation: float, reach: float, rounds: float) -> Array:
    x = (gaussian(x / 255, sigma=deviation, channel_axis=-1) * 255 + SLACK[0]).astype(np.uint8)
    (height, width), far = x.shape[:2], int(reach)
    for _ in range(int(rounds)):
        moves = draws.integers(-far, far, 2, height, width)[0].numpy()
        for h in range(height - far, far, -1):
            for w in range(width - far, far, -1):
                dx, dy = int(moves[0, h, w]), int(moves[1, h, w])
                # As in the benchmark's code: views make this copy the neighbour, which itself stays the same.
                x[h, w], x[h + dy, w + dx] = x[h + dy, w + dx], x[h, w]
    return bytes_of(gaussian(x / 255, sigma=deviation, channel_axis=-1))


def magick(x: Array, radius: float, deviation: float, angle: float) -> Array:
    """ImageMagick's motion blur of bytes `[H, W]` or `[H, W, 3]`."""
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "a.png"), Path(folder, f"b.{THROUGH[0]}")
        Image.fromarray(x).save(before)
        blur = f"{radius}x{deviation}{angle:+.10f}"
        subprocess.run([*CONVERT, str(before), "-motion-blur", blur, str(after)], check=True)
        return np.asarray(Image.open(after).convert("L" if x.ndim == 2 else "RGB"))


def motion_blur(x: Array, draws: Draws, radius: float, deviation: float) -> Array:
    angle = float(draws.uniform(-45, 45, 1)[0, 0])
    return magick(x, radius, deviation, angle).astype(np.float64)


def clipped_zoom(image: Array, factor: float) -> Array:
    """Zooms the centre of `[H, W]` or `[H, W, 3]` to the image's size."""
    height, width = image.shape[:2]
    high, wide = int(np.ceil(height / factor)), int(np.ceil(width / factor))
    top, left = (height - high) // 2, (width - wide) // 2
    middle = image[top : top + high, left : left + wide]
    zoomed = ndimage.zoom(middle, (factor, factor, *[1] * (image.ndim - 2)), order=1)
    above, before = (zoomed.shape[0] - height) // 2, (zoomed.shape[1] - width) // 2
    found: Array = zoomed[above : above + height, before : before + width]
    return found


def zoom_blur(x: Array, draws: Draws, end: float, step: float) -> Array:  # noqa: ARG001
    image = (x / 255).astype(np.float32)
    factors = np.arange(1, end, step)
    return bytes_of((image + sum(clipped_zoom(image, factor) for factor in factors)) / (len(factors) + 1))


def snow(x: Array, draws: Draws, *strength: float) -> Array:
    mean, deviation, zoom, threshold, radius, motion, kept = strength
    layer = clipped_zoom(mean + deviation * drawn(draws.normal(1, *x.shape[:2]))[0], zoom)
    layer[layer < threshold] = 0
    angle = float(draws.uniform(-135, -45, 1)[0, 0])
    flakes = magick((np.clip(layer, 0, 1) * 255 + 1e-6).astype(np.uint8), radius, motion, angle)[..., None] / 255
    image = (x / 255).astype(np.float32)
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]
    image = kept * image + (1 - kept) * np.maximum(image, grey * 1.5 + 0.5)
    return bytes_of(image + flakes + np.rot90(flakes, k=2))


def brightness(x: Array, draws: Draws, summand: float) -> Array:  # noqa: ARG001
    image = rgb2hsv(x / 255)
    image[..., 2] = np.clip(image[..., 2] + summand, 0, 1)
    return bytes_of(hsv2rgb(image))


def saturate(x: Array, draws: Draws, factor: float, summand: float) -> Array:  # noqa: ARG001
    image = rgb2hsv(x / 255)
    image[..., 1] = np.clip(image[..., 1] * factor + summand, 0, 1)
    return bytes_of(hsv2rgb(image))


def contrast(x: Array, draws: Draws, factor: float) -> Array:  # noqa: ARG001
    mean = np.mean(x / 255, axis=(0, 1), keepdims=True)
    return bytes_of((x / 255 - mean) * factor + mean)


def elastic_transform(x: Array, draws: Draws, height: float, deviation: float, reach: float) -> Array:
    image, (high, wide) = (x / 255).astype(np.float32), x.shape[:2]
    side = min(high, wide)
    middle, third = np.array([wide, high], np.float32) // 2, side // 3
    points = np.array([middle + third, [middle[0] + third, middle[1] - third], middle - third], np.float32)
    ends = (points + drawn(draws.uniform(-1, 1, 3, 2)) * (reach * side)).astype(np.float32)
    matrix = cv2.getAffineTransform(points, ends)
    image = cv2.warpAffine(image, matrix, (wide, high), borderMode=cv2.BORDER_REFLECT_101)
    if height:
        noise = drawn(draws.uniform(-1, 1, 2, high, wide))
        smooth = {"sigma": deviation * side, "mode": "reflect", "truncate": 3}
        across, down = (gaussian(each, **smooth) * (height * side) for each in noise)
        rows, columns = np.mgrid[:high, :wide]
        moved = [
            ndimage.map_coordinates(image[..., c], [rows + down, columns + across], order=1, mode="reflect")
            for c in range(3)
        ]
        image = np.stack(moved, axis=-1)
    return bytes_of(image)


def pixelate(x: Array, draws: Draws, factor: float) -> Array:  # noqa: ARG001
    height, width = x.shape[:2]
    small = Image.fromarray(x).resize((int(width * factor), int(height * factor)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX)).astype(np.float64)


def spatter(x: Array, draws: Draws, *strength: float) -> Array:
    mean, deviation, smoothing, threshold, amount, mud = strength
    image = (x / 255).astype(np.float32)
    liquid = gaussian(mean + deviation * drawn(draws.normal(*x.shape[:2])), sigma=smoothing)
    if mud:
        cover = gaussian((liquid > threshold).astype(np.float32), sigma=amount)[..., None]
        cover = np.where(cover < 0.8, 0, cover)
        return bytes_of(image * (1 - cover) + np.array([63, 42, 20]) / 255 * cover)
    layer = (np.where(liquid < threshold, 0, liquid) * 255 + 1e-6).astype(np.int64).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    relief = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, kernel)
    drops = layer * cv2.blur(relief, (3, 3)).astype(np.float32)
    drops = (drops / max(float(drops.max()), 1.0))[..., None]
    return bytes_of(image + amount * drops * np.array([175, 238, 238]) / 255)


CHECKED: tuple[Callable[..., Array], ...] = (
    gaussian_noise,
    speckle_noise,
    gaussian_blur,
    defocus_blur,
    glass_blur,
    motion_blur,
    zoom_blur,
    snow,
    brightness,
    saturate,
    contrast,
    elastic_transform,
    pixelate,
    spatter,
)


def compared(reference: Callable[..., Array], severity: int, images: Array) -> tuple[float, float, float]:
    """The shares of bytes that are equal and that differ by more than one, and the largest difference."""
    name = reference.__name__
    strength = constants(name, severity, *images.shape[1:3])
    ours = corrupt(torch.from_numpy(images).permute(0, 3, 1, 2), name, severity, SEED).permute(0, 2, 3, 1).numpy()
    theirs = np.stack(
        [
            np.floor(reference(x.copy(), Draws(SEED, f"{name} {severity}", torch.tensor([i])), *strength) + SLACK[0])
            for i, x in enumerate(images)
        ]
    )
    apart = np.abs(ours.astype(np.float64) - theirs)
    return float((apart == 0).mean()), float((apart > 1).mean()), float(apart.max())


def given(args: argparse.Namespace) -> Array:
    with np.load(args.npz) as arrays:
        found: Array = arrays["test_x"][: args.images]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convert", default="convert", help="ImageMagick's program")
    parser.add_argument("--through", choices=["pnm", "png"], default="pnm", help="files that ImageMagick writes")
    parser.add_argument("--raw", action="store_true", help="cut values as they come, however near to a whole number")
    parser.add_argument("--npz", help="file with uint8 images [N, H, W, 3] in test_x, instead of made ones")
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 64, 224])
    parser.add_argument("--images", type=int, default=20)
    args = parser.parse_args()
    CONVERT[:], THROUGH[:], SLACK[:] = [args.convert], [args.through], [0.0 if args.raw else SLACK[0]]
    print(f"OpenCV {cv2.__version__}; same / more than one apart / largest distance, severities 1 to 5")
    for side in args.sides if args.npz is None else [0]:
        images = pictures(args.images if side < 200 else max(2, args.images // 5), side) if side else given(args)
        for reference in CHECKED:
            found = [compared(reference, severity, images) for severity in range(1, 6)]
            shown = "  ".join(f"{100 * same:6.2f}% {100 * far:5.2f}% {most:3.0f}" for same, far, most in found)
            print(f"{images.shape[1]:>4} {reference.__name__:<18} {shown}", flush=True)


if __name__ == "__main__":
    main()
