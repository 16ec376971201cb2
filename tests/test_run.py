from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onefold.recipe import DataRecipe, DistillRecipe, OptimRecipe, Recipe, to_dict
from onefold.run import RunFolder, check_file, check_folder, differences, write_aside

RECIPE = Recipe("mine", optim=OptimRecipe(warmup_epochs=5))
ABOUT = {"kind": "student", "members": 4, "teachers": "runs/teachers"}


def begun(path: Path, recipe: Recipe = RECIPE, about: dict[str, Any] = ABOUT) -> RunFolder:
    run = RunFolder(path)
    run.begin(to_dict(recipe), about, {"python": "3"})
    return run


def content(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file() and p.name != ".lock"}


def test_a_folder_says_what_it_is(tmp_path: Path) -> None:
    assert not RunFolder(tmp_path / "a" / "b").started
    run = begun(tmp_path / "a" / "b")
    assert run.started
    assert not run.finished
    assert run.recipe == to_dict(RECIPE)
    assert run.about == ABOUT
    assert run.read_json("env.json") == {"python": "3"}
    assert sorted(os.listdir(run.path)) == [".lock", "checkpoints", "env.json", "recipe.json", "run.json"]
    before = content(run.path)
    run.begin(to_dict(RECIPE), ABOUT, {"python": "4"})
    assert content(run.path) == before
    with pytest.raises(ValueError, match="not a finished run"):
        _ = run.result


