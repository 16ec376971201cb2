"""The requests that the command line understands: a dataclass for each verb, with a flag for each of its fields."""

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
    """A recipe whose fields are flags; it is checked only once all of them are known.

    The number of teachers is `--recipe.members`, because `--members 2,3` chooses which of them to train.
    """

    members: Annotated[int, arg(name="recipe.members")] = 4
    """M: number of teachers to train, and of members of the student"""

    def __post_init__(self) -> None:
        pass

    def checked(self) -> Recipe:
        """The recipe; refused if its fields make no sense."""
        return Recipe(**{entry.name: getattr(self, entry.name) for entry in fields(Recipe)})


def as_fields(recipe: Recipe) -> Fields:
    return Fields(**{entry.name: getattr(recipe, entry.name) for entry in fields(Recipe)})


def first_fields() -> Fields:
    """Defaults to parse with before the recipe's name is known."""
    return as_fields(recipe_named(next(iter(RECIPES))))


@dataclass(frozen=True)
class Demo:
    """Shows everything on hand-written digits that come with the package, on a CPU, in a minute or two."""

    seeds: int = 3
    """number of repetitions with different random numbers; the table shows mean and standard deviation"""
    out: str = "runs/demo"
    """folder for the runs and the HTML page"""
    workers: int | None = None
    """processes that share the work, with about 0.75 GB each; by default two if there are two cores"""


@dataclass(frozen=True)
class Train:
    """Trains the teachers of a recipe."""

    recipe: Positional[Annotated[str, arg(metavar="RECIPE", help=NAMES)]]
    members: str | None = None
    """which of the teachers to train, such as 2,3; by default all of them"""
    out: str | None = None
    """folder for the teachers; by default runs/RECIPE/seed-SEED/teachers"""
    download: bool = False
    """download the data set if it is not there; the same as --data.download"""
    log: Literal["tensorboard"] | None = None
    """tensorboard: event files in each run's folder, for `tensorboard --logdir runs`"""
    fields: Annotated[Fields, arg(name="")] = field(default_factory=first_fields)


@dataclass(frozen=True)
class Distill:
    """Distils teachers into one network."""

    recipe: Positional[Annotated[str, arg(metavar="RECIPE", help=NAMES)]]
    teachers: Annotated[str, arg(metavar="RUN")]
    """folder of teachers, made by 'onefold train'"""
    out: str | None = None
    """folder for the student; by default runs/RECIPE/seed-SEED/METHOD"""
    download: bool = False
    """download the data set if it is not there; the same as --data.download"""
    log: Literal["tensorboard"] | None = None
    """tensorboard: event files in each run's folder, for `tensorboard --logdir runs`"""
    fields: Annotated[Fields, arg(name="")] = field(default_factory=first_fields)


@dataclass(frozen=True)
class DataFlags:
    """Where the data are."""

    root: str | None = None
    """folder that contains the data sets; by default that of the run's recipe"""
    download: bool = False
    """download a data set if it is not there"""
    skip_unreadable: bool = False
    """skip unreadable files instead of stopping"""
    workers: int | None = None
    """loader processes for data sets that do not fit in memory"""


Runs = Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]


