"""What the numbers of a section say, in sentences."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onefold.recipes import cifar10
from onefold.report import Grid, Row, Section, collect, grids, sections, sentences
from onefold.report.grids import warnings_of
from onefold.report.measurements import Measurements
from onefold.report.words import kept, shown
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]


@pytest.fixture(scope="module")
def section(everything: Path) -> Section:
    (only,) = sections(collect([everything])[0])
    return only


@pytest.fixture(scope="module")
def tables(section: Section) -> dict[str, Grid]:
    return {grid.name: grid for grid in grids(section)}


def having(row: Row, **values: float) -> Row:
    """The row with other numbers."""
    return dataclasses.replace(row, values={key: [value] for key, value in values.items()})


def told(section: Section, **student: float) -> str:
    """Of a student of an ensemble that gains 2% and 0.1 in cNLL."""
    single, ensemble, *_, ours = section.rows
    numbers = {"acc": 0.93, "cnll": 0.2, "nll": 0.3} | student
    alone = {key: value for key, value in {"acc": 0.92, "cnll": 0.3, "nll": 0.4}.items() if key in numbers}
    together = {key: value for key, value in {"acc": 0.94, "cnll": 0.2, "nll": 0.2}.items() if key in numbers}
    return kept(having(ours, **numbers), having(ensemble, **together), having(single, **alone))


GAIN = "that the ensemble of 4 has over a single network"


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ({"cnll": 0.24, "acc": 0.935}, f"keeps 60% of the cNLL gain and 75% of the accuracy gain {GAIN}, at 1/4"),
        ({"cnll": 0.2, "acc": 0.94}, f"keeps 100% of the cNLL gain and 100% of the accuracy gain {GAIN}, at 1/4"),
        ({"cnll": 0.19, "acc": 0.941}, "is better than the ensemble of 4 in accuracy and cNLL, at 1/4 of the cost ("),
        ({"cnll": 0.19}, f"keeps 50% of the accuracy gain {GAIN}, and is better than the ensemble of 4 in cNLL, at"),
        ({"cnll": 0.31}, f"keeps 50% of the accuracy gain {GAIN}, and is worse than a single network in cNLL, at"),
        ({"cnll": 0.31, "acc": 0.91}, "is worse than a single network in accuracy and cNLL, at 1/4 of the cost ("),
        # What is left of the gain after temperature scaling does not hide what there is without it.
        ({"nll": 0.41}, "and is worse than a single network in NLL, at 1/4"),
        ({"nll": 0.41, "cnll": 0.31, "acc": 0.91}, "is worse than a single network in accuracy, NLL and cNLL, at 1/4"),
    ],
)
def test_how_much_is_kept(section: Section, student: dict[str, float], said: str) -> None:
    text = told(section, **student)
    assert said in text
    assert text.startswith("LatentBE + TDiv-SDiv ")


@pytest.mark.parametrize(
    ("method", "ours", "said"),
    [
        ("be", 0.2, "at 2.7 times the ensemble's time"),  # members take longer than separate networks
        ("be", 0.09, "at the ensemble's full cost"),
        ("be", 0.03, "at 40% of the ensemble's time"),
        ("latentbe", 0.02, "at 1/4 of the cost"),
        ("latentbe", 0.025, "at 1/4 of the cost"),
        ("latentbe", 0.03, "at 40% of the ensemble's time"),
        ("latentbe", None, "at 1/4 of the cost"),
    ],
)
def test_the_cost_is_that_of_the_measured_times_if_they_differ(
    section: Section, monkeypatch: pytest.MonkeyPatch, method: str, ours: float | None, said: str
) -> None:
    single, ensemble, *_, student = section.rows
    first = dataclasses.replace(student.first, method=method)
    student = dataclasses.replace(student, answers=(first, *student.answers[1:]))
    of_student = {} if ours is None else {"a device": ours}
    measured = lambda row: of_student if row is student else {"a device": 0.075}  # noqa: E731
    monkeypatch.setattr("onefold.report.words.milliseconds", measured)
    assert f", {said} (" in kept(student, ensemble, single)


def test_without_validation_it_goes_by_the_plain_likelihood(section: Section) -> None:
    single, ensemble, *_, ours = section.rows
    rows = [having(row, acc=0.9 + k / 100, nll=0.4 - k / 10) for k, row in ((1, ours), (2, ensemble), (0, single))]
    assert f"keeps 50% of the NLL gain and 50% of the accuracy gain {GAIN}" in kept(rows[0], rows[1], rows[2])
    assert shown(rows[0]) == "NLL 0.3000, accuracy 91.00%"


def test_the_summary_says_how_much_is_kept(section: Section, tables: dict[str, Grid]) -> None:
    said = sentences(section, list(tables.values()))
    rows = {row.label: row for row in section.rows}
    shares = []
    for key in ("cnll", "acc"):
        alone, together, ours = (rows[name].mean(key) for name in ("single network", "ensemble of 4", "LatentBE"))
        assert alone is not None
        assert together is not None
        assert ours is not None
        shares.append(f"{100 * (alone - ours) / (alone - together):.0f}%")
    (latent,) = [sentence for sentence in said if sentence.startswith("LatentBE keeps")]
    start = f"LatentBE keeps {shares[0]} of the cNLL gain and {shares[1]} of the accuracy gain {GAIN}, at 1/4 of the"
    assert latent.startswith(start)
    assert "0.110 ms per image vs. 0.410" in latent
    assert any(sentence.startswith("BE keeps") and ", at the ensemble's full cost (" in sentence for sentence in said)
    counted = re.search(
        r"Of the (\d+) results for which the paper gives a standard deviation, (\d+) are", " ".join(said)
    )
    assert counted is not None
    cells = [cell for name in ("results", "ensembles", "corruption") for _, row in tables[name].rows for cell in row]
    known = [abs(c.in_deviations) for c in cells if c.in_deviations is not None]
    assert (int(counted[1]), int(counted[2])) == (len(known), sum(value <= 2 for value in known))


def test_a_student_is_compared_with_what_was_trained_like_it(tmp_path: Path, write: WriteRun) -> None:
    """A folder may hold the same rows of another length."""
    for epochs, strength in ((60, 2.0), (200, 3.0)):
        recipe = dataclasses.replace(cifar10(), epochs=epochs)
        for m in range(4):
            path = tmp_path / str(epochs) / "teachers" / f"teacher-{m}"
            write(path, recipe, 0, member=m, strength=strength, measured=False)
        write(tmp_path / str(epochs) / "student", recipe, 0, strength=strength + 0.1, measured=False)
    (section,) = sections(collect([tmp_path])[0])
    said = sentences(section, grids(section))
    for epochs in (60, 200):
        single, ensemble, student = (row for row in section.rows if f"epochs {epochs}" in row.label)
        assert (single.first.kind, ensemble.first.kind, student.first.kind) == ("single", "ensemble", "student")
        assert kept(student, ensemble, single) in said
        assert (
            f"Single network (epochs {epochs}): {shown(single)}. Ensemble of 4 (epochs {epochs}): {shown(ensemble)}."
            in said
        )


def test_a_gain_that_nobody_sees_has_no_parts(tmp_path: Path, write: WriteRun) -> None:
    """The ensemble's NLL is some 1e-6 below that of one network: no percentage of that."""
    recipe = dataclasses.replace(cifar10(), members=2)
    for m in range(2):
        run = write(tmp_path / "teachers" / f"teacher-{m}", recipe, 0, member=0, measured=False)
        labels, logits = run.predictions("test") or pytest.fail("no predictions")
        noise = np.random.default_rng(0).normal(size=logits.shape)
        run.write_predictions("test", labels, (logits + (-1) ** m * 3e-3 * noise).astype(np.float32))
    write(tmp_path / "student", recipe, 0, strength=6.0, measured=False)
    (section,) = sections(collect([tmp_path])[0])
    own, warning = [s for s in sentences(section, grids(section)) if s.startswith("LatentBE + TDiv-SDiv")]
    assert own.endswith("The ensemble of 2 is no better than a single network in cNLL, so there is no gain to keep.")
    assert "of the cNLL gain" not in own
    assert "temperature is 1, which leaves the network as it is" in warning  # so strong a student has all of val right


