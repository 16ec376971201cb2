"""Training, distilling, evaluating and reporting by commands."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onefold.cli import main
from onefold.cli.arguments import parse
from onefold.engine import evaluate_run
from onefold.run import RunFolder

Capture = pytest.CaptureFixture[str]
QUICK = ["--network", "mlp", "--epochs", "1", "--optim.warmup-epochs", "0", "--recipe.members", "2"]
Refused = Callable[[Sequence[str]], str]


def test_the_next_command_keeps_what_was_changed(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "two words"
    words = [*QUICK, "--data.no-augment", "--optim.clip", "2"]
    assert main(["train", "digits", *words, "--out", str(folder)]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("next: ")]
    program, *rest = shlex.split(line.removeprefix("next: "))
    assert program == "onefold"
    beside = ["--out", str(tmp_path / "two words-student")]  # as its teachers' folder was named
    again, given = parse(rest), parse(["distill", "digits", "--teachers", str(folder), *beside, *words])
    assert again == given


def test_train_distill_evaluate_report(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    student = tmp_path / "student"
    capsys.readouterr()
    assert main(["distill", "digits", *QUICK, "--teachers", str(teachers), "--out", str(student)]) == 0
    told = capsys.readouterr()
    assert "per step   teachers 4 forward and 1 backward; student 4 forward and 3 backward passes" in told.err
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


@pytest.mark.parametrize(
    ("acc", "nll", "worse"), [(0.0, 9.0, False), (1.0, 9.0, False), (0.0, 0.0, False), (1.0, 0.0, True)]
)
def test_a_student_is_compared_with_a_single_teacher(
    acc: float, nll: float, worse: bool, teachers: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Better in one of the two, or no worse, is no reason to speak."""
    folder, student = tmp_path / "teachers", tmp_path / "student"
    shutil.copytree(teachers, folder)
    for m, path in enumerate(sorted(folder.glob("teacher-*"))):
        result = json.loads((path / "result.json").read_text())
        result["metrics"] |= {"acc": acc, "nll": nll, "ece": 0.1 + m / 100}
        (path / "result.json").write_text(json.dumps(result))
    words = [*QUICK, "--distill.method", "kd", "--distill.perturbation", "none", "--out", str(student)]
    assert main(["distill", "digits", *words, "--teachers", str(folder)]) == 0
    told = capsys.readouterr()
    (row,) = [line for line in told.out.splitlines() if "one teacher, mean" in line]
    assert all(number in row for number in (f"{100 * acc:.2f}", f"{nll:.4f}", "0.1050"))
    lines = [line for line in told.err.splitlines() if "kd is worse than the average single teacher" in line]
    assert len(lines) == worse
    if worse:
        metrics = json.loads((student / "result.json").read_text())["metrics"]
        expected = f"({100 * metrics['acc']:.2f}% vs. 100.00%) and in NLL ({metrics['nll']:.4f} vs. 0.0000)"
        assert expected in " ".join(told.err.split())


def test_temperatures_that_val_does_not_tell_are_said_once(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    folder, student = tmp_path / "teachers", tmp_path / "student"
    shutil.copytree(teachers, folder)
    for path in folder.glob("teacher-*"):
        run = RunFolder(path)
        labels, logits = run.predictions("val") or pytest.fail("no predictions")
        run.write_predictions("val", labels, np.eye(10, dtype=np.float32)[labels])
        assert logits.shape == (len(labels), 10)
    words = [str(folder / "teacher-0"), str(folder / "teacher-1"), str(teachers)]
    capsys.readouterr()
    assert main(["evaluate", *words]) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "the temperature is" in line]
    assert told.startswith(
        f"{words[0]}, {words[1]}: the temperature is 1, which leaves the network as it is: every answer"
    )

    assert main(["distill", "digits", *QUICK, "--teachers", str(folder), "--out", str(student)]) == 0
    told = capsys.readouterr().err
    assert told.count("teachers together: the temperature is 1,") == 1


def test_one_teacher_is_trained_and_the_next_command_is_one_that_works(tmp_path: Path, capsys: Capture) -> None:
    """What a student would need several teachers for is a matter of `distill`."""
    words = [*QUICK[:-1], "1", "--out", str(tmp_path / "teachers")]
    assert main(["train", "digits", *words]) == 0
    told = capsys.readouterr().err
    assert "the student gets no perturbation: 'tdiv-sdiv' needs more teachers than 1" in told
    (line,) = [line for line in told.splitlines() if line.startswith("next: ")]
    assert main(shlex.split(line)[2:]) == 0  # beside its teachers, which have been given a place
    assert json.loads((tmp_path / "student" / "run.json").read_text())["perturbation"] == "none"
    assert main(["train", "digits", *words]) == 0
    assert "finished; nothing was changed" in capsys.readouterr().err
    assert main(["distill", "digits", "--teachers", str(tmp_path / "teachers"), *words]) == 2


