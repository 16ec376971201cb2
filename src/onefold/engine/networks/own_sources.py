"""What a network of the user's own is written in: its file, and the files that it imports from beside it.

They are found by reading, not by what has been imported, which depends on what else a process has done so far.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

INSTALLED = {"site-packages", "dist-packages"}  # where torch lies, too


def content_of(file: Path, folder: Path) -> str:
    """A hash of what is written there; imports begin in the folder."""
    said = hashlib.blake2b(file.read_bytes(), digest_size=8)
    for other in sources(file, folder)[1:]:
        said.update(f"\0{os.path.relpath(other, folder)}\0".encode() + other.read_bytes())
    return said.hexdigest()


def sources(file: Path, folder: Path) -> list[Path]:
    """The file, and all that it imports from the folder, and that these import; of an installed one, it alone."""
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
    """Every import in a file: how many dots, and the name; of `from a import b`, a.b, for that may be a module."""
    try:
        nodes = list(ast.walk(ast.parse(content)))
    except (SyntaxError, ValueError):  # not Python's source
        return ()
    found = [(0, alias.name) for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found += [(node.level, f"{node.module}.{a.name}" if node.module else a.name) for a in node.names]
    return tuple(found)
