"""What a table needs in addition to its runs: measurements on corrupted images and of times, for all finished runs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from onefold.engine.device import device_named
from onefold.engine.measure.corruption import measured_already
from onefold.engine.measure.costs import timed_already
from onefold.engine.measure.groups import groups
from onefold.engine.measure.inputs import DataOptions
from onefold.engine.measure.measure import Wanted, measure_runs
from onefold.engine.measure.progress import listed
from onefold.engine.measure.subject import Folder, targets_of
from onefold.reproduce.carry import Clock, Outcome, Stage
from onefold.reproduce.plan import Task
from onefold.reproduce.tables import CORRUPTED, COSTS, Table
from onefold.run import RunFolder

PUBLISHED = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}


@dataclass(frozen=True)
class Measuring:
    """One measurement of a student, or of the ensemble of the first teachers in a folder."""

    kind: str
    task: Task  # a run in the folder
    path: Path
    runs: tuple[Path, ...]

    @property
    def title(self) -> str:
        recipe = self.task.recipe
        who = f"{recipe.name}, {len(self.runs)} teachers" if self.task.member is not None else self.task.title
        return f"{self.kind} of {who}"

    @property
    def folder(self) -> Folder:
        return Folder(self.path, len(self.runs))

    @property
    def published(self) -> Path | None:
        """The folder of published corrupted images, if it is next to the data."""
        data = self.task.recipe.data
        folder = Path(data.root).expanduser() / PUBLISHED.get(data.source, "")
        return folder if data.source in PUBLISHED and folder.is_dir() else None

    @property
    def ready(self) -> bool:
        return all(RunFolder(run).finished for run in self.runs)

    @property
    def done(self) -> bool:
        """Whether it is stored. If there are no published images here, measurements on any others count as well."""
        if not self.ready:
            return False
        try:
            targets = targets_of(self.path, len(self.runs))
        except (ValueError, OSError):
            return False  # the error will be reported when it is measured
        if self.kind == COSTS:
            return timed_already(targets, device_named(self.task.recipe.device))
        return measured_already(targets, self.published, any_source=self.published is None)

    @property
    def wanted(self) -> Wanted:
        data = self.task.recipe.data
        options = DataOptions(data.root, data.download, data.skip_unreadable, data.workers)
        if self.kind == COSTS:
            return Wanted(costs=True, data=options)
        return Wanted(corruptions=self.published is None, corrupted=self.published, data=options)


def measurings_of(table: Table, tasks: Sequence[Task]) -> list[Measuring]:
    """All measurements that a table needs: of the teachers together, and of each student."""
    found = []
    for kind in table.measures:
        for folder in dict.fromkeys(task.teachers for task in tasks):
            own = [task for task in tasks if task.teachers == folder]
            teachers = [task for task in own if task.member is not None]
            if teachers:
                found.append(Measuring(kind, teachers[0], folder, tuple(task.run for task in teachers)))
            found += [Measuring(kind, task, task.run, (task.run,)) for task in own if task.member is None]
    return found


class Over(Exception):
    """The time is up; what was measured so far is stored."""


class Timed:
    """A stage of a measurement, which is abandoned between two of its parts when the time is up."""

    def __init__(self, stage: Stage, text: str, clock: Clock) -> None:
        self.stage, self.text, self.clock = stage, text, clock

    def title(self, text: str) -> None:
        self.text = text

    def count(self, done: int, total: int, detail: str = "") -> None:
        if done < total and self.clock.over():
            raise Over
        self.stage.title(self.text)
        self.stage.count(done, total, detail)

    def message(self, text: str) -> None:
        self.stage.message(text)


def measure_all(measurings: Sequence[Measuring], *, clock: Clock, stage: Stage, outcome: Outcome) -> None:
    """Measures what is missing for the runs that are finished; failures are noted, and the others continue."""
    todo = [each for each in measurings if each.ready and not each.done]
    for kind in dict.fromkeys(each.kind for each in todo if each.kind == CORRUPTED):
        for source in dict.fromkeys(each.task.recipe.data.source for each in todo if each.kind == kind):
            say_images(next(each for each in todo if each.task.recipe.data.source == source), stage)
    before = 0
    for group in together(todo):
        if clock.over():
            outcome.stopped = True
            return
        first, shows = group[0], staged(stage, heading(group, before, len(todo)), clock)
        before += len(group)
        try:
            device = device_named(first.task.recipe.device)
            told = measure_runs([each.folder for each in group], first.wanted, device, shows)
        except Over:
            outcome.stopped = True
            return
        except (ValueError, OSError) as error:
            outcome.failures += [f"{each.title}: {error}" for each in group]
        else:
            refused = [each for each in group if each.path in told.refused]
            outcome.failures += [f"{each.title}: {told.refused[each.path]}" for each in refused]
            outcome.failures += listed(told.failed)
            for sentence in told.left_out:
                stage.message(sentence)


def together(todo: Sequence[Measuring]) -> Iterator[list[Measuring]]:
    """Groups of measurements on the same corrupted images; times are measured one by one."""
    alike: dict[Hashable, dict[Folder, Measuring]] = {}
    for each in todo:
        recipe = each.task.recipe
        alike.setdefault((each.kind, recipe.device, recipe.data), {})[each.folder] = each
    for same in alike.values():
        for group in groups(list(same), next(iter(same.values())).wanted):
            yield [same[folder] for folder in group]


def heading(group: Sequence[Measuring], before: int, total: int) -> str:
    title, first, last = group[0].title, before + 1, before + len(group)
    if first == last:
        return f"measurement {first} of {total}: {title}"
    return f"measurements {first} to {last} of {total}: {title} and {last - first} more"


def staged(stage: Stage, title: str, clock: Clock) -> Callable[[str], Timed]:
    """Shows every stage of a measurement under the same title."""
    return lambda _: Timed(stage, title, clock)


def say_images(each: Measuring, stage: Stage) -> None:
    """Says which corrupted images are used, since only results on the published ones compare with the paper's."""
    data = each.task.recipe.data
    if each.published is not None:
        stage.message(f"corrupted images: {each.published}, as published")
    else:
        wanted = Path(data.root) / PUBLISHED.get(data.source, "the published ones")
        stage.message(
            f"corrupted images are generated from {data.source}'s test split, because {wanted} does not exist"
        )
