"""Which folders are measured together, so that what is the same for all of them is made or read once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from onefold.data.place import found_again, place_of
from onefold.engine.measure.inputs import DataOptions
from onefold.engine.measure.measure import Wanted
from onefold.engine.measure.subject import Folder, is_teachers
from onefold.engine.teachers import teacher_runs
from onefold.recipe import from_dict
from onefold.run import RunFolder

# At once: each folder has a file open that locks it, and its networks are on the device.
FOLDERS = 50
BYTES = 1 << 30  # of weights, as files hold them


def groups(folders: Sequence[Folder], wanted: Wanted) -> list[list[Folder]]:
    """Folders of the same data; each by itself where nothing is asked about that they could share."""
    if not wanted.corrupted_images:
        return [[folder] for folder in folders]
    alike: dict[Hashable, list[Folder]] = {}
    for folder in folders:
        alike.setdefault(data_of(folder, wanted.data), []).append(folder)
    return [part for same in alike.values() for part in parts(same)]


def data_of(folder: Folder, options: DataOptions) -> Hashable:
    """What decides which images there are and in which batches. A folder that cannot be read is alone: what is wrong
    with it is told when it is measured."""
    try:
        run = runs_of(folder)[0]
        about, data = run.about, from_dict(run.recipe).data
        form = tuple(about["class_names"]), tuple(about["image_size"]), len(about["statistics"][0])
        source = found_again(data.source, about.get("data_place"))
        return place_of(source) or source, options.root_of(data), options.skips(data), form
    except (ValueError, OSError, LookupError, TypeError):
        return folder


def parts(folders: Sequence[Folder]) -> Iterator[list[Folder]]:
    """Not more at once than `FOLDERS` and `BYTES`, or one; and none beside one that it is in, which measures it too."""
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
    """Bytes of its networks' weights."""
    return sum(run.model.stat().st_size for run in runs_of(folder) if run.model.exists())


def runs_of(folder: Folder) -> list[RunFolder]:
    return teacher_runs(folder.path, folder.teachers) if is_teachers(folder.path) else [RunFolder(folder.path)]
