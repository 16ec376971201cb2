"""What can be asked for on the command line: a dataclass for each verb, a flag for each of its fields."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal, get_args

from tyro.conf import Positional, arg

from onefold.recipe import Recipe
from onefold.recipes import RECIPES, recipe_named

NAMES = ", ".join(RECIPES)
Tables = Literal["cifar10", "cifar100", "ablation", "corrupted", "baselines", "tinyimagenet", "imagenet", "costs"]


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
    out: str | None = None
    """the file to write; report.html, or with another ending for another format, if nothing is said"""
    format: Literal["html", "md", "csv", "latex"] = "html"
    """html: a page with everything; md, csv, latex: the tables"""
    figures: str | None = None
    """folder for every picture as SVG and PDF"""


@dataclass(frozen=True)
class Reproduce:
    """Runs what is missing of a table of the paper, every row of it, and ends with the report."""

    table: Positional[Annotated[Tables, arg(metavar="TABLE", help=", ".join(get_args(Tables)))]]
    rows: str | None = None
    """which of the rows, such as kd,latentbe,latentbe-tdiv-sdiv; teachers for the teachers alone; all, if nothing is
    said"""
    members: str | None = None
    """students of so many teachers only, such as 4; all that the table has, if nothing is said"""
    seeds: int | None = None
    """students of each row; as many as the paper has, if nothing is said"""
    out: str = "runs/reproduce"
    """folder for the runs, which the tables share, and the page"""
    dry_run: bool = False
    """only show the runs, how far each is and what it costs"""
    minutes: float | None = None
    """stop after so long with everything saved; the same command goes on"""
    at_once: int | None = None
    """runs side by side on the device; 4 of small networks on a GPU, else 1, if nothing is said"""
    epochs: int | None = None
    """another length than the paper's, in folders of its own and not compared with the paper"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    precision: Literal["float32", "bf16"] | None = None
    """bf16: autocast where it is safe"""
    root: Annotated[str | None, arg(name="data.root")] = None
    """folder that holds the data sets"""
    download: bool = False
    """fetch the data set if it is not there"""


Request = Demo | Train | Distill | Evaluate | Report | Reproduce
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
    Report: (
        "onefold report runs/cifar10 --out cifar10.html",
        "onefold report runs/cifar10 --format latex --figures figures",
    ),
    Reproduce: (
        "onefold reproduce cifar10 --dry-run",
        "onefold reproduce cifar10 --rows kd,latentbe,latentbe-tdiv-sdiv --members 4 --download",
        "onefold reproduce cifar100 --minutes 25  (on a machine that is lent for half an hour; again to go on)",
    ),
}
VERBS: dict[str, type[Request]] = {kind.__name__.lower(): kind for kind in EXAMPLES}
