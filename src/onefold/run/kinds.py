"""The kinds of files that a user names and onefold writes, and what may be replaced by them."""

from __future__ import annotations

import json
import mmap
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FACTS = "onefold.json"  # the facts in a program's archive
GENERATOR = '<meta name="generator" content="onefold">'
COMMENT = "<!-- made by onefold report -->"
HEAD = 1 << 16  # bytes


@dataclass(frozen=True)
class Kind:
    """`ours` tells whether a file that exists was written by onefold, older versions included."""

    what: str
    endings: tuple[str, ...]
    ours: Callable[[Path], bool]


def starts(*marks: str) -> Callable[[Path], bool]:
    return lambda path: text_of(path, HEAD).startswith(marks)


def contains(*marks: str) -> Callable[[Path], bool]:
    return lambda path: any(mark in text_of(path) for mark in marks)


def text_of(path: Path, most: int = -1) -> str:
    with path.open("rb") as file:
        return file.read(most).decode(errors="replace")


def is_record(path: Path) -> bool:
    content = json.loads(path.read_text())
    return isinstance(content, dict) and "date" in content and "libraries" in content["environment"]


def has_facts(path: Path) -> bool:
    """Whether a safetensors file has our facts in its header."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return "onefold" in header.get("__metadata__", {})


def has_metadata(path: Path) -> bool:
    """Whether an ONNX file has our facts; metadata come after the weights."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.rfind(b"onefold.network") >= 0


def is_program(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith(f"/{FACTS}") for name in archive.namelist())


KINDS = {
    "html": Kind("an HTML page", (".html", ".htm"), contains(GENERATOR, '<table class="sortable" data-name=')),
    "md": Kind("Markdown", (".md", ".markdown"), lambda p: starts("# onefold report")(p) or contains(COMMENT)(p)),
    "csv": Kind("CSV", (".csv",), starts("data,network,table,row,column,mean,")),
    "latex": Kind("LaTeX", (".tex", ".latex"), contains(r"; needs \usepackage{booktabs} and \usepackage{graphicx}")),
    "json": Kind("a JSON record", (".json",), is_record),
    "safetensors": Kind("weights as safetensors", (".safetensors",), has_facts),
    "onnx": Kind("an ONNX model", (".onnx",), has_metadata),
    "torch-export": Kind("a program of torch.export", (".pt2",), is_program),
}
# Endings of files that onefold never writes where a user says.
OTHERS = {".py", ".ipynb", ".npz", ".npy", ".pt", ".pth", ".ckpt", ".bin", ".pkl", ".h5", ".jsonl", ".yaml", ".yml"}
OTHERS |= {".toml", ".png", ".jpg", ".jpeg", ".svg", ".pdf", ".zip", ".gz", ".tar"}
OTHERS |= {ending for kind in KINDS.values() for ending in kind.endings}


def check_ending(path: Path, name: str, kind: Kind) -> None:
    """Refuses the ending of another kind of file."""
    ending = path.suffix.lower()
    if ending in OTHERS and ending not in kind.endings:
        better = path.with_suffix(kind.endings[0]).name
        raise ValueError(f"{name}: {path} ends in {ending}, and {kind.what} would be written; name it {better}")


def check_replaceable(path: Path, name: str, kind: Kind) -> None:
    """Refuses a file that exists and that onefold did not write as this kind."""
    if not path.exists():
        return
    try:
        known = kind.ours(path)
    except (ValueError, OSError, LookupError, TypeError, AttributeError, zipfile.BadZipFile):  # it is something else
        known = False
    if not known:
        raise ValueError(
            f"{name}: {path} exists already, and was not written by onefold as {kind.what}; delete it or choose "
            "another name"
        )