def test_another_recipe_is_refused_with_what_differs(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    (run.checkpoints / "last.safetensors").write_bytes(b"precious")
    before = content(run.path)
    other = Recipe("mine", epochs=100, optim=OptimRecipe(lr=0.05), distill=DistillRecipe(perturbation="tdiv"))
    with pytest.raises(ValueError) as error:
        run.begin(to_dict(other), ABOUT | {"kind": "teacher"}, {})
    lines = str(error.value).splitlines()
    assert str(run.path) in lines[0]
    assert [line.strip() for line in lines[1:]] == [
        "epochs: 200 -> 100",
        "optim.lr: 0.1 -> 0.05",
        "distill.perturbation: 'tdiv-sdiv' -> 'tdiv'",
        "run.kind: 'student' -> 'teacher'",
    ]
    assert content(run.path) == before


@pytest.mark.parametrize("saved", [None, "checkpoints/best-00000007.safetensors", "model.safetensors", "result.json"])
def test_a_run_that_has_saved_nothing_may_begin_anew_with_another_recipe(tmp_path: Path, saved: str | None) -> None:
    run = begun(tmp_path / "run")
    run.log({"kind": "train", "step": 3, "loss": 9.0})
    other = to_dict(Recipe("mine", optim=OptimRecipe(lr=0.05, warmup_epochs=5)))
    if saved is not None:
        (run.path / saved).write_text("{}")
        for refusing in (run.check_open, run.check_same):
            with pytest.raises(ValueError, match=r"different settings; .*\n  optim.lr: 0.1 -> 0.05"):
                refusing(other, ABOUT)
        assert run.recipe == to_dict(RECIPE)
        return
    run.check_open(other, ABOUT)
    with pytest.raises(ValueError, match="was started with different settings"):
        run.check_same(other, ABOUT)
    told = run.begin(other, ABOUT | {"steps": 9}, {"python": "4"})
    assert told == f"{run.path} had saved nothing yet and begins anew with what has changed: optim.lr: 0.1 -> 0.05"
    assert run.recipe == other
    assert run.read_json("env.json") == {"python": "4"}
    assert run.about == ABOUT | {"steps": 9}
    assert run.begin(other, ABOUT | {"steps": 9}, {}) is None


def test_a_run_in_progress_does_not_begin_anew(tmp_path: Path) -> None:
    """Another process is training there, before its first checkpoint."""
    run = begun(tmp_path / "run")
    code = "import sys; from onefold.run import *\nwith RunFolder(sys.argv[1]).held(): print(flush=True); input()"
    words = [sys.executable, "-c", code, str(run.path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "\n"
        with pytest.raises(ValueError, match="in use by another process"):
            run.begin({}, ABOUT, {})
        other.communicate("\n")
    assert run.recipe == to_dict(RECIPE)


def test_fields_that_change_no_result_may_differ(tmp_path: Path) -> None:
    run = begun(tmp_path)
    data = DataRecipe(root="elsewhere", download=True, workers=9)
    moved = Recipe("yours", device="cpu", data=data, optim=OptimRecipe(warmup_epochs=5.0))
    run.begin(to_dict(moved), ABOUT | {"teachers": "moved"}, {})
    assert run.recipe["name"] == "mine"


def test_a_network_may_lie_elsewhere_and_may_not_be_another(tmp_path: Path) -> None:
    def about(name: str, content: str) -> dict[str, str]:
        return {"network": name, "network_file": f"/{content}/{name}", "network_content": content}

    def recipe(name: str) -> dict[str, Any]:
        return to_dict(Recipe("mine", network=name))

    run = RunFolder(tmp_path / "run")
    run.begin(recipe("net.py:Net"), about("net.py:Net", "one"), {})
    for same in ("../other/net.py:Net", "renamed.py:Net", "a.module:Net"):
        run.check_same(recipe(same), about(same, "one"))
    for name, content, line in (
        ("net.py:Net", "two", "run.network_content: the file of the network, or one that it imports, has changed"),
        ("net.py:Other", "one", "network: 'net.py:Net' -> 'net.py:Other'"),
        ("other.py:Net", "two", "network: 'net.py:Net' -> 'other.py:Net'"),
    ):
        with pytest.raises(ValueError) as error:
            run.check_same(recipe(name), about(name, content))
        assert line in [told.strip() for told in str(error.value).splitlines()]


def test_a_folder_from_before_there_was_a_field_goes_on(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.write_json("recipe.json", {k: v for k, v in run.recipe.items() if k != "eval_last"})
    run.check_same(to_dict(RECIPE), ABOUT)
    with pytest.raises(ValueError, match=r"eval_last: 1 -> 5"):
        run.check_same(to_dict(RECIPE) | {"eval_last": 5}, ABOUT)


def test_fields_of_another_version_are_shown(tmp_path: Path) -> None:
    run = begun(tmp_path)
    record = run.recipe
    run.write_json("recipe.json", {k: v for k, v in record.items() if k != "seed"} | {"old": 1})
    with pytest.raises(ValueError) as error:
        run.check_same(to_dict(RECIPE), ABOUT)
    assert "old: 1 -> (not there)" in str(error.value)
    assert "seed: (not there) -> 0" in str(error.value)


def test_strange_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"precious")
    with pytest.raises(ValueError, match=r"contains other files but no recipe\.json"):
        begun(tmp_path)
    assert content(tmp_path) == {"model.safetensors": b"precious"}
    with pytest.raises(ValueError, match="not a run folder"):
        _ = RunFolder(tmp_path / "nothing").recipe
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match="was it edited"):
        RunFolder(tmp_path).read_json("x.json")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match="expected a JSON object, got list"):
        RunFolder(tmp_path).read_json("x.json")


def test_what_cannot_be_written_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^out: cannot write to .*/file/run \(Not a directory\); "):
        begun(tmp_path / "file" / "run")

    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 10**6))
    with pytest.raises(ValueError, match="1\\.0 MB free and the run needs 5\\.0 MB"):
        RunFolder(tmp_path / "run").begin({}, {}, {}, needed=5 * 10**6)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match=r"\(No space left on device\); free up space or choose another folder$"):
        begun(tmp_path / "run")
    assert content(tmp_path / "run") == {}


