"""The metrics of a network or an ensemble, from a stream of its predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from onefold.metrics import Classification, Reliability, fit_temperature_to, tempered
from onefold.predictions import Stored
from onefold.report.stored import Batch, batches, together

HELD = 2**26  # most logits of a validation split that are kept in memory to fit a temperature: 256 MiB in float32


@dataclass(frozen=True, eq=False)
class Measured:
    """All metrics, and the bins before and after temperature scaling; the latter only with a validation split."""

    metrics: dict[str, float]
    before: Reliability
    after: Reliability | None
    examples: int


def measured(test: Stored, val: Stored | None) -> Measured:
    """The metrics of one network."""
    temperature = None if val is None else fit_temperature_to(kept(lambda: batches(val), val.examples * val.classes))
    bins = Binned(test.classes, temperature)
    for batch in batches(test):
        bins.update(*batch)
    return bins.result()


def measured_together(test: Sequence[Stored], val: Sequence[Stored]) -> list[Measured]:
    """The metrics of the ensembles of the first 1, 2, ... M networks; `val` is empty without a validation split."""
    temperatures: list[float | None] = [None] * len(test)
    if val:
        size = val[0].examples * val[0].classes
        for m in range(len(val)):
            temperatures[m] = fit_temperature_to(kept(lambda m=m: first(val, m + 1), size))  # type: ignore[misc]
    every = [Binned(test[0].classes, temperature) for temperature in temperatures]
    for turn in together(test):
        for bins, batch in zip(every, turn, strict=True):
            bins.update(*batch)
    return [bins.result() for bins in every]


def first(each: Sequence[Stored], members: int) -> Iterable[Batch]:
    """The predictions of the ensemble of the first `members` networks."""
    return (turn[-1] for turn in together(each[:members]))


def kept(read: Callable[[], Iterable[Batch]], size: int) -> Callable[[], Iterable[Batch]]:
    """Reads the batches only once, if they fit in memory: fitting a temperature takes ten rounds or so."""
    if size > HELD:
        return read
    held = list(read())
    return lambda: held


class Binned:
    """Accumulates the metrics of one prediction, as it is and at a temperature."""

    def __init__(self, classes: int, temperature: float | None) -> None:
        self.plain, self.temperature = Classification(classes), temperature
        self.scaled = None if temperature is None else Classification(classes)

    def update(self, logits: torch.Tensor, labels: torch.Tensor) -> None:
        self.plain.update(logits, labels)
        if self.scaled is not None and self.temperature is not None:
            self.scaled.update(tempered(logits, self.temperature), labels)

    def result(self) -> Measured:
        metrics, after = self.plain.compute(), None
        if self.scaled is not None and self.temperature is not None:
            calibrated = self.scaled.compute()
            metrics |= {"cnll": calibrated["nll"], "cece": calibrated["ece"], "temperature": self.temperature}
            after = self.scaled.reliability()
        return Measured(metrics, self.plain.reliability(), after, int(metrics.pop("count")))


def pooled(bins: Sequence[Reliability]) -> Reliability:
    """The bins over the predictions of several networks together."""
    count = torch.stack([one.count for one in bins]).sum(dim=0)

    def mean(values: list[torch.Tensor]) -> torch.Tensor:
        sums = [one.count * value.nan_to_num() for one, value in zip(bins, values, strict=True)]
        return torch.stack(sums).sum(dim=0) / count

    return Reliability(count, mean([one.confidence for one in bins]), mean([one.accuracy for one in bins]))
