"""What a report is made of: one network's answers, or one ensemble's, measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from onefold.metrics import Reliability
from onefold.report.measurements import Measurements

METHODS = {"kd": "KD", "aekd": "AE-KD", "proxy-end2": "Proxy-EnD²", "be": "BE", "latentbe": "LatentBE"}
PERTURBATIONS = {
    "none": "",
    "gaussian": " + Gaussian",
    "ods": " + ODS",
    "confods": " + ConfODS",
    "tdiv": " + TDiv",
    "tdiv-sdiv": " + TDiv-SDiv",
}
DEFAULT = ("latentbe", "tdiv-sdiv")  # what onefold does if nothing is said
# {"ms_per_image": ...}, where somebody has measured it; in a folder of teachers "members" says of how many of them.
SPEED = "speed.json"
SINGLE = "single network"


class Taught(NamedTuple):
    """Whose student a network is; all of it empty where there are no teachers, or nobody has written it down."""

    weights: str = ""  # a hash
    folder: str = ""
    setting: dict[str, Any] | None = None  # of the recipe by which they were trained


@dataclass(frozen=True, eq=False)
class Answers:
    """What one network, or one ensemble, answered, and how good that was."""

    label: str
    kind: str  # "single", "ensemble" or "student"
    method: str
    perturbation: str
    members: int  # of an ensemble; of the teachers of a student; 1 of a single network
    setting: dict[str, Any]  # fields of the recipe that make it the same experiment as another
    seed: int
    paths: tuple[Path, ...]
    metrics: dict[str, float]  # of the test split, those after temperature scaling too where there is a val split
    before: Reliability
    after: Reliability | None
    examples: int
    env: dict[str, Any]
    seconds: float | None = None  # that training took
    ms_per_image: float | None = None
    log: tuple[dict[str, Any], ...] = ()
    measurements: Measurements = field(default_factory=Measurements)
    taught: Taught = field(default_factory=Taught)
    weights: tuple[str, ...] = ()  # their hashes, of each network; empty where nobody has written them down
    compact: bool = False  # whether predictions were read from the compact form
    # The epochs whose weights could be served: every so many, and each of so many at the end.
    candidates: tuple[int, int] | None = None

    @cached_property
    def logged(self) -> dict[str, list[dict[str, Any]]]:
        """The lines of the log by their kind."""
        kinds: dict[str, list[dict[str, Any]]] = {}
        for record in self.log:
            kinds.setdefault(str(record.get("kind")), []).append(record)
        return kinds

    @property
    def trained(self) -> dict[str, Any]:
        """How it was, or its teachers were, trained with labels."""
        return alone(self.setting) if self.kind != "student" else self.taught.setting or {}

    @property
    def is_default(self) -> bool:
        return self.kind == "student" and (self.method, self.perturbation) == DEFAULT

    @property
    def passes(self) -> int:
        """How many times an image goes through a network for one answer."""
        return self.members if self.kind == "ensemble" or self.method == "be" else 1

    @property
    def folder(self) -> Path:
        """The folder to name: that of the teachers for an ensemble."""
        return self.paths[0].parent if self.kind == "ensemble" else self.paths[0]


def alone(setting: dict[str, Any]) -> dict[str, Any]:
    """What concerns a network that learns from labels."""
    return {name: value for name, value in setting.items() if name != "members" and not name.startswith("distill.")}
