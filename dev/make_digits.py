"""Writes src/onefold/data/digits.npz from scikit-learn's copy of the UCI hand-written digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).parents[1] / "src" / "onefold" / "data" / "digits.npz"


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images `[1797, 8, 8]` in 0..255 and labels `[1797]`, in a fixed random order."""
    given = load_digits()
    order = np.random.default_rng(0).permutation(len(given.target))
    x = np.rint(given.images[order] * (255 / 16)).astype(np.uint8)
    return x, given.target[order].astype(np.uint8)


if __name__ == "__main__":
    x, y = digits()
    np.savez_compressed(TARGET, x=x, y=y)
    print(f"{TARGET}: {len(y)} images, {TARGET.stat().st_size} bytes")
