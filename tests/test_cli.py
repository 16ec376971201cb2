"""The command line: what it understands, what it refuses and how, and the way from data to a report."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from onefold.cli import loading, main, run_train
from onefold.cli.arguments import parse
from onefold.cli.flags import flags_of
from onefold.cli.requests import EXAMPLES, VERBS, Distill, Evaluate, Plan, Report, Train
from onefold.cli.terminal import Bars, Lines, display
from onefold.engine import Diverged, train_teachers
from onefold.recipe import leaves
from onefold.recipes import RECIPES, recipe_named

Capture = pytest.CaptureFixture[str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]


def refused(words: Sequence[str], capsys: Capture) -> str:
    """The sentence a mistake is answered with."""
    assert main(words) == 2
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert told.err.count("onefold: ") == 1, "one sentence"
    assert "images/s" not in told.err, "before any training"
    return told.err.splitlines()[-1].removeprefix("onefold: ")


@pytest.fixture(scope="module")
def teachers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two teachers, trained by the command."""
    folder = tmp_path_factory.mktemp("runs") / "teachers"
    assert main(["train", "digits", *QUICK, "--out", str(folder)]) == 0
    return folder


# What it understands


def test_flags_change_the_recipe() -> None:
    request = parse(["train", "cifar10", "--optim.lr", "0.05", "--data.no-augment", "--optim.clip", "2", "--seed=3"])
    assert isinstance(request, Train)
    recipe = request.fields.checked()
    changed = {name: value for name, value in leaves(recipe).items() if value != leaves(recipe_named("cifar10"))[name]}
    assert changed == {"optim.lr": 0.05, "data.augment": False, "optim.clip": 2.0, "seed": 3}


@pytest.mark.parametrize("name", RECIPES)
def test_without_flags_a_recipe_is_what_its_function_returns(name: str) -> None:
    request = parse(["train", name])
    assert isinstance(request, Train)
    assert request.fields.checked() == recipe_named(name)


def test_the_recipe_may_stand_behind_its_flags() -> None:
    assert parse(["train", "--epochs", "9", "imagenet"]) == parse(["train", "imagenet", "--epochs", "9"])


def test_which_teachers_and_how_many_are_two_flags() -> None:
    request = parse(["train", "cifar10", "--members", "2,3", "--recipe.members", "8"])
    assert isinstance(request, Train)
    assert (request.members, request.fields.checked().members) == ("2,3", 8)
    assert run_train.members_of("2,3", 8) == [2, 3]


def test_every_field_of_the_recipe_is_a_flag() -> None:
    for kind in (Train, Distill, Plan):
        flags = flags_of(kind)
        for name in leaves(recipe_named("cifar10")):
            flag = "--recipe.members" if name == "members" else "--" + name.replace("_", "-")
            assert flag in flags


def test_underscores_are_dashes() -> None:
    request = parse(["train", "cifar10", "--optim.batch_size", "64"])
    assert isinstance(request, Train)
    assert request.fields.optim.batch_size == 64


def test_several_runs() -> None:
    assert parse(["evaluate", "a", "b"]) == Evaluate(("a", "b"))
    assert parse(["report", "a", "b", "--out", "x.html"]) == Report(("a", "b"), "x.html")


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb_has_an_example(verb: str, capsys: Capture) -> None:
    assert main([verb, "--help"]) == 0
    told = capsys.readouterr().out
    for example in EXAMPLES[VERBS[verb]]:
        assert example.split("  ")[0].strip() in told
    assert "--out" in told or verb == "evaluate"