def test_runs_of_a_row_that_chose_among_different_epochs_are_pointed_out(section: Section) -> None:
    assert not any("same epochs" in sentence for sentence in sentences(section, grids(section)))
    single, *others = section.rows
    assert len(single.answers) > 1
    rules = [(1, 1), (10, 10), *[(10, 10)] * (len(single.answers) - 2)]
    mixed = [dataclasses.replace(answer, candidates=rule) for answer, rule in zip(single.answers, rules, strict=True)]
    changed = dataclasses.replace(section, rows=(dataclasses.replace(single, answers=tuple(mixed)), *others))
    (said,) = (sentence for sentence in sentences(changed, grids(changed)) if "same epochs" in sentence)
    assert said == (
        f"{single.label}: these runs did not all choose their weights from the same epochs "
        "(every epoch or every 10 epochs and each of the last 10)."
    )


def test_networks_of_a_row_with_the_same_problem_get_one_warning(section: Section) -> None:
    row = next(row for row in section.rows if row.label == "LatentBE")
    checks = [answer.measurements.health for answer in row.answers]

    def warned(*warnings: str | None) -> list[str]:
        answers = []
        for answer, check, warning in zip(row.answers, checks, warnings, strict=True):
            assert check is not None
            health = dataclasses.replace(check, warning=warning)
            answers.append(dataclasses.replace(answer, measurements=Measurements(health=health)))
        return warnings_of(dataclasses.replace(row, answers=tuple(answers)))

    assert warned("it lags: 1", "it lags: 2") == ["it lags: 1 (this network and 1 more of 2)"]
    assert warned("it lags: 1", "averaging hurts: 2") == ["it lags: 1", "averaging hurts: 2"]
    assert warned(None, "it lags: 2") == ["it lags: 2"]