def test_a_student_of_labels_does_not_stumble_over_teachers_that_are_not_finished(
    teachers: Path, tmp_path: Path, capsys: Capture
) -> None:
    folder = Path(shutil.copytree(teachers, tmp_path / "teachers"))
    (folder / "teacher-1" / "result.json").unlink()
    words = ["--distill.method", "supervised", "--distill.perturbation", "none", "--out", str(tmp_path / "student")]
    capsys.readouterr()
    assert main(["distill", "digits", *QUICK, *words, "--teachers", str(folder)]) == 0
    assert "teachers together" not in capsys.readouterr().out


def test_a_folder_of_teachers_grows_and_a_student_may_have_fewer(tmp_path: Path, capsys: Capture) -> None:
    folder, words = tmp_path / "teachers", ["train", "digits", *QUICK[:-1]]
    assert main([*words, "1", "--out", str(folder)]) == 0
    before = (folder / "teacher-0" / "result.json").stat().st_mtime_ns
    capsys.readouterr()
    assert main([*words, "3", "--out", str(folder)]) == 0
    told = capsys.readouterr().err
    assert f"{folder}/teacher-0 is finished; nothing was changed" in told
    assert "there, too" not in told
    assert (folder / "teacher-0" / "result.json").stat().st_mtime_ns == before
    assert main([*words, "2", "--out", str(folder)]) == 0
    told = capsys.readouterr().err
    assert "the folder also has teacher-2, left unchanged" in told
    assert (folder / "teacher-2" / "result.json").exists()
    (line,) = [line for line in told.splitlines() if line.startswith("next: ")]
    assert main(shlex.split(line)[2:]) == 0  # beside its teachers, which have been given a place
    together = evaluate_run(folder, 2)["nll"]
    assert f"{together:.4f}" != f"{evaluate_run(folder)['nll']:.4f}"
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "teachers together" in line]
    assert f"{together:.4f}" in row


def test_some_of_the_teachers_are_those_of_all(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    assert main(["train", "digits", *QUICK, "--members", "1", "--out", str(tmp_path)]) == 0
    assert "still to be trained: 0" in capsys.readouterr().err
    assert not (tmp_path / "teacher-0").exists()
    ours, theirs = (folder / "teacher-1" / "model.safetensors" for folder in (tmp_path, teachers))
    assert ours.read_bytes() == theirs.read_bytes()


def test_teachers_without_the_first_are_not_called_so(tmp_path: Path, capsys: Capture, refused: Refused) -> None:
    words = ["digits", *QUICK, "--recipe.members", "3", "--out", str(tmp_path / "some")]
    assert main(["train", *words, "--members", "1,2"]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "some")]) == 0
    told = capsys.readouterr()
    assert f"{tmp_path}/some: teacher-0 is missing; the row covers only teacher-1 and teacher-2\n" in told.err
    assert "DE-" not in told.out
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 0
    assert f"{tmp_path}/some: no ensemble: teacher-0 is missing\n" in capsys.readouterr().err
    said = "expected 2 teachers in {}/some, got no teacher-0; train them with `onefold train` into the same folder"
    distill = ["distill", "digits", *QUICK, "--teachers", str(tmp_path / "some"), "--out", str(tmp_path / "student")]
    for words in (["evaluate", str(tmp_path / "some"), "--costs"], distill):
        assert refused(words).endswith(said.format(tmp_path))  # without advice that is none


def test_fewer_teachers_may_be_asked_for(teachers: Path, tmp_path: Path, refused: Refused) -> None:
    words = ["distill", "digits", *QUICK, "--recipe.members", "3", "--teachers", str(teachers)]
    said = "got no teacher-2; train them with `onefold train` into the same folder, or ask for fewer members "
    assert f"{said}(--recipe.members)" in refused([*words, "--out", str(tmp_path / "student")])


def test_what_a_report_leaves_out_is_told_in_a_few_lines(teachers: Path, tmp_path: Path, capsys: Capture) -> None:
    for m in range(12):
        shutil.copytree(teachers / "teacher-0", tmp_path / str(m))
        (tmp_path / str(m) / "result.json").unlink()
    capsys.readouterr()
    assert main(["report", str(tmp_path), str(teachers), "--out", str(tmp_path / "report.html")]) == 0
    told = capsys.readouterr().err
    assert told.count("is not finished") == 10
    assert "... and 2 more lines about what is left out\n" in told


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


def test_runs_without_predictions(teachers: Path, tmp_path: Path, refused: Refused) -> None:
    run = tmp_path / "run"
    shutil.copytree(teachers / "teacher-0", run)
    (run / "predictions" / "test.npz").write_bytes(b"half")
    assert "test.npz: expected labels and logits" in refused(["evaluate", str(run)])
    shutil.rmtree(run / "predictions")
    assert f"{run}: expected predictions" in refused(["evaluate", str(run)])