def test_help_of_a_recipe_shows_its_settings(capsys: Capture) -> None:
    assert main(["train", "tiny-imagenet-r18", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "resnet18-small)" in told
    assert "tau (default: 20.0)" in told


def test_help_and_no_words_at_all(capsys: Capture) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(verb in told for verb in VERBS)
    assert main([]) == 2


def test_bench_prints_a_table_and_writes_it(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "bench.json"
    words = ["bench", "--device", "cpu", "--network", "wrn10x1", "--batch", "2", "--steps", "1", "--out", str(out)]
    assert main(words) == 0
    told = capsys.readouterr()
    record = json.loads(out.read_text())
    assert [row["step"] for row in record["rows"]][2:4] == ["LatentBE-4", "LatentBE-4 + TDiv-SDiv"]
    for row in record["rows"]:
        assert f"{row['ms']:.2f}" in told.out
        assert f"{row['floor_ms']:.2f}" in told.out
    assert "a large copy" in told.err


@pytest.mark.parametrize("growth", ["counted", "measured"])
def test_plan_prints_what_a_recipe_costs(
    growth: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["plan", "digits", "--network", "mlp", "--seconds", "0.02", "--growth", growth, "--out", "plan.json"]
    assert main(words) == 0
    told = capsys.readouterr()
    record = json.loads((tmp_path / "plan.json").read_text())
    teachers, student = record["phases"]
    assert "teachers 6 forward and 1 backward; student 6 forward and 5 backward passes" in told.out
    assert (teachers["work"]["steps"], teachers["work"]["runs"], student["work"]["runs"]) == (390, 4, 1)
    assert f"{1e3 * student['measured']['step']:,.2f}" in told.out
    assert [row["what"] for row in record["growth"]][:3] == ["as it is", "M = 2", "M = 8"]
    assert f"times {growth}" in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], "nothing was trained"


def test_plan_works_without_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--network", "wrn10x1", "--optim.batch-size", "4", "--seconds", "0.01", "--device", "cpu"]
    assert main(["plan", "cifar100", *small]) == 0
    told = capsys.readouterr()
    assert "random images instead of cifar100 (cifar100: looked for" in told.err
    assert "train 45,000, val 5,000, test 10,000" in told.err
    assert "2,250,000 x 4" in told.out


# What it refuses

CIFAR = ["train", "cifar10"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian", "cifar10"], "there is no verb 'trian'; did you mean 'train'?"),
        (["fly"], "there is no verb 'fly'; there are demo, train, distill, evaluate, report, reproduce"),
        ([*CIFAR, "--optim.lrr", "1"], "there is no flag --optim.lrr; did you mean --optim.lr?"),
        ([*CIFAR, "--optim.lrr=1"], "there is no flag --optim.lrr; did you mean --optim.lr?"),
        ([*CIFAR, "--lr", "1"], "there is no flag --lr; did you mean --optim.lr?"),
        ([*CIFAR, "--temprature", "1"], "there is no flag --temprature; did you mean --distill.temperature?"),
        ([*CIFAR, "--zzzzz"], "there is no flag --zzzzz; 'onefold train --help' shows all of them"),
        (["distill", "cifar10", "--teachers", "x", "--members", "2"], "there is no flag --members; did you mean --rec"),
        ([*CIFAR, "--optim.lr", "fast"], "--optim.lr: expected a number, got 'fast'"),
        ([*CIFAR, "--epochs", "1.5"], "--epochs: expected a whole number, got '1.5'"),
        ([*CIFAR, "--epochs=many"], "--epochs: expected a whole number, got 'many'"),
        ([*CIFAR, "--epochs"], "--epochs: expected a whole number, got nothing"),
        ([*CIFAR, "--epochs", "--seed", "1"], "--epochs: expected a whole number, got nothing"),
        ([*CIFAR, "--optim.clip", "much"], "--optim.clip: expected a number or None, got 'much'"),
        ([*CIFAR, "--precision", "fp16"], "--precision: expected auto, float32 or bf16, got 'fp16'"),
        ([*CIFAR, "--data.augment", "False"], "--data.augment takes no value, got 'False'; write --data.no-augment"),
        ([*CIFAR, "cifar100"], "'cifar100' is not expected here; 'onefold train --help' shows what is"),
        (["train"], "train needs a recipe, one of digits, cifar10,"),
        (["train", "cifar11"], "recipe: there is no 'cifar11'; did you mean 'cifar10'?"),
        (["distill", "cifar10"], "distill needs --teachers; for example: onefold distill cifar10 --teachers"),
        (
            ["distill", "cifar10", "--teachers", "no/where"],
            "--teachers: there is no folder no/where; 'onefold train",
        ),
        ([*CIFAR, "--optim.lr", "-1"], "optim.lr: expected a positive number, got -1.0"),
        ([*CIFAR, "--distill.method", "latentb"], "method: there is no 'latentb'; did you mean 'latentbe'?"),
        ([*CIFAR, "--distill.method", "kd"], "perturbation: 'tdiv-sdiv' needs a student with members, and 'kd' trains"),
        ([*CIFAR, "--members", "4"], "--members: expected teachers from 0 to 3, got '4'; --recipe.members changes how"),
        ([*CIFAR, "--members", "first"], "--members: expected numbers of teachers such as 2,3, got 'first'"),
        ([*CIFAR, "--device", "abacus"], "device: expected auto, cpu, cuda or cuda:N, got 'abacus'"),
        (["train", "digits", "--network", "wrn28"], "network: there is no 'wrn28'; did you mean"),
        (["train", "digits", "--data.source", "cifra10"], "data: expected cifar10, cifar100, "),
        (["evaluate"], "evaluate needs the folder of a run; for example: onefold evaluate"),
        (["evaluate", "no/where"], "no/where: there is no such folder; give the folder of a run"),
        (["report"], "report needs the folder of a run; for example: onefold report"),
        (["report", "no/where"], "no/where: there is no such folder; give the folder of a run"),
        (["demo", "--seeds", "0"], "--seeds: expected at least 1, got 0"),
        (["demo", "--seeds", "few"], "--seeds: expected a whole number, got 'few'"),
        (["demo", "--workers", "0"], "--workers: expected at least 1, got 0"),
        (["bench", "--steps", "0"], "--steps: expected at least 1, got 0"),
        (["bench", "--batch", "1"], "--batch: expected at least 2, got 1"),
        (["bench", "--device", "abacus"], "device: expected auto, cpu, cuda or cuda:N, got 'abacus'"),
        (["bench", "--network", "wrn28"], "network: there is no 'wrn28'; did you mean"),
        (["bench", "--out", "no/where.json"], "--out: expected a file in a folder that is there, got no/where.json"),
        (["plan"], "plan needs a recipe, one of digits, cifar10,"),
        (["plan", "cifar11"], "recipe: there is no 'cifar11'; did you mean 'cifar10'?"),
        (["plan", "digits", "--seconds", "0"], "--seconds: expected more than 0 and at most 600, got 0"),
        (["plan", "digits", "--network", "wrn28"], "network: there is no 'wrn28'; did you mean"),
        (["plan", "digits", "--distill.method", "kd"], "perturbation: 'tdiv-sdiv' needs a student with members"),
        (["plan", "digits", "--data.source", "cifra10"], "data: expected cifar10, cifar100, "),
        (["plan", "digits", "--synthetic"], "--synthetic: expected one of cifar10,"),
        (["plan", "digits", "--out", "."], "--out: expected a file in a folder that is there, got ."),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(words: list[str], sentence: str, capsys: Capture) -> None:
    assert refused(words, capsys).startswith(sentence)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_cuda_where_asked(capsys: Capture) -> None:
    assert "no CUDA; use 'cpu' or 'auto'" in refused(["train", "digits", "--device", "cuda"], capsys)


def test_missing_data_say_how_to_get_them(tmp_path: Path, capsys: Capture) -> None:
    told = refused([*CIFAR, "--data.root", str(tmp_path), "--device", "cpu"], capsys)
    assert "--download" in told or "download" in told
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    told = refused(["train", "digits", *QUICK, "--out", str(tmp_path / "file" / "runs")], capsys)
    assert "cannot write" in told


def test_a_full_disk(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.run.shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    told = refused(["train", "digits", *QUICK, "--out", str(tmp_path / "runs")], capsys)
    assert "make room or choose another folder" in told


def test_teachers_that_are_not_finished(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    for m in range(2):
        folder = tmp_path / f"teacher-{m}"
        folder.mkdir()
        for file in ("recipe.json", "run.json", *(["result.json", "model.safetensors"] if m == 0 else [])):
            (folder / file).write_bytes((teachers / f"teacher-{m}" / file).read_bytes())
    words = ["distill", "digits", *QUICK, "--teachers", str(tmp_path), "--out", str(tmp_path / "student")]
    told = refused(words, capsys)
    assert "teacher-1" in told
    assert "not finished" in told


def test_teachers_of_another_data_set(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (60, 1, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "other.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    words = ["distill", "digits", *QUICK, "--data.source", f"npz:{tmp_path / 'other.npz'}"]
    told = refused([*words, "--teachers", str(teachers), "--out", str(tmp_path / "student")], capsys)
    assert "teachers" in told
    assert not (tmp_path / "student" / "checkpoints").exists()


def test_another_recipe_in_the_same_folder(teachers: Path, capsys: Capture) -> None:
    assert main(["train", "digits", *QUICK, "--optim.lr", "0.3", "--out", str(teachers)]) == 2
    told = capsys.readouterr().err
    assert "another recipe" in told
    assert f"optim.lr: {recipe_named('digits').optim.lr} -> 0.3" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--members", "0,0"], "--members: expected each teacher once, got '0,0'"),
        (["--optim.momentum", "-1"], "momentum: expected a number of at least 0, got -1.0"),
        (["--optim.clip", "0"], "clip: expected a positive number"),
        (["--optim.label-smoothing", "2"], "label_smoothing: expected a share"),
        (["--device", "meta"], "device: expected auto, cpu, cuda or cuda:N, got 'meta'"),
        (["--recipe.members", "1"], "needs at least 2 teachers, got 1; use --distill.perturbation none"),
    ],
)
def test_a_mistake_in_the_recipe_is_told_before_data_are_read(
    words: list[str], sentence: str, tmp_path: Path, capsys: Capture
) -> None:
    missing = ["--data.root", str(tmp_path), "--data.source", "cifar10", "--device", "cpu"]
    assert sentence in refused(["train", "digits", *QUICK, *missing, *words], capsys)


def test_what_a_folder_says_needs_no_data(tmp_path: Path, capsys: Capture) -> None:
    """Finished, or of another recipe: the data may be gone, or take an hour to be looked at."""
    x, y = np.zeros((60, 1, 8, 8), np.uint8), np.arange(60) % 3
    x += np.arange(60, dtype=np.uint8)[:, None, None, None]
    np.savez(tmp_path / "data.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    words = [*QUICK, "--data.source", f"npz:{tmp_path / 'data.npz'}"]
    ours, student = str(tmp_path / "teachers"), str(tmp_path / "student")
    assert main(["train", "digits", *words, "--out", ours]) == 0
    assert main(["distill", "digits", *words, "--teachers", ours, "--out", student]) == 0
    (tmp_path / "data.npz").unlink()
    capsys.readouterr()
    assert main(["train", "digits", *words, "--out", ours]) == 0
    assert main(["distill", "digits", *words, "--teachers", ours, "--out", student]) == 0
    assert capsys.readouterr().err.count("is finished; nothing was changed") == 3
    other = [*words, "--optim.lr", "0.3"]
    assert main(["train", "digits", *other, "--out", ours]) == 2
    assert main(["distill", "digits", *other, "--teachers", ours, "--out", student]) == 2
    assert capsys.readouterr().err.count("-> 0.3") == 2
    (tmp_path / "teachers" / "teacher-1" / "result.json").unlink()
    told = refused(["distill", "digits", *words, "--teachers", ours, "--out", str(tmp_path / "new")], capsys)
    assert "teacher-1" in told
    assert "not finished" in told


def test_features_and_a_network_for_images(tmp_path: Path, capsys: Capture) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    np.savez(tmp_path / "data.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    words = ["train", "digits", *QUICK, "--network", "wrn10x1", "--data.source", f"npz:{tmp_path / 'data.npz'}"]
    told = refused([*words, "--out", str(tmp_path / "runs")], capsys)
    assert told == "network: 'wrn10x1' is for images, and the examples are of shape [5]; use 'mlp'"


def test_a_disk_that_fills_up_is_said_to_with_the_file(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions are what is written last; the same command then goes on from the last checkpoint."""
    calls, fsync, out = [0], os.fsync, tmp_path / "Teachers"

    def full(descriptor: int) -> None:
        calls[0] += "predictions" in os.readlink(f"/proc/self/fd/{descriptor}")
        if calls[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    words = ["train", "digits", *QUICK, "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert main(words) == 2
    told = capsys.readouterr().err
    file = out / "teacher-0" / "predictions" / "val.npz"
    assert f"onefold: {file}: no space left on device; make room and run the same command again\n" in told
    assert "Traceback" not in told
    with monkeypatch.context() as patch:

        def no_checkpoint(descriptor: int) -> None:
            if "last.safetensors" in os.readlink(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(descriptor)

        patch.setattr(os, "fsync", no_checkpoint)
        assert main([*words[:-1], str(tmp_path / "New")]) == 2
    told = capsys.readouterr().err
    assert "onefold: the checkpoint could not be written (No space left on device), there is none before it" in told
    assert "run the same command again\n" in told
    assert main(words) == 0


@pytest.mark.parametrize("name", ["a [b] c", "{d}", ":one:", "größe 猫", "[bold]x"])
def test_names_are_shown_as_they_are(teachers: Path, tmp_path: Path, capsys: Capture, name: str) -> None:
    (tmp_path / name).symlink_to(teachers / "teacher-0")
    assert main(["evaluate", str(tmp_path / name)]) == 0
    assert name in capsys.readouterr().out
    for terminal in (False, True):
        with io.StringIO() as shown:
            with display(Console(file=shown, width=120, force_terminal=terminal)) as stages:
                stages.stage("first").message(f"folder{name}")
                stage = stages.stage(f"looking at folder{name}")
                stage.count(1, 3)
                if isinstance(stages, Bars):
                    stages.bars.refresh()
                stage.count(3, 3)
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())
        assert text.count(f"folder{name}") >= 2, text


def test_a_terminal_that_knows_ascii_only(teachers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    with io.TextIOWrapper(shown, encoding="ascii") as stream:
        monkeypatch.setattr("sys.stdout", stream)
        assert main(["evaluate", str(teachers)]) == 0
        stream.flush()
        assert b"NLL" in shown.getvalue()


def test_runs_without_predictions(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    run = tmp_path / "run"
    shutil.copytree(teachers / "teacher-0", run)
    (run / "predictions" / "test.npz").write_bytes(b"half")
    assert "test.npz: expected labels and logits" in refused(["evaluate", str(run)], capsys)
    shutil.rmtree(run / "predictions")
    assert f"{run}: expected predictions" in refused(["evaluate", str(run)], capsys)


def test_a_damaged_checkpoint_says_how_to_begin_anew(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "teacher-0"
    shutil.copytree(teachers / "teacher-0", folder)
    (folder / "result.json").unlink()
    words = ["train", "digits", *QUICK, "--members", "0", "--out", str(tmp_path)]
    for lost in ("last", "best"):
        shutil.copytree(teachers / "teacher-0" / "checkpoints", folder / "checkpoints", dirs_exist_ok=True)
        file = next((folder / "checkpoints").glob(f"{lost}*"))
        file.write_bytes(file.read_bytes()[:1000]) if lost == "last" else file.unlink()
        assert f"remove {folder / 'checkpoints'} to begin anew" in refused(words, capsys)
    shutil.rmtree(folder / "checkpoints")
    assert main(words) == 0
    ours, theirs = (f / "teacher-0" / "model.safetensors" for f in (tmp_path, teachers))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_traceback_only_with_debug(capsys: Capture) -> None:
    assert main(["report", "no/where", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_divergence_and_bugs_are_no_mistakes_of_the_user(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, sentence in ((Diverged("step 3: the loss is nan"), "step 3"), (KeyError("x"), "should not happen")):

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(run_train, "train_teachers", fail)
        assert main(["train", "digits", *QUICK]) == 1
        told = capsys.readouterr().err
        assert sentence in told
        assert "Traceback" not in told


# From data to a report


def test_the_next_command_keeps_what_was_changed(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "two words"
    words = [*QUICK, "--data.no-augment", "--optim.clip", "2"]
    assert main(["train", "digits", *words, "--out", str(folder)]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("next: ")]
    program, *rest = shlex.split(line.removeprefix("next: "))
    assert program == "onefold"
    again, given = parse(rest), parse(["distill", "digits", "--teachers", str(folder), *words])
    assert again == given


def test_train_distill_evaluate_report(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    student = tmp_path / "student"
    capsys.readouterr()
    assert main(["distill", "digits", *QUICK, "--teachers", str(teachers), "--out", str(student)]) == 0
    told = capsys.readouterr()
    assert "a step     teachers 4 forward and 1 backward; student 4 forward and 3 backward passes" in told.err
    assert f"next: onefold report {teachers} {student}" in told.err
    metrics = json.loads((student / "result.json").read_text())["metrics"]
    assert f"{metrics['nll']:.4f}" in told.out

    assert main(["evaluate", str(teachers), str(student)]) == 0
    told = capsys.readouterr()
    assert f"{metrics['nll']:.4f}" in told.out
    assert f"{100 * metrics['acc']:.2f}" in told.out

    page = tmp_path / "page.html"
    assert main(["report", str(teachers), str(student), "--out", str(page)]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == str(page)
    assert f"{metrics['cece']:.4f}" in told.out
    assert f"{metrics['cece']:.4f}" in page.read_text()

    before = (student / "result.json").stat().st_mtime_ns
    assert main(["distill", "digits", *QUICK, "--teachers", str(teachers), "--out", str(student)]) == 0
    assert "finished" in capsys.readouterr().err
    assert (student / "result.json").stat().st_mtime_ns == before


def test_some_of_the_teachers_are_those_of_all(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["train", "digits", *QUICK, "--members", "1", "--out", str(tmp_path)]) == 0
    assert "still to be trained: 0" in capsys.readouterr().err
    assert not (tmp_path / "teacher-0").exists()
    ours, theirs = (folder / "teacher-1" / "model.safetensors" for folder in (tmp_path, teachers))
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_outside_of_training_is_answered_too(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """While data are read, or the best network is evaluated at the end."""

    def interrupted(*_: Any, **__: Any) -> Any:
        signal.raise_signal(number)

    words, before = ["train", "digits", *QUICK, "--out", str(tmp_path)], signal.getsignal(signal.SIGTERM)
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    for place in ("onefold.cli.run_train.source_of", "onefold.engine.result.answers_of_all"):
        with monkeypatch.context() as patch:
            patch.setattr(place, interrupted)
            assert main(words) == 130
        told = capsys.readouterr().err
        assert "onefold: interrupted; the same command goes on from the last checkpoint\n" in told
        assert "Traceback" not in told
    signal.signal(signal.SIGINT, ignored)
    assert signal.getsignal(signal.SIGTERM) == before


def test_workers_fit_the_machine(tmp_path: Path) -> None:
    """torch warns where there are more than cores, and warnings are errors here."""
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(0, 256, (8 + i % 2, 8, 3), dtype=np.uint8)  # of two sizes, and therefore streamed
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{i}.png")
    words = ["train", "digits", *QUICK, "--members", "0", "--data.source", f"folder:{tmp_path / 'data'}"]
    assert main([*words, "--out", str(tmp_path / "runs")]) == 0


def test_an_interrupted_run_says_how_to_go_on(
    teachers: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient:
        def update(self, *_: float) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        def message(self, text: str) -> None:
            pass

    def interrupted(*arguments: Any, **options: Any) -> Any:
        return train_teachers(*arguments, **options | {"progress": Impatient()})

    words = ["train", "digits", *QUICK, "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(run_train, "train_teachers", interrupted)
        assert main(words) == 130
    told = capsys.readouterr().err
    assert "the same command goes on from there" in told
    assert "Traceback" not in told
    assert main(words) == 0
    for m in range(2):
        ours, theirs = (folder / f"teacher-{m}" / "model.safetensors" for folder in (tmp_path, teachers))
        assert ours.read_bytes() == theirs.read_bytes()


# What people see


def test_lines_say_rate_loss_learning_rate_and_time_left(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("onefold.cli.terminal.time.monotonic", lambda: now)
    with Lines(Console(stderr=True)) as shown:
        stage = shown.stage("teacher 0")
        for done in range(41):
            stage.update(done, 40, 0.5, 0.1, 1234.0)
            now += 1.0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "teacher 0:  25%, 1,234 images/s, loss 0.5000, lr 0.1000, 30 s left"
    assert lines[-1] == "teacher 0: 100%, 1,234 images/s, loss 0.5000, lr 0.1000"
    assert len(lines) == 4


def test_bars_show_rate_loss_learning_rate_and_time_left() -> None:
    console = Console(force_terminal=True, width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with Bars(console) as shown:
        stage = shown.stage("teacher 0")
        stage.update(10, 40, 0.5, 0.1, 1234.0)
        stage.message("going on")
        shown.bars.refresh()
        during = [task.description for task in shown.bars.tasks]
        stage.title("teacher 1")
        renamed = [task.description for task in shown.bars.tasks]
        stage.update(40, 40, 0.4, 0.0, 1234.0)
        after = list(shown.bars.tasks)
    console.file.close()
    told = console.export_text()
    assert (during, renamed, after) == (["teacher 0"], ["teacher 1"], [])
    for part in ("1,234 images/s", "loss 0.5000", "lr 0.1000", "25%", "going on"):
        assert part in told


def test_ctrl_c_while_modules_load_ends_the_program_and_is_handled_again_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with loading():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before
