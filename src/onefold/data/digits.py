"""The data set inside the package: hand-written digits, 8 x 8, for the demo and for tests.

Optical Recognition of Handwritten Digits by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, 1998,
doi:10.24432/C50P49, licensed under CC BY 4.0. The 1,797 images of its test part, as scikit-learn distributes them;
changed here: the 17 grey levels are scaled to 0..255 and the order is shuffled once. `dev/make_digits.py` writes it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import torch

from onefold.data.options import Options
from onefold.data.source import Source, from_arrays
from onefold.data.split import Arrays

TRAIN, VAL = 400, 200  # few to learn from; 1,197 remain for the test


def load_digits(root: Path | None = None, options: Options | None = None) -> Source:  # noqa: ARG001
    """400 images for training, 200 for validation, 1,197 for test, in the order of the file.

    The file is part of the package, so `root` is not used. It is shuffled already, so that the split does not depend
    on any library's random numbers.
    """
    with resources.files("onefold.data").joinpath("digits.npz").open("rb") as file, np.load(file) as arrays:
        x = torch.from_numpy(arrays["x"])[:, None]  # [1797, 1, 8, 8]
        y = torch.from_numpy(arrays["y"]).long()
    every = Arrays(x, y)
    train, val, test = torch.arange(len(every)).tensor_split((TRAIN, TRAIN + VAL))
    classes = tuple(str(digit) for digit in range(10))
    return from_arrays("digits", every.take(train), every.take(val), every.take(test), classes, flip=False)