def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.seteuid(65534)  # root writes everywhere
            begun(tmp_path / "run")
        except ValueError as error:
            code = 0 if "(Permission denied)" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_lines_after_a_step_are_forgotten_and_a_torn_one_too(tmp_path: Path) -> None:
    run = begun(tmp_path)
    assert run.metrics() == []
    for step in (4, 8, 12):
        run.log({"kind": "train", "step": step})
    run.log({"kind": "val", "step": 8, "acc": 0.5})
    run.log({"kind": "result", "step": 8})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "train", "st')
    run.sync_metrics()
    assert len(run.metrics()) == 5
    run.rewind(8)
    assert run.metrics() == [
        {"kind": "train", "step": 4},
        {"kind": "train", "step": 8},
        {"kind": "val", "step": 8, "acc": 0.5},
    ]
    run.log({"kind": "train", "step": 12})
    assert [r["step"] for r in run.metrics()] == [4, 8, 8, 12]
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(ValueError, match="line 2, got 'rubbish'"):
        run.metrics()


def test_a_run_goes_on_whatever_a_power_cut_left_at_the_end_of_its_log(tmp_path: Path) -> None:
    """Up to the last checkpoint the log is on the disk; what comes after it may be holes, or half a line."""
    run = begun(tmp_path)
    good = [{"kind": "train", "step": step} for step in (4, 8)]
    for record in good:
        run.log(record)
    for torn in (
        b"\0" * 40 + b"\n",
        b'{"kind": "tra\n{"kind": "train", "step": 12}\n',
        b"\xff\xfe\n",
        b'{"step": "x"}\n7\n',
    ):
        with (tmp_path / "metrics.jsonl").open("ab") as file:
            file.write(torn)
        run.rewind(8)
        assert run.metrics() == good


def test_predictions_come_back(tmp_path: Path) -> None:
    run = begun(tmp_path)
    labels, logits = np.arange(5) % 3, np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    assert run.predictions("test") is None
    run.write_predictions("test", labels, logits)
    found = run.predictions("test")
    assert found is not None
    assert found[0].dtype == np.int64
    assert found[1].dtype == np.float32
    np.testing.assert_array_equal(found[0], labels)
    np.testing.assert_array_equal(found[1], logits)


def test_damaged_predictions_are_named(tmp_path: Path) -> None:
    run = begun(tmp_path)
    run.write_predictions("test", np.arange(5) % 3, np.zeros((5, 3), np.float32))
    file = tmp_path / "predictions" / "test.npz"
    whole = file.read_bytes()
    for content in (whole[:100], b"", b"rubbish", whole[:-40] + bytes(40)):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"test\.npz: expected labels and logits, got a damaged or foreign file"):
            run.predictions("test")
    np.savez(file, other=np.zeros(3))
    with pytest.raises(ValueError, match=r"test\.npz: expected labels and logits"):
        run.predictions("test")


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_file_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "x.json"
    write_aside(path, b"old")

    def fail(*_: object) -> None:
        assert path.read_bytes() == b"old"
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="gone"):
        write_aside(path, b"new")
    monkeypatch.undo()
    assert content(tmp_path) == {"x.json": b"old"}
    write_aside(path, b"new")
    assert content(tmp_path) == {"x.json": b"new"}


def test_a_place_is_tried_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.iterdir())
    check_folder(tmp_path)
    check_folder(tmp_path / "new" / "run")
    check_file(tmp_path / "new" / "page.html")
    with pytest.raises(
        ValueError, match=r"^out: cannot write to .*/file/a/b, .* in .*/file \(Not a directory\); choose"
    ):
        check_folder(tmp_path / "file" / "a" / "b")
    with pytest.raises(ValueError, match=r"^--out: cannot write to .*/file/page, .* choose another file$"):
        check_file(tmp_path / "file" / "page", "--out")
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("onefold.run.places.tempfile.mkdtemp", full)
    with pytest.raises(ValueError, match=r"\(No space left on device\); free up space or choose another folder$"):
        check_folder(tmp_path)


