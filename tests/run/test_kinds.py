"""What exists is replaced only if onefold wrote it, as the same kind of file."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from onefold.report.formats import comma_separated, markdown
from onefold.report.latex import latex
from onefold.report.page import page
from onefold.run import check_file
from onefold.run.kinds import KINDS, OTHERS

ENDINGS = {name: kind.endings[0] for name, kind in KINDS.items()}


def written(kind: str, path: Path, *, older: bool = False) -> None:
    """A file as onefold writes it; the ends of programs and models are tested in tests/export."""
    if kind == "html":
        text = page((), "mine")
        path.write_text('<table class="sortable" data-name="results">' if older else text)
    elif kind == "md":
        path.write_text("# onefold report\n" if older else markdown("mine", (), ()))
    elif kind == "csv":
        path.write_text(comma_separated(()))
    elif kind == "latex":
        path.write_text(latex("mine", (), ()))
    elif kind == "json":
        path.write_text(json.dumps({"date": "now", "environment": {"libraries": {}}, "rows": []}))
    elif kind == "safetensors":
        safetensors.torch.save_file({"w": torch.ones(2)}, path, {"format": "pt", "onefold": "{}"})
    elif kind == "onnx":
        path.write_bytes(bytes(1000) + b"onefold.network" + bytes(10))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/extra/onefold.json", "{}")


def foreign(kind: str, path: Path) -> None:
    """A file of the same kind by somebody else."""
    if kind == "safetensors":
        safetensors.torch.save_file({"w": torch.ones(2)}, path, {"format": "pt"})
    elif kind == "torch-export":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/extra/mine.json", "{}")
    elif kind == "json":
        path.write_text(json.dumps({"date": "now", "environment": []}))
    else:
        path.write_text("mine")


@pytest.mark.parametrize("kind", KINDS)
def test_its_own_files_are_replaced_and_no_others(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ENDINGS[kind]}"
    check_file(path, kind=kind)
    for older in (False, True):
        written(kind, path, older=older)
        check_file(path, kind=kind)
    foreign(kind, path)
    with pytest.raises(ValueError, match=r"out: .* exists already, and was not written by onefold .* another name"):
        check_file(path, kind=kind)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="exists already"):
        check_file(path, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_endings_of_other_kinds_are_refused(kind: str, tmp_path: Path) -> None:
    for ending in OTHERS - set(KINDS[kind].endings):
        with pytest.raises(ValueError, match=rf"--out: .*a\{ending} ends in .*; name it a\{ENDINGS[kind]}"):
            check_file(tmp_path / f"a{ending}", "--out", kind)
    for free in ("a", "a.other", f"a{ENDINGS[kind].upper()}"):
        check_file(tmp_path / free, kind=kind)
    written(kind, tmp_path / "a")
    check_file(tmp_path / "a", kind=kind)
    (tmp_path / "a.other").write_text("mine")
    with pytest.raises(ValueError, match="exists already"):
        check_file(tmp_path / "a.other", kind=kind)


def test_data_of_a_user_stay(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros(3))
    for kind in KINDS:
        with pytest.raises(ValueError, match=r"name it mine\."):
            check_file(tmp_path / "mine.npz", kind=kind)
