"""Mistakes: one sentence with the remedy, exit code 2, before any training."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from onefold.cli import main, run_train
from onefold.engine import Diverged
from onefold.recipes import recipe_named

Capture = pytest.CaptureFixture[str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]
CIFAR = ["train", "cifar10"]
Refused = Callable[[Sequence[str]], str]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian", "cifar10"], "there is no verb 'trian'; did you mean 'train'?"),
        (["fly"], "there is no verb 'fly'; the verbs are demo, train, distill, evaluate, report, reproduce"),
        ([*CIFAR, "--optim.lrr", "1"], "there is no flag --optim.lrr; did you mean --optim.lr?"),
        ([*CIFAR, "--optim.lrr=1"], "there is no flag --optim.lrr; did you mean --optim.lr?"),
        ([*CIFAR, "--lr", "1"], "there is no flag --lr; did you mean --optim.lr?"),
        ([*CIFAR, "--temprature", "1"], "there is no flag --temprature; did you mean --distill.temperature?"),
        ([*CIFAR, "--zzzzz"], "there is no flag --zzzzz; 'onefold train --help' shows all flags"),
        (["distill", "cifar10", "--teachers", "x", "--members", "2"], "there is no flag --members; did you mean --rec"),
        ([*CIFAR, "--optim.lr", "fast"], "--optim.lr: expected a number, got 'fast'"),
        ([*CIFAR, "--epochs", "1.5"], "--epochs: expected a whole number, got '1.5'"),
        ([*CIFAR, "--epochs=many"], "--epochs: expected a whole number, got 'many'"),
        ([*CIFAR, "--epochs"], "--epochs: expected a whole number, got nothing"),
        ([*CIFAR, "--epochs", "--seed", "1"], "--epochs: expected a whole number, got nothing"),
        ([*CIFAR, "--optim.clip", "much"], "--optim.clip: expected a number or None, got 'much'"),
        ([*CIFAR, "--precision", "fp16"], "--precision: expected auto, float32 or bf16, got 'fp16'"),
        (
            [*CIFAR, "--data.augment", "False"],
            "--data.augment takes no value, got 'False'; to turn it off, write --data.no-augment",
        ),
        ([*CIFAR, "cifar100"], "unexpected argument 'cifar100'; 'onefold train --help' shows what is accepted"),
        (["train"], "train needs a recipe, one of digits, cifar10,"),
        (["train", "cifar11"], "recipe: there is no 'cifar11'; did you mean 'cifar10'?"),
        (
            ["train", "npz:mine.npz", "--network", "mlp"],
            "recipe: expected a recipe's name, got the data source 'npz:mine.npz'; give it to any recipe: "
            "onefold train cifar10 --data.source npz:mine.npz",
        ),
        ([*CIFAR, "--data", "npz:mine.npz"], "there is no flag --data; use one of --data.source, --data.root, --data."),
        (["evaluate", "src"], "src is neither a finished run nor a folder of teachers; give one of these"),
        (["distill", "cifar10"], "distill needs --teachers; for example: onefold distill cifar10 --teachers"),
        (
            ["distill", "cifar10", "--teachers", "no/where"],
            "--teachers: there is no folder no/where; 'onefold train",
        ),
        (
            ["distill", "cifar10", "--teachers", "no/where", "--recipe.members", "1"],
            "perturbation: 'tdiv-sdiv' needs at least 2 teachers, got 1; use --distill.perturbation none",
        ),
        ([*CIFAR, "--recipe.members", "0"], "members: expected at least 1, got 0"),
        ([*CIFAR, "--recipe.members", "1", "--distill.perturbation", "tdif"], "perturbation: there is no 'tdif'; did"),
        ([*CIFAR, "--optim.lr", "-1"], "optim.lr: expected a positive number, got -1.0"),
        ([*CIFAR, "--distill.method", "latentb"], "method: there is no 'latentb'; did you mean 'latentbe'?"),
        ([*CIFAR, "--distill.method", "kd"], "perturbation: 'tdiv-sdiv' needs a student with members, and 'kd' trains"),
        ([*CIFAR, "--members", "4"], "--members: expected teachers from 0 to 3, got '4'; --recipe.members changes how"),
        ([*CIFAR, "--members", "first"], "--members: expected the teachers' numbers such as 2,3, got 'first'"),
        ([*CIFAR, "--device", "abacus"], "device: expected auto, cpu, cuda or cuda:N, got 'abacus'"),
        (["train", "digits", "--network", "wrn28"], "network: there is no 'wrn28'; did you mean"),
        (
            ["train", "digits", "--network", "mine.py"],
            "network: there is no 'mine.py'; choose one of wrn28x1, wrn28x4, resnet18-small, resnet50, mlp; a network "
            "of your own is FILE.py:NAME",
        ),
        (
            ["train", "digits", "--network", "resnet18-small"],
            "network: 'resnet18-small' is for images with 3 channels, but these have 1; use 'wrn28x1'",
        ),
        (
            [*CIFAR, "--epochs", "2"],
            "optim.warmup_epochs: expected at most the 2 epochs, got 5; use --optim.warmup-epo",
        ),
        (["train", "digits", "--data.source", "cifra10"], "data: expected cifar10, cifar100, "),
        (["evaluate"], "evaluate needs a run folder; for example: onefold evaluate"),
        (["evaluate", "no/where"], "no/where: there is no such folder; give a run folder"),
        (["report"], "report needs a run folder; for example: onefold report"),
        (["report", "no/where"], "no/where: there is no such folder; give a run folder, or one that contains runs"),
        (["demo", "--seeds", "0"], "--seeds: expected at least 1, got 0"),
        (["demo", "--seeds", "few"], "--seeds: expected a whole number, got 'few'"),
        (["demo", "--workers", "0"], "--workers: expected at least 1, got 0"),
        (["bench", "--steps", "0"], "--steps: expected at least 1, got 0"),
        (
            ["bench", "--device", "cpu", "--row", "BE-5"],
            "--row: expected part of a row's name, got 'BE-5'; the rows are: su",
        ),
        (["bench", "--batch", "1"], "--batch: expected at least 2, got 1"),
        (["bench", "--device", "abacus"], "device: expected auto, cpu, cuda or cuda:N, got 'abacus'"),
        (["bench", "--network", "wrn28"], "network: there is no 'wrn28'; did you mean"),
        (["bench", "--out", "no/where.json"], "--out: expected a file in an existing folder, got no/where.json"),
        (["plan"], "plan needs a recipe, one of digits, cifar10,"),
        (["plan", "cifar11"], "recipe: there is no 'cifar11'; did you mean 'cifar10'?"),
        (["plan", "digits", "--seconds", "0"], "--seconds: expected more than 0 and at most 600, got 0"),
        (["plan", "digits", "--network", "wrn28"], "network: there is no 'wrn28'; did you mean"),
        (["plan", "digits", "--recipe.members", "1"], "perturbation: 'tdiv-sdiv' needs at least 2 teachers, got 1"),
        (
            ["plan", "digits", "--distill.method", "kd"],
            "perturbation: 'tdiv-sdiv' needs a student with members, and 'kd' trains a plain network; use --distill",
        ),
        (["plan", "digits", "--data.source", "cifra10"], "data: expected cifar10, cifar100, "),
        (["plan", "digits", "--synthetic"], "--synthetic: expected one of cifar10,"),
        (["plan", "digits", "--out", "."], "--out: expected a file in an existing folder, got ."),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(words: list[str], sentence: str, refused: Refused) -> None:
    assert refused(words).startswith(sentence)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_cuda_where_asked(refused: Refused) -> None:
    said = "device: 'cuda' was requested, but CUDA is not available here; use 'cpu' or 'auto'"
    assert refused(["train", "digits", "--device", "cuda"]) == said


def test_missing_data_say_how_to_get_them(tmp_path: Path, refused: Refused) -> None:
    told = refused([*CIFAR, "--data.root", str(tmp_path), "--device", "cpu"])
    assert "--download" in told or "download" in told
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "file").write_text("")
    told = refused(["train", "digits", *QUICK, "--out", str(tmp_path / "file" / "runs")])
    assert "cannot write" in told


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (
            [*CIFAR, "--device", "cpu", "--data.root", "no/where", "--out", "/proc/x"],
            "out: cannot write to /proc/x/teach",
        ),
        (["demo", "--out", "/proc/x"], "out: cannot write to /proc/x, "),
        (["reproduce", "cifar10", "--data.root", "no/where", "--out", "/proc/x/y"], "out: cannot write to /proc/x/y, "),
        (["report", "no/where", "--out", "/proc/x.html"], "out: cannot write to /proc/x.html, "),
        (["report", "no/where", "--figures", "/proc/x/y"], "figures: cannot write to /proc/x/y, "),
        (["plan", "digits", "--out", "/proc/x"], "--out: cannot write to /proc/x, "),
        (["bench", "--device", "cpu", "--out", "/proc/x"], "--out: cannot write to /proc/x, "),
    ],
)
def test_a_place_where_nothing_can_be_made_is_told_before_any_work(
    words: list[str], place: str, refused: Refused
) -> None:
    told = refused(words)
    assert told.startswith(place)
    assert "because nothing can be created in /proc (No such file or directory); choose another f" in told


def test_a_student_with_no_place_is_told_before_data_are_read(teachers: Path, refused: Refused) -> None:
    words = ["distill", "digits", *QUICK, "--teachers", str(teachers), "--data.source", "npz:no/where.npz"]
    assert refused([*words, "--out", "/proc/x"]).startswith(
        "out: cannot write to /proc/x, because nothing can be created"
    )


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setattr("onefold.run.places.shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    told = refused(["train", "digits", *QUICK, "--out", str(tmp_path / "runs")])
    assert "free up space or choose another folder" in told


def test_teachers_and_their_student_do_not_share_a_folder(teachers: Path, tmp_path: Path, refused: Refused) -> None:
    before = sorted(teachers.rglob("*"))
    words = ["distill", "digits", *QUICK, "--teachers", str(teachers)]
    assert refused([*words, "--out", f"{teachers}/../{teachers.name}"]).endswith(
        "is the folder of the teachers; choose another one for the student"
    )
    student = shutil.copytree(teachers / "teacher-0", tmp_path / "student")
    assert "is a run folder, not a folder of teachers" in refused(["train", "digits", *QUICK, "--out", str(student)])
    assert sorted(teachers.rglob("*")) == before
    assert not (student / "teacher-0").exists()


def test_teachers_that_are_not_finished(teachers: Path, tmp_path: Path, refused: Refused) -> None:
    for m in range(2):
        folder = tmp_path / f"teacher-{m}"
        folder.mkdir()
        for file in ("recipe.json", "run.json", *(["result.json", "model.safetensors"] if m == 0 else [])):
            (folder / file).write_bytes((teachers / f"teacher-{m}" / file).read_bytes())
    words = ["distill", "digits", *QUICK, "--teachers", str(tmp_path), "--out", str(tmp_path / "student")]
    told = refused(words)
    assert "teacher-1" in told
    assert "not finished" in told


def test_teachers_of_another_data_set(teachers: Path, tmp_path: Path, refused: Refused) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (60, 1, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "other.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    words = ["distill", "digits", *QUICK, "--data.source", f"npz:{tmp_path / 'other.npz'}"]
    told = refused([*words, "--teachers", str(teachers), "--out", str(tmp_path / "student")])
    assert "teachers" in told
    assert not (tmp_path / "student" / "checkpoints").exists()


def test_the_teachers_data_are_named_when_they_are_not_the_students(teachers: Path, capsys: Capture) -> None:
    """Who forgets --data.source asks for the data of the recipe, which may not be there."""
    words = ["distill", "cifar10", *QUICK, "--teachers", str(teachers), "--data.root", "nowhere"]
    assert main(words) == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first == "the teachers were trained on digits: --data.source digits gives the student the same data"
    assert last.startswith("onefold: cifar10: ")
    assert main([*words, "--data.source", "digits", "--network", "wrn1x1"]) == 2
    assert "the teachers were trained on" not in capsys.readouterr().err


def test_a_test_split_on_another_scale(tmp_path: Path, refused: Refused) -> None:
    x, y = np.random.default_rng(0).random((60, 1, 8, 8)), np.arange(60) % 3
    np.savez(tmp_path / "mine.npz", train_x=x, train_y=y, test_x=255 * x, test_y=y)
    words = ["train", "digits", *QUICK, "--data.source", f"npz:{tmp_path / 'mine.npz'}"]
    told = refused([*words, "--out", str(tmp_path / "runs")])
    assert f"npz:{tmp_path / 'mine.npz'}: test: expected inputs on the same scale as train" in told
    assert not (tmp_path / "runs").exists()


def test_what_may_be_a_mistake_is_told_once(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (90, 1, 8, 8), dtype=np.uint8), np.arange(90) % 3
    some = y < 2
    np.savez(tmp_path / "mine.npz", train_x=x, train_y=y, test_x=x, test_y=y, val_x=x[some], val_y=y[some])
    words = [*QUICK, "--data.source", f"npz:{tmp_path / 'mine.npz'}", "--optim.lr", "1e-9"]
    assert main(["train", "digits", *words, "--out", str(tmp_path / "teachers")]) == 0
    told = capsys.readouterr().err
    assert told.count("val has no example of 1 of the 3 classes: 2") == 1
    assert told.count("teachers 0, 1 are no better than chance on the validation split; train them longer") == 1
    words += ["--teachers", str(tmp_path / "teachers")]
    assert main(["distill", "digits", *words, "--out", str(tmp_path / "student")]) == 0
    told = capsys.readouterr().err
    assert told.count("val has no example of") == 1
    assert told.count("teachers 0, 1 look untrained: accuracy ") == 1


def test_another_recipe_in_the_same_folder(teachers: Path, capsys: Capture) -> None:
    assert main(["train", "digits", *QUICK, "--optim.lr", "0.3", "--out", str(teachers)]) == 2
    told = capsys.readouterr().err
    assert "was started with different settings" in told
    assert f"optim.lr: {recipe_named('digits').optim.lr} -> 0.3" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--members", "0,0"], "--members: expected each teacher once, got '0,0'"),
        (["--optim.momentum", "-1"], "momentum: expected a number of at least 0, got -1.0"),
        (["--optim.clip", "0"], "clip: expected a positive number"),
        (["--optim.label-smoothing", "2"], "label_smoothing: expected at least 0 and less than 1"),
        (["--device", "meta"], "device: expected auto, cpu, cuda or cuda:N, got 'meta'"),
        (
            ["--epochs", "3", "--optim.warmup-epochs", "5"],
            "optim.warmup_epochs: expected at most the 3 epochs, got 5; use --optim.warmup-epochs 0.3, a tenth of them",
        ),
        (["--optim.warmup-epochs", "-1"], "warmup_epochs: expected from 0 to the 1 epochs, got -1.0; give 0 for none"),
    ],
)
def test_a_mistake_in_the_recipe_is_told_before_data_are_read(
    words: list[str], sentence: str, tmp_path: Path, refused: Refused
) -> None:
    missing = ["--data.root", str(tmp_path), "--data.source", "cifar10", "--device", "cpu"]
    assert sentence in refused(["train", "digits", *QUICK, *missing, *words])


def test_what_a_folder_says_needs_no_data(tmp_path: Path, capsys: Capture, refused: Refused) -> None:
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
    told = refused(["distill", "digits", *words, "--teachers", ours, "--out", str(tmp_path / "new")])
    assert "teacher-1" in told
    assert "not finished" in told


def test_features_and_a_network_for_images(tmp_path: Path, refused: Refused) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    np.savez(tmp_path / "data.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    words = ["train", "digits", *QUICK, "--network", "wrn10x1", "--data.source", f"npz:{tmp_path / 'data.npz'}"]
    told = refused([*words, "--out", str(tmp_path / "runs")])
    assert told == "network: 'wrn10x1' is for images, but the examples have shape [5]; use 'mlp'"


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
    assert f"onefold: {file}: no space left on device; free up space and run the command again\n" in told
    assert "Traceback" not in told
    with monkeypatch.context() as patch:

        def no_checkpoint(descriptor: int) -> None:
            if "last.safetensors" in os.readlink(f"/proc/self/fd/{descriptor}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            fsync(descriptor)

        patch.setattr(os, "fsync", no_checkpoint)
        assert main([*words[:-1], str(tmp_path / "New")]) == 2
    told = capsys.readouterr().err
    assert "onefold: the checkpoint could not be written (No space left on device), there is no previous one" in told
    assert "; free up space and run the command again\n" in told
    assert main(words) == 0


def test_a_damaged_checkpoint_says_how_to_begin_anew(teachers: Path, tmp_path: Path, refused: Refused) -> None:
    folder = tmp_path / "teacher-0"
    shutil.copytree(teachers / "teacher-0", folder)
    (folder / "result.json").unlink()
    words = ["train", "digits", *QUICK, "--members", "0", "--out", str(tmp_path)]
    for lost in ("last", "best"):
        shutil.copytree(teachers / "teacher-0" / "checkpoints", folder / "checkpoints", dirs_exist_ok=True)
        file = next((folder / "checkpoints").glob(f"{lost}*"))
        file.write_bytes(file.read_bytes()[:1000]) if lost == "last" else file.unlink()
        assert f"remove {folder / 'checkpoints'} to start over" in refused(words)
    shutil.rmtree(folder / "checkpoints")
    assert main(words) == 0
    ours, theirs = (f / "teacher-0" / "model.safetensors" for f in (tmp_path, teachers))
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize("words", ["", "--help", "train cifar10 --help", "reproduce cifar10 --dry-run"])
def test_a_reader_that_has_gone_is_no_mistake(words: str) -> None:
    """`onefold train --help | head -1`: what argparse prints, what rich does, and our own."""
    command = [sys.executable, "-m", "onefold", *words.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141  # as of a program that SIGPIPE ended


def test_another_broken_pipe_is_told(capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(run_train, "train_teachers", fail)
    assert main(["train", "digits", *QUICK]) == 2
    assert "broken pipe" in capfd.readouterr().err


def test_a_traceback_only_with_debug(capsys: Capture) -> None:
    assert main(["report", "no/where", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_after_divergence_the_same_folder_takes_a_lower_learning_rate(tmp_path: Path, capsys: Capture) -> None:
    words = ["train", "digits", *QUICK, "--out", str(tmp_path)]
    assert main([*words, "--optim.lr", "1e30"]) == 1
    told = capsys.readouterr().err
    assert "there is no checkpoint yet" in told
    assert "lower the learning rate" in told
    assert main([*words, "--optim.lr", "0.01"]) == 0
    told = capsys.readouterr().err
    assert f"{tmp_path}/teacher-0 had saved nothing yet and begins anew with what has changed: optim.lr: " in told
    assert "teacher-1 had saved" not in told
    # What has a result stays refused.
    capsys.readouterr()
    assert main([*words, "--optim.lr", "0.02"]) == 2
    assert "teacher-0 was started with different settings" in capsys.readouterr().err


def test_divergence_and_bugs_are_no_mistakes_of_the_user(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, sentence in ((Diverged("step 3: the loss is nan"), "step 3"), (KeyError("x"), "(unexpected; --debug")):

        def fail(*_: Any, error: Exception = error, **__: Any) -> None:
            raise error

        monkeypatch.setattr(run_train, "train_teachers", fail)
        assert main(["train", "digits", *QUICK]) == 1
        told = capsys.readouterr().err
        assert sentence in told
        assert "Traceback" not in told
