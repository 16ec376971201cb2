"""What can be asked for on the command line: a dataclass for each verb, a flag for each of its fields."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from onefold.recipe import Recipe
from onefold.recipes import RECIPES, recipe_named

NAMES = ", ".join(RECIPES)


@dataclass(frozen=True)
class Fields(Recipe):
    """A recipe whose fields are flags, not checked before all of them are known.

    `--members 2,3` says which teachers to train, so that the number of teachers has a flag of its own.
    """

    members: Annotated[int, arg(name="recipe.members")] = 4
    """M: teachers to train, and members of the student"""

    def __post_init__(self) -> None:
        pass

    def checked(self) -> Recipe:
        """The recipe, refused where its fields make no sense."""
        return Recipe(**{entry.name: getattr(self, entry.name) for entry in fields(Recipe)})


def as_fields(recipe: Recipe) -> Fields:
    return Fields(**{entry.name: getattr(recipe, entry.name) for entry in fields(Recipe)})


def first_fields() -> Fields:
    """Something to parse with before the recipe's name is known."""
    return as_fields(recipe_named(next(iter(RECIPES))))


@dataclass(frozen=True)
class Demo:
    """The whole story on hand-written digits that come with the package, on a CPU, in a minute or two."""

    seeds: int = 3
    """how often everything is repeated with other random numbers; the table shows mean and deviation"""
    out: str = "runs/demo"
    """folder for the runs and the page"""
    workers: int | None = None
    """processes that share the work, three quarters of a GB each; two where there are two cores, if nothing is said"""


@dataclass(frozen=True)
class Train:
    """Trains the teachers of a recipe."""

    recipe: Positional[Annotated[str, arg(metavar="RECIPE", help=NAMES)]]
    members: str | None = None
    """which of the teachers to train, such as 2,3; all of them, if nothing is said"""
    out: str | None = None
    """folder for the teachers; runs/RECIPE/seed-SEED/teachers, if nothing is said"""
    download: bool = False
    """fetch the data set if it is not there, as --data.download does"""
    log: Literal["tensorboard"] | None = None
    """tensorboard: event files in each run's folder, for `tensorboard --logdir runs`"""
    fields: Annotated[Fields, arg(name="")] = field(default_factory=first_fields)


@dataclass(frozen=True)
class Distill:
    """Distils teachers into one network."""

    recipe: Positional[Annotated[str, arg(metavar="RECIPE", help=NAMES)]]
    teachers: Annotated[str, arg(metavar="RUN")]
    """folder that 'onefold train' has filled"""
    out: str | None = None
    """folder for the student; runs/RECIPE/seed-SEED/METHOD, if nothing is said"""
    download: bool = False
    """fetch the data set if it is not there, as --data.download does"""
    log: Literal["tensorboard"] | None = None
    """tensorboard: event files in each run's folder, for `tensorboard --logdir runs`"""
    fields: Annotated[Fields, arg(name="")] = field(default_factory=first_fields)


Runs = Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate:
    """Metrics of finished runs from their predictions, without data or GPU."""

    runs: Positional[Runs]
    """folders of runs, or of teachers"""


@dataclass(frozen=True)
class Report:
    """Tables and pictures of finished runs, as one HTML file."""

    runs: Positional[Runs]
    """folders of runs, or folders that hold runs"""
    out: str = "report.html"
    """the file to write"""


@dataclass(frozen=True)
class Bench:
    """How fast training steps are here, beside plain PyTorch and beside what the hardware could do."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    network: str | None = None
    """one network alone: wrnDxK such as wrn28x4, or resnet50 or vit-s (timm's) at 224 pixels with two members; on a GPU
    wrn28x1 and wrn28x4, on a CPU a small one, if nothing is said"""
    batch: int | None = None
    """examples a step; 128 on a GPU, 32 on a CPU, if nothing is said"""
    steps: int | None = None
    """steps between two looks at the clock; 40 on a GPU, 3 on a CPU, if nothing is said"""
    out: str | None = None
    """file for the table as JSON, with hardware, versions, commit and command"""


@dataclass(frozen=True)
class Plan:
    """What a recipe will cost here: passes, arithmetic, memory and time, before anything is trained."""

    recipe: Positional[Annotated[str, arg(metavar="RECIPE", help=NAMES)]]
    seconds: float = 4.0
    """how long steps are measured, of teachers and of the student each"""
    synthetic: bool = False
    """measure with random images even where the data set is there"""
    growth: Literal["counted", "measured"] = "counted"
    """times for other numbers of members and other batches: by counting, or by measuring each of them, too"""
    out: str | None = None
    """file for the plan as JSON"""
    fields: Annotated[Fields, arg(name="")] = field(default_factory=first_fields)


Request = Demo | Train | Distill | Evaluate | Report | Bench | Plan
EXAMPLES: dict[type[Request], tuple[str, ...]] = {
    Demo: ("onefold demo", "onefold demo --seeds 8 --out runs/demo"),
    Train: (
        "onefold train cifar10 --download",
        "onefold train cifar10 --optim.lr 0.05 --seed 1 --out runs/teachers",
        "onefold train cifar10 --members 2,3      (two of the teachers; other machines train the others)",
        "onefold train cifar10 --recipe.members 8 (an ensemble of eight)",
    ),
    Distill: (
        "onefold distill cifar10 --teachers runs/cifar10/seed-0/teachers",
        "onefold distill cifar10 --teachers runs/teachers --distill.method kd --distill.perturbation none",
    ),
    Evaluate: ("onefold evaluate runs/cifar10/seed-0/teachers runs/cifar10/seed-0/latentbe-tdiv-sdiv",),
    Report: ("onefold report runs/cifar10 --out cifar10.html",),
    Bench: ("onefold bench", "onefold bench --network wrn28x4 --out bench.json"),
    Plan: (
        "onefold plan cifar10",
        "onefold plan cifar100 --recipe.members 8 --precision bf16",
    ),
}
VERBS: dict[str, type[Request]] = {kind.__name__.lower(): kind for kind in EXAMPLES}