@dataclass(frozen=True)
class Evaluate:
    """Computes metrics of finished runs from their stored predictions; with flags, more that needs the networks."""

    runs: Positional[Runs]
    """run folders, folders of teachers, or folders that contain them"""
    corruptions: bool = False
    """measure on the test split under 19 corruptions at 5 severities, generated here"""
    corrupted: str | None = None
    """measure on a folder of published corrupted images, such as CIFAR-10-C"""
    ood: Annotated[tuple[str, ...], UseAppendAction, arg(metavar="NAME=SPEC")] = ()
    """measure on out-of-distribution images, such as svhn=svhn or lsun=folder:PATH; may be given several times"""
    subspace: bool = False
    """measure error and NLL along the line through two members, and over the plane through three"""
    health: bool = False
    """check on the test split whether averaging the members hurts"""
    costs: bool = False
    """measure seconds of training, and milliseconds per image on this device"""
    all: bool = False
    """all of the above; out-of-distribution images only if --ood says where they are"""
    images: int = 10_000
    """number of images of each split that --subspace uses"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    network: str | None = None
    """FILE.py:NAME, if the file of your own network has moved since training"""
    download: bool = False
    """download data that are not there; the same as --data.download"""
    data: DataFlags = field(default_factory=DataFlags)


@dataclass(frozen=True)
class Report:
    """Writes tables and figures of finished runs into one HTML file."""

    runs: Positional[Runs]
    """run folders, or folders that contain runs"""
    out: str | None = None
    """the file to write; by default report.html, or report with the extension of another format"""
    format: Literal["html", "md", "csv", "latex"] = "html"
    """html: a page with everything; md, csv, latex: only the tables"""
    figures: str | None = None
    """folder in which to save every figure as SVG and PDF"""


@dataclass(frozen=True)
class Export:
    """Exports the network of a finished run for serving, and checks that the exported file gives the same outputs."""

    run: Positional[Annotated[str, arg(metavar="RUN")]]
    """run folder, or folder of teachers, whose ensemble is then exported"""
    format: Literal["safetensors", "onnx", "torch-export", "hub"]
    """safetensors: weights under the network's own keys; onnx; torch-export: a program that needs only torch; hub: a
    folder with weights, program and model card"""
    out: str | None = None
    """the file to write, or with hub the folder; by default in RUN/export"""
    calibrated: bool = True
    """make the temperature that was fitted on the validation split a part of the network"""
    batch: int | None = None
    """fixed batch size that the exported program takes; by default any"""
    network: str | None = None
    """FILE.py:NAME, if the file of your own network has moved since training"""


@dataclass(frozen=True)
class Bench:
    """Measures how fast training steps are here, compared with plain PyTorch and with the limits of the hardware."""

    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    network: str | None = None
    """measure only this network: wrnDxK such as wrn28x4, FILE.py:NAME for images like CIFAR-10's, or resnet50 or vit-s
    (timm's) at 224 pixels with two members; by default wrn28x1 and wrn28x4 on a GPU, a small one on a CPU"""
    row: str | None = None
    """only the rows with this in their names, such as supervised or TDiv-SDiv; by default all"""
    batch: int | None = None
    """examples per step; by default 128 on a GPU, 32 on a CPU"""
    steps: int | None = None
    """steps that are timed together; by default 40 on a GPU, 3 on a CPU"""
    out: str | None = None
    """file for the table as JSON, with hardware, versions, commit and command"""


@dataclass(frozen=True)
class Plan:
    """Estimates what a recipe will cost here in passes, FLOPs, memory and time, before anything is trained."""

    recipe: Positional[Annotated[str, arg(metavar="RECIPE", help=NAMES)]]
    seconds: float = 4.0
    """how long to measure training steps, for the teachers and for the student each"""
    synthetic: bool = False
    """measure with random images even if the data set is there"""
    growth: Literal["counted", "measured"] = "counted"
    """how times for other numbers of members and other batch sizes are found: counted extrapolates, measured times
    each of them"""
    out: str | None = None
    """file for the plan as JSON"""
    fields: Annotated[Fields, arg(name="")] = field(default_factory=first_fields)


@dataclass(frozen=True)
class Reproduce:
    """Trains and measures whatever is still missing for a table of the paper, then writes the report."""

    table: Positional[Annotated[Tables, arg(metavar="TABLE", help=", ".join(get_args(Tables)))]]
    rows: str | None = None
    """which rows to run, such as kd,latentbe,latentbe-tdiv-sdiv, or teachers for only the teachers; by default all"""
    members: str | None = None
    """only students of this many teachers, such as 4; by default all that are in the table"""
    seeds: int | None = None
    """number of students per row; by default as many as in the paper"""
    out: str = "runs/reproduce"
    """folder for the report and for the runs, which the tables share"""
    dry_run: bool = False
    """only show the rows, with progress and cost"""
    folders: bool = False
    """with --dry-run: list every run with its folder"""
    minutes: float | None = None
    """stop after this time with everything saved; the same command resumes"""
    at_once: int | None = None
    """number of runs to train side by side on the device; by default 4 on a GPU if a step is small, else 1"""
    epochs: int | None = None
    """train for a number of epochs other than the paper's; these runs get their own folders and are not compared with
    the paper"""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N"""
    precision: Literal["auto", "float32", "bf16"] | None = None
    """precision of matrix products and convolutions; by default the recipe's"""
    root: Annotated[str | None, arg(name="data.root")] = None
    """folder that contains the data sets"""
    download: bool = False
    """download the data set if it is not there"""


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
        "onefold reproduce cifar100 --minutes 25  (on a machine borrowed for half an hour; run it again to resume)",
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
    """The recipe with the flags applied; refused if its fields make no sense."""
    return (for_teachers(request.fields) if isinstance(request, Train) else request.fields).checked()


def for_teachers(fields: Fields) -> Fields:
    """The fields for training teachers only, of any number: if the student's perturbation needs more teachers, it is
    dropped, here and in the command that is proposed next."""
    if not 1 <= fields.members < perturbation_needs(fields.distill.perturbation).teachers:
        return fields
    return replace(fields, distill=replace(fields.distill, perturbation="none"))
