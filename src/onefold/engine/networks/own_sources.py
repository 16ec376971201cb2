"""The source files of a user's own network: its file, and the local files that it imports.

They are found by parsing, not from sys.modules, which depends on what else the process has done so far.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

INSTALLED = {"site-packages", "dist-packages"}  # where torch and other libraries are installed


def content_of(file: Path, folder: Path) -> str:
    """A hash of the file and of those it imports from the folder."""
    said = hashlib.blake2b(file.read_bytes(), digest_size=8)
    for other in sources(file, folder)[1:]:
        said.update(f"\0{os.path.relpath(other, folder)}\0".encode() + other.read_bytes())
    return said.hexdigest()


def sources(file: Path, folder: Path) -> list[Path]:
    """The file and everything it imports, directly or indirectly, from the folder; if installed, the file alone."""
    found, waiting = {file}, [] if INSTALLED & {*folder.parts} else [file]
    while waiting:
        new = set(imported_by(waiting.pop(), folder)) - found
        found |= new
        waiting += new
    return [file, *sorted(found - {file})]


def imported_by(file: Path, folder: Path) -> Iterator[Path]:
    for level, name in imports_of(file.read_bytes()):
        place = folder if level == 0 else file.parents[min(level, len(file.parents)) - 1]
        if level:
            yield from there(place / "__init__.py")
        for part in name.split("."):
            place /= part
            yield from there(place.with_name(f"{part}.py"), place / "__init__.py")


def there(*files: Path) -> Iterator[Path]:
    return (file for file in files if file.is_file())


@functools.cache
def imports_of(content: bytes) -> tuple[tuple[int, str], ...]:
    """Every import in a file as number of dots and name; `from a import b` gives a.b, which may be a module."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # not valid Python source
        return ()
    found = [(0, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found += [(node.level, f"{node.module}.{a.name}" if node.module else a.name) for a in node.names]
    return tuple(found)
