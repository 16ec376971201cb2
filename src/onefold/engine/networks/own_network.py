"""A user's own network by location: FILE.py:NAME, or package.module:NAME from the working directory.

The file that a recipe names is executed, from where it was when the run was begun or else from the working directory.
A recorded place inside of a run folder is refused: that folder may have come from somebody else.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torch import nn

from onefold.engine.networks.own_arguments import wanted_by
from onefold.engine.networks.own_sources import content_of
from onefold.names import unknown

FOLDERS: set[Path] = set()  # folders of files executed by this process
RECORD = "run.json"  # marks a run folder
MANY = 20  # names that an error message lists


class Missing(ValueError):
    """The file or module does not exist."""


@dataclass(frozen=True, eq=False)
class Own:
    """The function or class that makes the network, its file, and a hash of that file and of those it imports."""

    name: str
    file: Path
    content: str
    make: Callable[..., object]
    wanted: tuple[str, ...]  # which of the arguments that can be filled in it takes
    folder: Path  # the root of its imports


def is_own(name: str) -> bool:
    return ":" in name


def own_network(name: str, file: Path | None = None) -> Own:
    """What makes the network of that name; `file` is where a run folder recorded it."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise ValueError(
            "network: expected FILE.py:NAME or package.module:NAME, NAME being a class or a function that returns "
            f"the network, got '{name}'"
        )
    if in_file(place):
        file = Path(os.path.abspath(Path(place).expanduser())) if file is None else file
        module, folder = executed(file), file.parent
    else:
        folder = Path.cwd() if file is None else folder_of(place, file)
        module = imported(place, folder, file)
        file = Path(str(module.__file__))
    make = getattr(module, attribute, None)
    if make is None and place == "timm" and module.is_model(attribute):
        make = functools.partial(module.create_model, attribute)
    if make is None:
        script = folder / f"{place}.py"  # an unrelated module of the same name may come earlier on Python's path
        near = f"write {script.name}:{attribute}" if script.is_file() and script != file else offer(attribute, module)
        raise ValueError(f"network: {file} has no '{attribute}'; {near}")
    if isinstance(make, nn.Module) or not callable(make):
        kind = "an existing network" if isinstance(make, nn.Module) else f"of type {type(make).__name__}"
        raise ValueError(
            f"network: expected a class or a function in {file} that returns a new network, got '{attribute}', {kind}"
        )
    begin = file.parent if in_file(place) else folder_of(place, file)
    return Own(name, file, content_of(file, begin), make, wanted_by(make, name), folder)


def offer(attribute: str, module: ModuleType) -> str:
    """What may have been meant by a name that a module lacks."""
    public = {name: value for name, value in vars(module).items() if name[0] != "_" and callable(value)}
    own = [name for name, value in public.items() if getattr(value, "__module__", "") == module.__name__]
    timm = module.__name__ == "timm"
    if own and len(own) <= MANY and not timm:
        return unknown(attribute, own).partition("; ")[2]
    near = difflib.get_close_matches(attribute, module.list_models() if timm else own or public, n=1)
    otherwise = "timm.list_models() has all its models" if timm else "name the module or file that defines it"
    return f"did you mean '{near[0]}'?" if near else otherwise


def recorded_network(name: str, file: str | None) -> Own:
    """A run's network: from the recorded file or else, as its recipe names it, from the working directory."""
    if file is not None and os.path.isabs(file) and os.path.isfile(file) and not in_run_folder(file):
        return own_network(name, Path(file))
    place, _, attribute = name.rpartition(":")
    moved = (
        f"network: {file or place}, which has the run's {attribute}, no longer exists; put it back, run the command in "
        f"the folder from which {place} is found, or say with --network where the same file is now"
    )
    if (file is not None and in_run_folder(file)) or (in_file(place) and in_run_folder(place)):
        raise ValueError(f"{moved}; a file in a run's folder is not executed, because it may be someone else's")
    try:
        return own_network(name)
    except Missing:
        raise ValueError(moved) from None


def in_run_folder(place: str) -> bool:
    return any((folder / RECORD).exists() for folder in Path(os.path.abspath(place)).parents)


def in_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place


def executed(file: Path) -> ModuleType:
    """Executes the file as a module, once per content; it can import files beside it."""
    if not file.is_file():
        raise Missing(f"network: there is no file {file}; give the path of a Python file, FILE.py:NAME")
    content = file.read_bytes()
    name = re.sub(r"\W", "_", file.stem) + "_" + short(str(file).encode() + b"\0" + content)
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__, module.__package__ = str(file), ""
    sys.modules[name] = module  # as the import system does: dataclasses and torch.compile look modules up there
    try:
        with reachable(file.parent), blaming(f"{file} cannot be imported", file.parent):
            exec(compile(content, str(file), "exec", dont_inherit=True), vars(module))
        check_neighbours(module, file)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    FOLDERS.add(file.parent)
    return module


def imported(place: str, folder: Path, file: Path | None) -> ModuleType:
    """The module of that dotted name, from a folder or from Python's module path."""
    try:
        with reachable(folder), blaming(f"{place} cannot be imported", folder):
            module = importlib.import_module(place)
    except ValueError as error:
        absent = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if absent is None or not f"{place}.".startswith(f"{absent}."):
            raise
        raise Missing(f"network: there is no module {place} in {folder} or among the installed ones") from None
    if getattr(module, "__file__", None) is None:
        raise Missing(f"network: {place} is not a single file; give the module that defines the network")
    if file is not None and not os.path.samefile(str(module.__file__), file):
        raise ValueError(
            f"network: expected {place} from {file}, got the one from {module.__file__}, imported earlier under that "
            "name; use a separate command for each"
        )
    return module


def folder_of(place: str, file: Path) -> Path:
    """The folder from which a module with that file is imported."""
    depth = place.count(".") + (file.name == "__init__.py")
    return file.parents[min(depth, len(file.parents) - 1)]


@contextlib.contextmanager
def reachable(folder: Path) -> Iterator[None]:
    """Inside, imports search the folder first, as for a script in that folder; afterwards they search it last."""
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def check_neighbours(module: ModuleType, file: Path) -> None:
    """Refuses a file whose import was resolved to a file beside another network: Python has one module per name."""
    for value in vars(module).values():
        name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        given = getattr(sys.modules.get(str(name)), "__file__", None)
        beside = file.parent / f"{name}.py"
        if given and Path(given) != beside and Path(given).parent in FOLDERS and beside.is_file():
            raise ValueError(
                f"network: {file} imports {beside}, got {given}, which another network had imported under that "
                "name; rename one of the two"
            )


@contextlib.contextmanager
def blaming(what: str, folder: Path) -> Iterator[None]:
    """Turns an exception from the user's code into a ValueError that says where in that code it was raised."""
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = (str(error) or "no reason given").split("\n")[0]
        remedy = "fix it"
        if isinstance(error, ImportError) and "relative import" in reason:
            remedy = "name it as a module of its package, package.module:NAME"
        if isinstance(error, SystemExit):
            remedy = "put code that should only run as a script under if __name__ == '__main__'"
        if isinstance(error, SyntaxError):
            where, reason = f"{error.filename}, line {error.lineno}" if error.filename else "unknown line", error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            own = [f for f in frames if Path(f.filename).is_relative_to(folder) and "site-packages" not in f.filename]
            where = f"{own[-1].filename}, line {own[-1].lineno}" if own else "--debug shows where"
        raise ValueError(f"network: {what}: {type(error).__name__}: {reason} ({where}); {remedy}") from error


def short(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
