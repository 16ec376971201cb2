"""Temperature scaling: fits the temperature on validation data, and computes metrics at that temperature."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from onefold.metrics.classification import Classification, as_members
from onefold.metrics.ensemble import log_mean_probabilities
from onefold.types import at_least_float32, check_labels, check_logits

LOWEST, HIGHEST = 1e-3, 1e3  # the range of temperatures
UNTOLD = 1.0  # returned if the data determine no temperature; a fitted temperature of 1 is returned as FITTED instead
FITTED = math.nextafter(UNTOLD, HIGHEST)
HARM = 1.1  # the ratio of cNLL to NLL on the test split beyond which the temperature is warned of
_VALUES = 2**22  # values processed at once: 32 MiB in float64


def _chunks(logits: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits `[M, N, K]` and labels `[N]`, in chunks along N."""
    rows = max(1, _VALUES // max(1, logits.shape[0] * logits.shape[2]))
    for begin in range(0, labels.shape[0], rows):
        yield logits[:, begin : begin + rows], labels[begin : begin + rows]


def check_temperature(temperature: object) -> float:
    """The temperature as a float; refuses anything but a positive finite number."""
    if temperature is None:
        raise ValueError("temperature: expected a number, got None; distill(..., val=...) fits one")
    number = math.nan
    if not isinstance(temperature, str):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # not a number
            number = float(temperature)  # type: ignore[arg-type]
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"temperature: expected a positive finite number, got {temperature!r}")
    return number


def warning_of_temperature(temperature: float | None, metrics: Mapping[str, float] | None = None) -> str | None:
    """A warning with advice if the validation split does not determine the temperature, if it is at an end of the
    range, so that a better one lies beyond, or if by the test split's metrics it does harm."""
    if temperature == UNTOLD:
        return (
            "the temperature is 1, which leaves the network as it is: every answer on the validation split is right, "
            "or all classes are always equally probable, so that the split does not tell how sure the network may be; "
            "give more validation examples"
        )
    if temperature is None:
        return None
    if LOWEST < temperature < HIGHEST:
        if metrics is None or metrics.get("cnll", -math.inf) <= HARM * metrics.get("nll", math.inf):
            return None
        return (
            "the temperature makes the NLL of the test split worse by more than a tenth: the validation split has too "
            "few examples to fit it, or is unlike the test split; give more validation examples, or serve it without "
            "a temperature"
        )
    if temperature <= LOWEST:
        return (  # older run folders may also have this temperature when every prediction is right
            f"the temperature is {LOWEST:g}, the lowest that is tried: every answer on the validation split is right, "
            "or the logits are minute, so that the split does not tell how sure the network may be; give more "
            "validation examples, or serve it without a temperature"
        )
    return (
        f"the temperature is {HIGHEST:g}, the highest that is tried: the answers on the validation split tell nothing "
        "of its labels, or the logits are huge; train longer, and check that inputs and labels belong together: at "
        "this temperature all classes are equally probable"
    )


