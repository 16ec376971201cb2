"""Out-of-distribution detection: entropies on the test split and on other images, and how well they are separated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from onefold.engine.evaluate import rows_of
from onefold.engine.measure.inputs import RunData
from onefold.engine.measure.outside import outside_batches, scaling
from onefold.engine.measure.progress import Counting, reason_of
from onefold.engine.measure.subject import Subject, Target
from onefold.metrics import EntropyHistogram, OutOfDistribution, log_mean_probabilities, predictive_entropy

NAME = "ood"
SCORES = ("entropy", "max_probability")
KEPT = ("auroc", "aupr", "fpr95")


@dataclass(eq=False)
class Entropies:
    """What is kept of the predictions on one set, in fixed memory whatever the set's size."""

    classes: int
    histogram: EntropyHistogram = field(init=False)
    meters: dict[str, OutOfDistribution] = field(init=False)

    def __post_init__(self) -> None:
        self.histogram = EntropyHistogram(self.classes)
        self.meters = {name: OutOfDistribution() for name in SCORES}

    @torch.no_grad()
    def update(self, log_p: Tensor, out: bool) -> None:
        entropy = predictive_entropy(log_p)
        doubt = -torch.expm1(log_p.amax(dim=-1))  # 1 - max p, accurate even if p is nearly one
        self.meters["max_probability"].update(stretched(doubt, 1 - 1 / self.classes), out)
        self.meters["entropy"].update(stretched(entropy, math.log(self.classes)), out)
        self.histogram.update(entropy)

    def described(self) -> dict[str, Any]:
        counts = self.histogram.counts()
        return {"count": sum(counts), "entropy": {"edges": self.histogram.edges, "counts": counts}}

    def against(self, inside: Entropies) -> dict[str, dict[str, float]]:
        found = {}
        for name, meter in self.meters.items():
            both = OutOfDistribution(device=meter.device).merge(meter).merge(inside.meters[name])
            found[name] = {k: v for k, v in both.compute().items() if k in KEPT}
        return found


def stretched(score: Tensor, top: float) -> Tensor:
    """log(s / (top - s)) for scores s from 0 to `top`, which keeps their order and resolves both ends.

    The meter treats scores that differ by less than 0.05% as equal; near the top, where out-of-distribution images are,
    that would be many.
    """
    share = (score.double() / top).clamp(1e-30, 1 - 1e-12)
    return share.log() - torch.log1p(-share)


class Unmeasured(ValueError):
    """Sets that could not be measured, with the reasons."""

    def __init__(self, parts: dict[str, str]) -> None:
        super().__init__("; ".join(parts.values()))
        self.parts = parts


def ood(subject: Subject, data: RunData, sets: dict[str, str], progress: Counting) -> None:
    """Measures the sets that are not stored yet; raises an error about those that failed once the others are done."""
    cannot: dict[str, str] = {}
    steps = scaling(subject, data)
    resize = steps.get("resize")
    todo = [name for name, spec in sets.items() if not all(has(t, name, spec, resize) for t in subject.targets)]
    for name in sets.keys() - set(todo):
        progress.message(f"out of distribution: {name} is already stored for {subject.path}")
    if not todo:
        return
    inside = [inside_of(target, subject.classes) for target in subject.targets]
    of = {"name": f"{subject.recipe.data.source} test"}
    for name in todo:
        progress.title(f"{subject.path.name}: out of distribution, {name}")
        try:
            found = asked_about(subject, sets[name], data, steps, progress)
        except (ValueError, OSError) as error:
            cannot[name] = f"{name} cannot be measured: {reason_of(error)}"
            continue
        for target, entropies, own in zip(subject.targets, found, inside, strict=True):
            stored = target.store.stored(NAME)
            kept = [] if stored is None else [entry for entry in stored["sets"] if entry["name"] != name]
            entry = {"name": name, "spec": sets[name], "resize": resize}
            entry |= entropies.described() | {"scores": entropies.against(own)}
            target.store.write(NAME, {"inside": of | own.described(), "sets": [*kept, entry]})
    if cannot:
        raise Unmeasured(cannot)


@torch.no_grad()
def asked_about(
    subject: Subject, spec: str, data: RunData, steps: dict[str, Any], progress: Counting
) -> list[Entropies]:
    """The entropies of every target on a set of other images."""
    count, batches = outside_batches(subject, spec, data, steps, progress.message)
    found = [Entropies(subject.classes) for _ in subject.targets]
    seen = 0
    for x in batches():
        logits = subject.served(x)
        for target, entropies in zip(subject.targets, found, strict=True):
            entropies.update(target.predict(logits), out=True)
        seen += len(x)
        progress.count(seen, count)
    return found


def has(target: Target, name: str, spec: str, resize: int | None) -> bool:
    """Whether a set of that name and source is stored, scaled in this way; older versions did not scale like the test
    images."""
    stored = target.store.stored(NAME)
    wanted = (name, spec, resize)
    return stored is not None and any((e["name"], e["spec"], e.get("resize")) == wanted for e in stored["sets"])


def inside_of(target: Target, classes: int) -> Entropies:
    """The entropies on the run's own test split, from its stored predictions: this needs neither data nor network."""
    each = [splits.get("test") for splits in target.predictions()]
    found = Entropies(classes)
    logits = [split[1] for split in each if split is not None]
    if len(logits) < len(each):
        raise ValueError(f"{target.name} has no predictions on a test split to compare others with")
    for rows in rows_of(len(logits[0]), classes * len(logits)):
        found.update(log_mean_probabilities(torch.stack([z[rows] for z in logits])), out=False)
    return found
