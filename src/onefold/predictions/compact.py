"""The compact form: predictions for 10,000 images and 100 classes in less than a megabyte, with unchanged metrics.

The values that matter for metrics are stored exactly, in float32: the log-probabilities of the label, of the predicted
class, and of every class above 5%. The others become code = round(L p^(1/6)), which is coarser in log p the smaller p
is. That alone would change the total probability, and so move confidences across the edges of bins. Therefore, every
image has two numbers a and b: decoded values q become log p = a + (1 + b) log q, with a and b chosen such that the sum
of p and the sum of p^(1/T) are right, where T is the temperature at which the predictions will be evaluated.

    form            1
    levels          L
    labels [N]
    codes [N, K]    a code of 0 means an exact value
    exact [4, n]    the bytes of the exact values, in row order
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
EXACT = 0.05  # probabilities from this on are kept exactly
LEVELS = (256, 128, 64)  # the finest first; codes of probabilities below 5% fit into a byte
STEEPEST = 0.1  # largest slope b, in absolute value
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
    """Packs labels `[N]` and logits `[N, K]` into a file of less than `limit` bytes, as finely as that allows.

    `also` `[N, A]` are further classes to keep exactly, such as those predicted by an ensemble with this network.
    Returns None if even the coarsest file is too large.
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
    """a and b `[N]` for which the coarse classes of each row have the right sum of p and the right sum of p^(1/T)."""
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
        useful = np.abs(derivative) > 1e-9  # false if all classes of a row are equal, or T = 1
        slope += np.where(useful, (wanted - found) / np.where(useful, derivative, 1), 0)
        slope = np.clip(slope, -STEEPEST, STEEPEST)
    slope = slope.astype(np.float16).astype(np.float64)  # round b before computing a, which corrects the sum
    a[some], b[some] = total - log_sum((1 + slope[:, None]) * log_q, coarse), slope
    return a, b


def log_sum(z: Floats, chosen: Mask) -> Floats:
    """log sum exp over the chosen classes `[N]`."""
    z = np.where(chosen, z, -np.inf)
    top = z.max(axis=1)
    return np.asarray(top + np.log(np.exp(z - top[:, None]).sum(axis=1)))


def mean(values: Floats, z: Floats, chosen: Mask) -> Floats:
    """The mean of values `[N]` with weights softmax(z) over the chosen classes."""
    weights = np.exp(np.where(chosen, z - log_sum(z, chosen)[:, None], -np.inf))
    return np.asarray((weights * values).sum(axis=1))


def unpacked(arrays: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """The log-probabilities `[N, K]` from a file's arrays."""
    codes, exact = arrays["codes"], joined(arrays["exact"])
    log_q = decoded(codes.astype(np.float64), int(arrays["levels"]))
    a, b = (arrays[name].astype(np.float64)[:, None] for name in ("shift", "slope"))
    log_p = (a + (1 + b) * log_q).astype(np.float32)
    log_p[codes == 0] = exact
    return log_p


def decoded(codes: Floats, levels: int) -> Floats:
    """log q; zero where the value is stored exactly."""
    return np.asarray(POWER * np.log(np.where(codes == 0, levels, codes) / levels))


def normalised(logits: npt.NDArray[np.floating]) -> Floats:
    """Log-probabilities in float64, rounded to float32 precision, in which the exact ones are stored."""
    z = logits.astype(np.float64)
    z = z - log_sum(z, np.ones(z.shape, bool))[:, None]
    return z.astype(np.float32).astype(np.float64)


def planes(values: npt.NDArray[np.float32]) -> Bytes:
    """Splits `[n]` into bytes `[4, n]`: bytes of the same significance are together, which compresses better."""
    return np.ascontiguousarray(values.astype("<f4").view(np.uint8).reshape(-1, 4).T)


def joined(split: Bytes) -> npt.NDArray[np.float32]:
    """The inverse of `planes`."""
    return np.ascontiguousarray(split.T).view("<f4")[:, 0]


def archive(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A compressed .npz file; the same arrays always give the same bytes."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
            file.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getvalue(), zipfile.ZIP_DEFLATED, 9)
    return content.getvalue()
