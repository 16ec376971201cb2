"""What a report is made of: the measured predictions of one network or one ensemble."""

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
DEFAULT = ("latentbe", "tdiv-sdiv")  # onefold's default method
# {"ms_per_image": ...}, if it was measured; in a folder of teachers, "members" says for how many of them.
SPEED = "speed.json"
SINGLE = "single network"


class Taught(NamedTuple):
    """The teachers of a student; all fields are empty if there are none, or if they were not recorded."""

    weights: str = ""  # a hash
    folder: str = ""
    setting: dict[str, Any] | None = None  # fields of the recipe with which they were trained


@dataclass(frozen=True, eq=False)
class Answers:
    """One network or one ensemble, with the metrics of its predictions."""

    label: str
    kind: str  # "single", "ensemble" or "student"
    method: str
    perturbation: str
    members: int  # networks of an ensemble; teachers of a student; 1 for a single network
    setting: dict[str, Any]  # the recipe's fields that define the experiment: equal in repetitions with other seeds
    seed: int
    paths: tuple[Path, ...]
    metrics: dict[str, float]  # on the test split, also after temperature scaling if there is a val split
    before: Reliability
    after: Reliability | None
    examples: int
    env: dict[str, Any]
    seconds: float | None = None  # of training
    ms_per_image: float | None = None
    log: tuple[dict[str, Any], ...] = ()
    measurements: Measurements = field(default_factory=Measurements)
    taught: Taught = field(default_factory=Taught)
    weights: tuple[str, ...] = ()  # a hash for each network; empty if they were not recorded
    compact: bool = False  # whether the predictions were read from the compact form
    # `eval_every` and `eval_last`: which epochs were evaluated, so that their weights could be served.
    candidates: tuple[int, int] | None = None

    @cached_property
    def logged(self) -> dict[str, list[dict[str, Any]]]:
        """The lines of the log, by kind."""
        kinds: dict[str, list[dict[str, Any]]] = {}
        for record in self.log:
            kinds.setdefault(str(record.get("kind")), []).append(record)
        return kinds

    @property
    def trained(self) -> dict[str, Any]:
        """How the network, or the teachers of a student, were trained on labels."""
        return alone(self.setting) if self.kind != "student" else self.taught.setting or {}

    @property
    def is_default(self) -> bool:
        return self.kind == "student" and (self.method, self.perturbation) == DEFAULT

    @property
    def passes(self) -> int:
        """How many forward passes a prediction takes."""
        return self.members if self.kind == "ensemble" or self.method == "be" else 1

    @property
    def folder(self) -> Path:
        """The folder to show: for an ensemble, that of all the teachers."""
        return self.paths[0].parent if self.kind == "ensemble" else self.paths[0]


def alone(setting: dict[str, Any]) -> dict[str, Any]:
    """The settings that matter for a network that learns from labels."""
    return {name: value for name, value in setting.items() if name != "members" and not name.startswith("distill.")}
