"""The compact form: predictions of 10,000 images and 100 classes in less than a megabyte, with the metrics they had.

Kept exactly, in float32, is what metrics look at: the log-probability of the label, of the class that is answered, and
of every class above 5%. Of the others, code = round(L p^(1/6)): the less probable, the coarser in log p. That alone
would move the rest of the probability, and with it confidences across the borders of bins; so every image has two
numbers of its own, a and b, that make log p = a + (1 + b) log q of decoded q and were chosen for the sum of p and the
sum of p^(1/T) to be the right ones, T being the temperature at which the predictions will be looked at.

    form            1
    levels          L
    labels [N]
    codes [N, K]    a code of 0 stands for an exact value
    exact [4, n]    the bytes of the exact values, row by row
    shift [N]       a
    slope [N]       b
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

FORM = 1
POWER = 6
EXACT = 0.05  # probability from which on a class is kept as it is
LEVELS = (256, 128, 64)  # the finest first; the codes of what is below 5% fit into a byte
STEEPEST = 0.1  # of the slopes
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


def packed(
    labels: npt.NDArray[np.integer],
    logits: npt.NDArray[np.floating],
    temperature: float,
    limit: int,
    also: npt.NDArray[np.integer] | None = None,
) -> bytes | None:
    """Labels `[N]` and logits `[N, K]` as a file of fewer than `limit` bytes, as fine as there is room for.

    `also` `[N, A]` are further classes to keep exactly: what an ensemble answers that this network is part of. None
    where the coarsest is still too large.
    """
    log_p = normalised(logits)
    exact = log_p >= np.log(EXACT)
    rows = np.arange(len(labels))[:, None]
    exact[rows, labels[:, None]] = exact[rows, log_p.argmax(axis=1)[:, None]] = True
    if also is not None:
        exact[rows, also] = True
    for levels in LEVELS:
        content = archive(coded(labels, log_p, exact, temperature, levels))
        if len(content) < limit:
            return content
    return None


def coded(
    labels: npt.NDArray[np.integer], log_p: Floats, exact: Mask, temperature: float, levels: int
) -> dict[str, npt.NDArray[Any]]:
    """The arrays of a file."""
    codes = np.maximum(np.rint(levels * np.exp(log_p / POWER)), 1)
    codes[exact] = 0
    shift, slope = corrections(log_p, decoded(codes, levels), ~exact, temperature)
    return {
        "form": np.array(FORM),
        "levels": np.array(levels),
        "labels": labels.astype(np.min_scalar_type(log_p.shape[1] - 1)),
        "codes": codes.astype(np.uint8),
        "exact": planes(log_p[exact].astype(np.float32)),
        "shift": shift.astype("<f2"),
        "slope": slope.astype("<f2"),
    }


def corrections(log_p: Floats, log_q: Floats, coarse: Mask, temperature: float) -> tuple[Floats, ...]:
    """a and b `[N]` for which the coarse classes of a row have the sum of p, and that of p^(1/T), that they should."""
    some = coarse.any(axis=1)
    a, b = np.zeros(len(log_p)), np.zeros(len(log_p))
    log_p, log_q, coarse = log_p[some], log_q[some], coarse[some]
    total, wanted = log_sum(log_p, coarse), log_sum(log_p / temperature, coarse)
    slope = np.zeros(len(log_p))
    for _ in range(8):  # Newton's method
        z = (1 + slope[:, None]) * log_q
        z += (total - log_sum(z, coarse))[:, None]
        found = log_sum(z / temperature, coarse)
        derivative = (mean(log_q, z / temperature, coarse) - mean(log_q, z, coarse)) / temperature
        useful = np.abs(derivative) > 1e-9  # not of a row whose classes are all alike, or at T = 1
        slope += np.where(useful, (wanted - found) / np.where(useful, derivative, 1), 0)
        slope = np.clip(slope, -STEEPEST, STEEPEST)
    slope = slope.astype(np.float16).astype(np.float64)  # a makes good what the rounding of b has done to the sum
    a[some], b[some] = total - log_sum((1 + slope[:, None]) * log_q, coarse), slope
    return a, b


def log_sum(z: Floats, chosen: Mask) -> Floats:
    """log sum exp over the chosen classes `[N]`."""
    z = np.where(chosen, z, -np.inf)
    top = z.max(axis=1)
    return np.asarray(top + np.log(np.exp(z - top[:, None]).sum(axis=1)))


def mean(values: Floats, z: Floats, chosen: Mask) -> Floats:
    """The mean of values by the weights softmax(z) over the chosen classes `[N]`."""
    weights = np.exp(np.where(chosen, z - log_sum(z, chosen)[:, None], -np.inf))
    return np.asarray((weights * values).sum(axis=1))


def unpacked(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """The log-probabilities `[N, K]` of a file's arrays."""
    codes, exact = arrays["codes"], joined(arrays["exact"])
    log_q = decoded(codes.astype(np.float64), int(arrays["levels"]))
    a, b = (arrays[name].astype(np.float64)[:, None] for name in ("shift", "slope"))
    log_p = (a + (1 + b) * log_q).astype(np.float32)
    log_p[codes == 0] = exact
    return log_p


def decoded(codes: Floats, levels: int) -> Floats:
    """log q; zero where the value is kept exactly."""
    return np.asarray(POWER * np.log(np.where(codes == 0, levels, codes) / levels))


def normalised(logits: npt.NDArray[np.floating]) -> Floats:
    """Log-probabilities in float64, rounded to float32, of which the exact ones are kept."""
    z = logits.astype(np.float64)
    z = z - log_sum(z, np.ones(z.shape, bool))[:, None]
    return z.astype(np.float32).astype(np.float64)


def planes(values: npt.NDArray[np.float32]) -> Bytes:
    """`[n]` as bytes `[4, n]`: those of one weight lie together, which compresses better."""
    return np.ascontiguousarray(values.astype("<f4").view(np.uint8).reshape(-1, 4).T)


def joined(split: Bytes) -> npt.NDArray[np.float32]:
    """What `planes` took apart."""
    return np.ascontiguousarray(split.T).view("<f4")[:, 0]


def archive(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A compressed .npz file; the same arrays are the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return content.getvalue()
