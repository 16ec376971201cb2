"""Nothing that a run folder holds is replaced by what is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onefold.recipe import Recipe, to_dict
from onefold.run import RunFolder, check_file, check_folder, check_own_folder, holds_runs, in_export


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = RunFolder(tmp_path / "runs" / "one")
    folder.begin(to_dict(Recipe("mine")), {"kind": "student"}, {})
    return folder.path


def test_a_run_folder_is_left_alone(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for inside in ("model.safetensors", "result.json", "new.html", "checkpoints/a.html", "deep/er/a.html"):
        with pytest.raises(ValueError, match=rf"is in the run folder {run}, .* or in {run}/export"):
            check_file(run / inside)
    with pytest.raises(ValueError, match=r"figures: .* is a run folder"):
        check_own_folder(run, "figures")
    with pytest.raises(ValueError, match="is in the run folder"):
        check_own_folder(run / "figures")
    monkeypatch.chdir(run)
    with pytest.raises(ValueError, match="is in the run folder"):
        check_file(Path("page.html"))
    os.symlink(run, run.parent.parent / "link")
    with pytest.raises(ValueError, match="is in the run folder"):
        check_file(run.parent.parent / "link" / "page.html")
    check_folder(run)  # the run itself writes there


def test_its_folder_for_exports_is_not(run: Path) -> None:
    (run / "export").mkdir()
    (run / "export" / "model.pt2").write_bytes(b"of an older version")
    check_file(run / "export" / "model.pt2", kind="torch-export")
    check_own_folder(run / "export" / "hub")
    with pytest.raises(ValueError, match="is in the run folder"):
        check_file(run / "exports" / "model.pt2")
    with pytest.raises(ValueError, match=r"ends in \.npz"):
        check_file(run / "export" / "model.npz", kind="torch-export")


def test_what_is_beside_runs_is_free(run: Path) -> None:
    check_file(run.parent / "page.html", kind="html")
    check_own_folder(run.parent / "figures")
    assert holds_runs(run.parent)
    assert not holds_runs(run.parent.parent)
    assert not in_export(run)
    assert in_export(run.parent / "export" / "model.pt2")  # of teachers
    (run.parent / "project").mkdir()
    (run.parent / "project" / "result.json").write_text("{}")  # somebody's own, which makes no run
    check_file(run.parent / "project" / "page.html")