def test_what_a_killed_run_left_aside_is_cleared(tmp_path: Path) -> None:
    run = begun(tmp_path)
    (run.checkpoints / "last.safetensors.writing").write_bytes(b"half")
    (tmp_path / "result.json.writing").write_bytes(b"half")
    begun(tmp_path)
    assert not list(tmp_path.rglob("*.writing"))


def test_one_process_at_a_time(tmp_path: Path) -> None:
    run = begun(tmp_path)
    with run.held():
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with RunFolder(tmp_path).held():
                    pass
            except ValueError as error:
                code = 0 if "in use by another process" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with run.held():
        pass


def test_who_holds_a_folder_is_not_disturbed(tmp_path: Path) -> None:
    """A second process must not clear away what the first one is just writing."""
    run = begun(tmp_path)
    aside = run.checkpoints / "last.safetensors.writing"
    with run.held():
        aside.write_bytes(b"half")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                begun(tmp_path)
            except ValueError as error:
                code = 0 if "in use by another process" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert aside.exists()


def test_a_folder_is_made_where_there_is_none_and_one_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "a" / "b").held():
        pass
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ValueError, match=r"^out: cannot write to .*/file/run \(Not a directory\); make it writable"),
        RunFolder(tmp_path / "file" / "run").held(),
    ):
        pass


def test_a_run_killed_before_its_recipe_was_written_leaves_nothing_behind(tmp_path: Path) -> None:
    run = begun(tmp_path)
    (tmp_path / "recipe.json").unlink()
    run.begin({"lr": 0.5}, {"kind": "student"}, {"python": "4"})
    assert run.about == {"kind": "student"}
    assert run.read_json("env.json") == {"python": "4"}


def test_what_the_disk_refuses_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(tmp_path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        run.write_predictions("test", np.zeros(3, np.int64), np.zeros((3, 2)))
    assert caught.value.filename == str(tmp_path / "predictions" / "test.npz")
    with pytest.raises(OSError, match="No space left on device") as caught:
        run.sync_metrics()
    assert caught.value.filename == str(tmp_path / "metrics.jsonl")


def test_files_are_json_that_others_can_read(tmp_path: Path) -> None:
    run = begun(tmp_path)
    assert json.loads((tmp_path / "recipe.json").read_text())["optim"]["batch_size"] == 128
    run.write_json("result.json", {"metrics": {"acc": 0.5}})
    assert run.finished
    assert run.result == {"metrics": {"acc": 0.5}}


def test_large_predictions_stay_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)
    labels, logits = np.arange(50) % 7, np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    run.write_predictions("test", labels, logits)
    monkeypatch.setattr("onefold.predictions.files.MAPPED", 0)
    found = run.predictions("test")
    assert found is not None
    assert isinstance(found[1], np.memmap)
    np.testing.assert_array_equal(found[0], labels)
    np.testing.assert_array_equal(found[1], logits)
    path = tmp_path / "predictions" / "test.npz"
    np.savez_compressed(path, labels=labels, logits=logits)
    with pytest.raises(ValueError, match="damaged or foreign"):
        run.predictions("test")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="damaged or foreign"):
        run.predictions("test")


def test_examples_are_compared_where_both_say_what_they_are() -> None:
    said = {"run.data_content.train": "a", "run.data_content.val": "b"}
    assert differences(said, said) == []
    assert differences({}, said) == []  # a run from before it was recorded
    assert differences(said, {}) == []  # one that is only read
    (told,) = differences(said, said | {"run.data_content.val": "c"})
    assert told == "run.data_content.val: these are other examples, or other labels"


def test_folders_that_do_not_record_the_preprocessing_go_on() -> None:
    recorded = {"run.preprocessing.resize": 256, "run.preprocessing.mode": "RGB"}
    assert differences({}, recorded) == []
    assert differences(recorded, {}) == []
    (told,) = differences(recorded, recorded | {"run.preprocessing.resize": 64})
    assert told == "run.preprocessing.resize: 256 -> 64"