def tempered(logits: Tensor, temperature: float) -> Tensor:
    """Log-probabilities `[B, K]` of the prediction at a temperature: log_softmax(z / T).

    z is the logits `[B, K]`, or for logits `[M, B, K]` the log of the members' mean probabilities.
    """
    check_temperature(temperature)
    z = at_least_float32(logits) if logits.dim() == 2 else log_mean_probabilities(as_members(logits))
    return torch.log_softmax(z / temperature, dim=-1)


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The temperature T that minimises the mean of - log softmax(z / T)_y over validation data.

    z is the logits `[N, K]`, or for members' logits `[M, N, K]` the log of their mean probabilities; y is the labels
    `[N]`. The loss is convex in 1/T, so its derivative changes sign at most once; Newton's method over log T in
    float64, kept inside a bracket by bisection, finds where to rounding. If every prediction is right, the loss keeps
    falling toward T = 0, where a single later mistake has unbounded cost: T is then 1, the network unchanged.
    Otherwise T is kept between 0.001 and 1000, and is at a bound if the loss still falls beyond it: 1000 if the
    logits say nothing about the labels.
    """
    logits = as_members(logits).detach()
    check_logits("logits", logits[:, :0])
    if not labels.numel() or not logits.shape[1]:
        raise ValueError(
            "no validation data: a temperature is fitted on labelled examples that were not trained on, "
            "and there are 0; give a validation set, or leave calibration out"
        )
    check_labels(labels.cpu(), logits.shape[2], logits.shape[1])
    if logits.device.type == "mps":  # has no float64
        logits = logits.cpu()
    labels = labels.to(logits.device, torch.long)
    for z, _ in _chunks(logits, labels):  # in chunks: a check of all at once might not fit into memory
        check_logits("logits", z)
    if logits.shape[0] > 1:
        logits = torch.cat([log_mean_probabilities(z) for z, _ in _chunks(logits, labels)])[None]
    return _minimise(lambda: ((z[0], y) for z, y in _chunks(logits, labels)))


def fit_temperature_to(batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]) -> float:
    """`fit_temperature` for predictions that do not fit into memory: each call of `batches` returns a fresh iterable of
    logits `[B, K]` and labels `[B]`, for each of the ten or so passes that the search takes."""
    return _minimise(batches)


def _minimise(batches: Callable[[], Iterable[tuple[Tensor, Tensor]]]) -> float:
    slope, curvature = _derivatives(batches(), 1.0)
    if math.isnan(slope):
        raise ValueError("logits: expected finite validation logits, got NaN or infinite values")
    if slope == 0:  # with no curvature either, every temperature is equally good
        return UNTOLD if curvature == 0 else FITTED
    # s = - log T; the slope is negative at `low` and positive at `high`.
    s, bound = 0.0, -math.log(LOWEST if slope < 0 else HIGHEST)
    beyond, _ = _derivatives(batches(), math.exp(bound))
    if beyond == 0 or (beyond < 0) == (slope < 0):
        return HIGHEST if slope > 0 else UNTOLD if _all_right(batches()) else LOWEST
    low, high = (s, bound) if slope < 0 else (bound, s)
    last = high - low
    for _ in range(200):  # bisection alone needs 50
        step = -slope / (math.exp(s) * curvature) if curvature > 0 else math.inf
        if not (low < s + step < high and abs(step) <= last / 2):
            step = (low + high) / 2 - s
        s, last = s + step, abs(step)
        slope, curvature = _derivatives(batches(), math.exp(s))
        low, high = (s, high) if slope < 0 else (low, s)
        if slope == 0 or last <= 1e-13 or high - low <= 1e-14:
            break
    fitted = math.exp(-s)
    return FITTED if fitted == UNTOLD else fitted


def _all_right(batches: Iterable[tuple[Tensor, Tensor]]) -> bool:
    """Whether no class is more probable than the right one in any example."""
    return all(bool((z.gather(1, y[:, None]) >= z).all()) for z, y in batches)


def _derivatives(batches: Iterable[tuple[Tensor, Tensor]], inverse: float) -> tuple[float, float]:
    """First and second derivative of the mean loss with respect to 1/T: means of E_p[d] and Var_p[d], d = z - z_y."""
    total, count = torch.zeros(2, dtype=torch.float64), 0
    for z, y in batches:
        d = z.double()
        d = d - d.gather(1, y[:, None])
        p = torch.softmax(d * inverse, dim=-1)
        mean = (p * d).sum(dim=-1, keepdim=True)
        total = total.to(d.device) + torch.stack([mean.sum(), (p * (d - mean).square()).sum()])
        count += len(y)
    first, second = (total / count).tolist()
    return first, second


def evaluate_predictions(
    logits: Tensor,
    labels: Tensor,
    *,
    val_logits: Tensor | None = None,
    val_labels: Tensor | None = None,
    bins: int = 15,
) -> dict[str, float]:
    """The metrics of `Classification` for logits `[N, K]` or `[M, N, K]` and labels `[N]`.

    With validation data also the `temperature` fitted to it, and `cnll` and `cece`: nll and ece at that temperature.
    """
    if (val_logits is None) != (val_labels is None):
        raise ValueError("val_logits, val_labels: expected both or neither, got only one of them")
    logits = as_members(logits)
    check_labels(labels, logits.shape[2], logits.shape[1])
    plain = Classification(logits.shape[2], bins, logits.device)
    for z, y in _chunks(logits, labels):
        plain.update(z, y)
    metrics = plain.compute()
    if val_logits is None or val_labels is None:
        return metrics
    if val_logits.shape[-1] != logits.shape[2]:
        raise ValueError(f"val_logits: expected {logits.shape[2]} classes, got {val_logits.shape[-1]}")
    temperature = fit_temperature(val_logits, val_labels)
    scaled = Classification(logits.shape[2], bins, logits.device)
    for z, y in _chunks(logits, labels):
        scaled.update(tempered(z, temperature), y)
    calibrated = scaled.compute()
    return metrics | {"cnll": calibrated["nll"], "cece": calibrated["ece"], "temperature": temperature}
