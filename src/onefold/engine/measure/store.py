"""Measurements of a run as JSON files in its folder: complete ones, and partial results of interrupted ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onefold.run import unwritable, write_aside

VERSION = 1
FOLDER = "measurements"
CHUNK = 1 << 20


class Measurements:
    """RUN/measurements. `of` is a fingerprint of the networks: measurements of other networks are ignored.

    For a folder of teachers, `first` is the number of teachers in the ensemble: each such ensemble has its own folder.
    """

    def __init__(self, run: Path, of: str, first: int | None = None) -> None:
        self.folder, self.of = run / FOLDER / ("" if first is None else f"first-{first}"), of

    def stored(self, name: str) -> dict[str, Any] | None:
        """The measurement of that name, or None if there is no readable one of these networks."""
        try:
            content = json.loads((self.folder / f"{name}.json").read_text())
        except (OSError, ValueError):
            return None
        good = isinstance(content, dict) and content.get("version") == VERSION and content.get("of") == self.of
        return content if good else None

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Stores a complete measurement and deletes its partial results."""
        self._write(name, {"version": VERSION} | content | {"of": self.of})
        partial = self.folder / f"{name}.partial.json"
        if partial.exists():
            partial.unlink()

    def parts(self, name: str, about: dict[str, Any]) -> dict[str, Any]:
        """The results of an interrupted measurement by key; empty if it was made with other settings (`about`)."""
        stored = self.stored(f"{name}.partial")
        if stored is None or stored.get("about") != json.loads(json.dumps(about)):
            return {}
        found: dict[str, Any] = stored["parts"]
        return found

    def write_parts(self, name: str, about: dict[str, Any], parts: dict[str, Any]) -> None:
        self._write(f"{name}.partial", {"version": VERSION, "about": about, "parts": parts, "of": self.of})

    def _write(self, name: str, content: dict[str, Any]) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_aside(self.folder / f"{name}.json", (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise unwritable(self.folder, error) from None


def together(prints: Sequence[str]) -> str:
    """The fingerprint of several networks, from those of each."""
    return hashlib.blake2b(" ".join(prints).encode(), digest_size=16).hexdigest()


def fingerprint(models: Sequence[Path]) -> str:
    """A hash of the files that hold the networks' weights."""
    digest = hashlib.blake2b(digest_size=16)
    for path in models:
        if not path.exists():
            raise ValueError(
                f"{path} is gone, and with it the network's weights: put it back, or train the network again"
            )
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
