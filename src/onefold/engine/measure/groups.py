"""Groups folders to be measured together, so that data they share are generated or read only once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from onefold.data.place import found_again, place_of
from onefold.engine.measure.inputs import DataOptions
from onefold.engine.measure.measure import Wanted
from onefold.engine.measure.subject import Folder, is_teachers
from onefold.engine.teachers import teacher_runs
from onefold.recipe import from_dict
from onefold.run import RunFolder

# Limits of a group: each of its folders has a lock file open, and its networks are on the device.
FOLDERS = 50
BYTES = 1 << 30  # of weights, by the size of their files


def groups(folders: Sequence[Folder], wanted: Wanted) -> list[list[Folder]]:
    """Groups of folders with the same data; one folder per group if nothing that is wanted could be shared."""
    if not wanted.corrupted_images:
        return [[folder] for folder in folders]
    alike: dict[Hashable, list[Folder]] = {}
    for folder in folders:
        alike.setdefault(data_of(folder, wanted.data), []).append(folder)
    return [part for same in alike.values() for part in parts(same)]


def data_of(folder: Folder, options: DataOptions) -> Hashable:
    """A key of everything that determines the images and their batches. A folder that cannot be read gets its own key:
    its error is reported when it is measured."""
    try:
        run = runs_of(folder)[0]
        about, data = run.about, from_dict(run.recipe).data
        form = tuple(about["class_names"]), tuple(about["image_size"]), len(about["statistics"][0])
        source = found_again(data.source, about.get("data_place"))
        return place_of(source) or source, options.root_of(data), options.skips(data), form
    except (ValueError, OSError, LookupError, TypeError):
        return folder


def parts(folders: Sequence[Folder]) -> Iterator[list[Folder]]:
    """Splits a group so that each part stays within `FOLDERS` and `BYTES` or is a single folder, and never contains
    nested folders, because a folder of teachers also measures (and locks) the teachers in it."""
    part: list[Folder] = []
    for folder in folders:
        more = [*part, folder]
        if part and (any(nested(folder, o) for o in part) or len(more) > FOLDERS or sum(map(size_of, more)) > BYTES):
            yield part
            more = [folder]
        part = more
    yield part


def nested(one: Folder, other: Folder) -> bool:
    a, b = one.path.resolve(), other.path.resolve()
    return a.is_relative_to(b) or b.is_relative_to(a)


def size_of(folder: Folder) -> int:
    """The size of its networks' weights in bytes."""
    return sum(run.model.stat().st_size for run in runs_of(folder) if run.model.exists())


def runs_of(folder: Folder) -> list[RunFolder]:
    return teacher_runs(folder.path, folder.teachers) if is_teachers(folder.path) else [RunFolder(folder.path)]
