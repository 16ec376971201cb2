"""What can be asked for on the command line: a dataclass for each verb, a flag for each of its fields."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal, get_args

from tyro.conf import Positional, UseAppendAction, arg

from onefold.names import perturbation_needs
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


@dataclass(frozen=True)
class DataFlags:
    """Where the data are."""

    root: str | None = None
    """folder that holds the data sets; that of the run's recipe, if nothing is said"""
    download: bool = False
    """fetch a data set if it is not there"""
    skip_unreadable: bool = False
    """leave unreadable files out instead of stopping"""
    workers: int | None = None
    """loader processes for data sets that do not fit in memory"""


Runs = Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate:
    """Metrics of finished runs from their predictions, without data or GPU; with flags, what needs the networks too."""

    runs: Positional[Runs]
    """folders of runs, of teachers, or folders that hold them"""
    corruptions: bool = False
    """on the test split under 19 corruptions at 5 severities, made here"""
    corrupted: str | None = None
    """on a folder of corrupted images as published, such as CIFAR-10-C"""
    ood: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME=SPEC")] = ()
    """on images of another kind, such as svhn=svhn or lsun=folder:PATH; may be given several times"""
    subspace: bool = False
    """error and NLL along the line through two members, and over the plane through three"""
    health: bool = False
    """whether averaging the members hurts, on the test split"""
    costs: bool = False
    """seconds of training, and milliseconds an image on this device"""
    all: bool = False
    """all of these; for images of another kind --ood has to say where they are"""
    images: int = 10_000
    """of each split, where the subspace is measured"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    network: str | None = None
    """FILE.py:NAME, where the file of a network of your own is not where it was"""
    download: bool = False
    """fetch what is not there, as --data.download does"""
    data: DataFlags = field(default_factory=DataFlags)


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
class Export:
    """Writes the network of a finished run for where it is served, and compares what was written with it."""

    run: Positional[Annotated[str, arg(metavar="RUN")]]
    """folder of a run, or of teachers, which then answer together"""
    format: Literal["safetensors", "onnx", "torch-export", "hub"]
    """safetensors: weights under the network's own keys; onnx; torch-export: a program that needs torch alone; hub: a
    folder with weights, program and model card"""
    out: str | None = None
    """the file, or the folder of a hub; in RUN/export, if nothing is said"""
    calibrated: bool = True
    """the temperature fitted on the validation split becomes part of the network"""
    batch: int | None = None
    """examples it takes at a time; any number, if nothing is said"""
    network: str | None = None
    """FILE.py:NAME, where the file of a network of your own is not where it was"""


@dataclass(frozen=True)
class Bench:
    """How fast training steps are here, beside plain PyTorch and beside what the hardware could do."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    network: str | None = None
    """one network alone: wrnDxK such as wrn28x4, FILE.py:NAME for CIFAR-10's images, or resnet50 or vit-s (timm's) at
    224 pixels with two members; on a GPU wrn28x1 and wrn28x4, on a CPU a small one, if nothing is said"""
    row: str | None = None
    """only the rows with this in their names, such as supervised or TDiv-SDiv; all, if nothing is said"""
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
    """only show the rows, how far each is and what it costs"""
    folders: bool = False
    """with --dry-run: every run, with its folder"""
    minutes: float | None = None
    """stop after so long with everything saved; the same command goes on"""
    at_once: int | None = None
    """runs side by side on the device; on a GPU 4 where a step is small, else 1, if nothing is said"""
    epochs: int | None = None
    """another length than the paper's, in folders of its own and not compared with the paper"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    precision: Literal["auto", "float32", "bf16"] | None = None
    """of products; the recipe's, if nothing is said"""
    root: Annotated[str | None, arg(name="data.root")] = None
    """folder that holds the data sets"""
    download: bool = False
    """fetch the data set if it is not there"""


Request = Demo | Train | Distill | Evaluate | Report | Reproduce | Export | Bench | Plan
EXAMPLES: dict[type[Request], tuple[str, ...]] = {
    Demo: ("onefold demo", "onefold demo --seeds 8 --out runs/demo"),
    Train: (
        "onefold train cifar10 --download",
        "onefold train cifar10 --optim.lr 0.05 --seed 1 --out runs/teachers",
        "onefold train cifar10 --members 2,3      (two of the teachers; other machines train the others)",
        "onefold train cifar10 --recipe.members 8 (an ensemble of eight)",
        "onefold train cifar10 --data.source npz:mine.npz --network mynet.py:Net   (data and a network of your own)",
    ),
    Distill: (
        "onefold distill cifar10 --teachers runs/cifar10/seed-0/teachers",
        "onefold distill cifar10 --teachers runs/teachers --distill.method kd --distill.perturbation none",
    ),
    Evaluate: (
        "onefold evaluate runs/cifar10",
        "onefold evaluate runs/cifar10/seed-0/teachers runs/cifar10/seed-0/latentbe-tdiv-sdiv",
        "onefold evaluate runs/cifar10/seed-0/latentbe-tdiv-sdiv --all --ood svhn=svhn --data.root data",
    ),
    Report: (
        "onefold report runs/cifar10 --out cifar10.html",
        "onefold report runs/cifar10 --format latex --figures figures",
    ),
    Reproduce: (
        "onefold reproduce cifar10 --dry-run",
        "onefold reproduce cifar10 --rows kd,latentbe,latentbe-tdiv-sdiv --members 4 --download",
        "onefold reproduce cifar100 --minutes 25  (on a machine that is lent for half an hour; again to go on)",
    ),
    Export: (
        "onefold export runs/cifar10/seed-0/latentbe-tdiv-sdiv --format onnx",
        "onefold export runs/cifar10/seed-0/latentbe-tdiv-sdiv --format hub --out mine",
    ),
    Bench: ("onefold bench", "onefold bench --network wrn28x4 --out bench.json"),
    Plan: (
        "onefold plan cifar10",
        "onefold plan cifar100 --recipe.members 8 --precision bf16",
    ),
}
VERBS: dict[str, type[Request]] = {kind.__name__.lower(): kind for kind in EXAMPLES}


def recipe_asked(request: Train | Distill | Plan) -> Recipe:
    """The recipe with its flags, refused where its fields make no sense."""
    return (for_teachers(request.fields) if isinstance(request, Train) else request.fields).checked()


def for_teachers(fields: Fields) -> Fields:
    """The fields of who trains teachers alone, whatever their number: a student's perturbation that needs more of them
    is left out, also of the command that comes next."""
    if not 1 <= fields.members < perturbation_needs(fields.distill.perturbation).teachers:
        return fields
    return replace(fields, distill=replace(fields.distill, perturbation="none"))
