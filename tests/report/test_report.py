"""Reports against numbers computed straight from the predictions."""

from __future__ import annotations

import dataclasses
import html.parser
import math
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from onefold.metrics import Classification, evaluate_predictions
from onefold.recipe import DistillRecipe, Recipe, to_dict
from onefold.report import SPEED, collect, report, sections
from onefold.report.pictures.reliability import described, panel
from onefold.report.pictures.render import panel_svg
from onefold.run import RunFolder

CLASSES = 5
Floats = npt.NDArray[np.float64]


def write_run(
    folder: Path, recipe: Recipe, seed: int, *, teacher: bool = False, finished: bool = True, labels: int = 0
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """A finished run with random answers; gives its test log-probabilities and labels."""
    rng = np.random.default_rng(seed)
    run = RunFolder(folder)
    run.begin(to_dict(recipe), {"kind": "teacher" if teacher else "student"}, {"torch": "2"})
    kept = []
    for split, count in (("val", 40), ("test", 90)):
        y = np.random.default_rng(labels + count).integers(0, CLASSES, count)
        z = rng.normal(size=(count, CLASSES)) + 2.0 * np.eye(CLASSES)[y]
        log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
        run.write_predictions(split, y, log_p)
        kept.append((log_p, y))
    if finished:
        run.write_json("result.json", {"metrics": {}, "temperature": 1.0})
    return kept[1]


def recipe_with(method: str = "latentbe", perturbation: str = "none", seed: int = 0, epochs: int = 7) -> Recipe:
    return Recipe("mine", epochs=epochs, seed=seed, distill=DistillRecipe(method, perturbation))


def plain_metrics(log_p: Floats, y: npt.NDArray[np.int64]) -> dict[str, float]:
    """Accuracy, NLL and ECE by plain loops."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(15)]
    right = nll = 0.0
    for row, label in zip(log_p, y, strict=True):
        confidence, best = float(np.exp(row).max()), int(row.argmax())
        right += best == label
        nll -= float(row[label])
        bins[min(max(math.ceil(confidence * 15) - 1, 0), 14)].append((confidence, best == label))
    gaps = [abs(sum(c for c, _ in b) - sum(h for _, h in b)) for b in bins]
    return {"acc": right / len(y), "nll": nll / len(y), "ece": sum(gaps) / len(y)}


def test_one_run_has_the_metrics_of_its_predictions(tmp_path: Path) -> None:
    log_p, y = write_run(tmp_path / "a", recipe_with(), 1)
    answers, notes = collect([tmp_path / "a"])
    (section,) = sections(answers)
    (row,) = section.rows
    assert not notes
    assert (row.label, section.data, section.network) == ("LatentBE", "digits", "wrn28x1")
    for key, value in plain_metrics(log_p, y).items():
        assert row.values[key] == pytest.approx([value], rel=1e-9)
    assert row.deviation("nll") is None


def test_calibrated_metrics_use_the_validation_split(tmp_path: Path) -> None:
    log_p, y = write_run(tmp_path / "a", recipe_with(), 1)
    stored = RunFolder(tmp_path / "a").predictions("val")
    assert stored is not None
    wanted = evaluate_predictions(
        torch.from_numpy(log_p),
        torch.from_numpy(y),
        val_logits=torch.from_numpy(np.asarray(stored[1])),
        val_labels=torch.from_numpy(stored[0]),
    )
    (answer,), _ = collect([tmp_path / "a"])
    wanted.pop("count")
    assert answer.metrics == pytest.approx(wanted)


def test_seeds_are_one_row_with_mean_and_sample_deviation(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"seed-{seed}" / "kd", recipe_with("kd", seed=seed), seed) for seed in range(3)]
    values = [plain_metrics(*run) for run in runs]
    (section,) = sections(collect([tmp_path])[0])
    (row,) = section.rows
    assert (row.label, row.networks) == ("KD", 3)
    for key in ("acc", "nll", "ece"):
        each = np.array([value[key] for value in values])
        assert row.mean(key) == pytest.approx(each.mean())
        assert row.deviation(key) == pytest.approx(each.std(ddof=1))


def test_teachers_side_by_side_are_single_networks_and_an_ensemble(tmp_path: Path) -> None:
    answers = [write_run(tmp_path / f"teacher-{m}", recipe_with(), 10 + m, teacher=True) for m in range(4)]
    (section,) = sections(collect([tmp_path])[0])
    single, ensemble = section.rows
    assert (single.label, single.networks, ensemble.label, ensemble.networks) == (
        "single network",
        4,
        "ensemble of 4",
        1,
    )
    together = np.log(np.mean([np.exp(log_p) for log_p, _ in answers], axis=0))
    for key, value in plain_metrics(together, answers[0][1]).items():
        assert ensemble.mean(key) == pytest.approx(value, rel=1e-6)
    assert single.mean("nll") == pytest.approx(np.mean([plain_metrics(*a)["nll"] for a in answers]))


def test_teachers_of_other_data_are_not_an_ensemble(tmp_path: Path) -> None:
    write_run(tmp_path / "teacher-0", recipe_with(), 0, teacher=True)
    write_run(tmp_path / "teacher-1", recipe_with(), 1, teacher=True, labels=5)
    answers, notes = collect([tmp_path])
    assert [answer.label for answer in answers] == ["single network"] * 2
    assert "expected the same labels for all teachers in a folder, got others" in notes[0]


def test_rows_stand_in_the_papers_order_and_differences_are_named(tmp_path: Path) -> None:
    write_run(tmp_path / "z", recipe_with("latentbe", "tdiv-sdiv"), 0)
    write_run(tmp_path / "y", recipe_with("latentbe", "none"), 1)
    write_run(tmp_path / "x", recipe_with("kd", "none"), 2)
    write_run(tmp_path / "w", recipe_with("kd", "none", epochs=9), 3)
    write_run(tmp_path / "t" / "teacher-0", recipe_with(), 4, teacher=True)
    write_run(tmp_path / "t" / "teacher-1", recipe_with(), 5, teacher=True)
    (section,) = sections(collect([tmp_path])[0])
    labels = [row.label for row in section.rows]
    assert labels[:2] == ["single network", "ensemble of 2"]
    assert sorted(labels[2:4]) == ["KD (epochs 7)", "KD (epochs 9)"]
    assert labels[4:] == ["LatentBE", "LatentBE + TDiv-SDiv"]


def test_other_data_or_networks_are_tables_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "a", recipe_with(), 0)
    write_run(tmp_path / "b", dataclasses.replace(recipe_with(), network="mlp"), 0)
    assert [section.network for section in sections(collect([tmp_path])[0])] == ["wrn28x1", "mlp"]


def test_networks_of_ones_own_are_known_by_what_their_files_say(tmp_path: Path) -> None:
    """Teachers that were added from another folder, or a renamed file, are of one ensemble; those of a file that was
    edited are not."""
    contents = {
        "before": ("a" * 16, "net.py:Net", "../renamed.py:Net"),
        "edited": ("b" * 16, "net.py:Net", "net.py:Net"),
    }
    for folder, (content, *names) in contents.items():
        for m, name in enumerate(names):
            run = RunFolder(tmp_path / folder / f"teacher-{m}")
            write_run(run.path, dataclasses.replace(recipe_with(), network=name), m, teacher=True)
            run.write_json("run.json", run.about | {"network": name, "network_content": content})
    answers, notes = collect([tmp_path])
    (section,) = sections(answers)
    assert notes == []
    assert section.network == "net.py:Net"
    files = [f"(network file {letter * 8})" for letter in "ab"]
    assert [row.label for row in section.rows] == [
        f"{n} {f}" for n in ("single network", "ensemble of 2") for f in files
    ]


def test_other_networks_of_a_file_are_tables_of_their_own(tmp_path: Path) -> None:
    for name in ("net.py:Net", "net.py:small", "renamed.py:small"):
        run = RunFolder(tmp_path / name)
        write_run(run.path, dataclasses.replace(recipe_with(), network=name), 0)
        run.write_json("run.json", run.about | {"network": name, "network_content": "a" * 16})
    assert [section.network for section in sections(collect([tmp_path])[0])] == ["net.py:Net", "net.py:small"]


def test_bins_of_a_row_are_those_of_all_its_answers(tmp_path: Path) -> None:
    both = Classification(CLASSES)
    for seed in range(2):
        log_p, y = write_run(tmp_path / str(seed), recipe_with(seed=seed), seed)
        both.update(torch.from_numpy(log_p), torch.from_numpy(y))
    (section,) = sections(collect([tmp_path])[0])
    torch.testing.assert_close(section.rows[0].before.count, both.reliability().count)
    torch.testing.assert_close(section.rows[0].before.accuracy, both.reliability().accuracy, equal_nan=True)


def test_measured_times_are_shown_and_an_ensemble_asks_everybody(tmp_path: Path) -> None:
    for m in range(2):
        write_run(tmp_path / f"teacher-{m}", recipe_with(), m, teacher=True)
        RunFolder(tmp_path / f"teacher-{m}").write_json(SPEED, {"ms_per_image": 0.25})
    (section,) = sections(collect([tmp_path])[0])
    single, ensemble = section.rows
    assert (single.mean("ms"), ensemble.mean("ms")) == (0.25, 0.5)
    RunFolder(tmp_path).write_json(SPEED, {"ms_per_image": 0.75})
    (section,) = sections(collect([tmp_path])[0])
    assert section.rows[1].mean("ms") == 0.75
    RunFolder(tmp_path).write_json(SPEED, {"ms_per_image": 0.75, "members": 1})  # before there were two
    (section,) = sections(collect([tmp_path])[0])
    assert section.rows[1].mean("ms") == 0.5


def test_a_run_that_is_not_finished(tmp_path: Path) -> None:
    write_run(tmp_path / "done", recipe_with(), 0)
    write_run(tmp_path / "broken", recipe_with("kd"), 1, finished=False)
    answers, notes = collect([tmp_path])
    assert [answer.label for answer in answers] == ["LatentBE"]
    assert len(notes) == 1
    assert "broken is not finished" in notes[0]
    RunFolder(tmp_path / "broken").log({"kind": "val", "step": 1200, "epoch": 3, "acc": 0.25, "nll": 1.5})
    assert collect([tmp_path / "broken"])[1][0].endswith(
        "broken is not finished (step 1,200, epoch 3, validation accuracy 25.0% and NLL 1.500); run its command again "
        "to resume"
    )


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a", recipe_with(), 0)
    answers, _ = collect([tmp_path / "a", tmp_path, tmp_path / "a"])
    assert len(answers) == 1


def test_folders_without_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such folder"):
        collect([tmp_path / "nothing"])
    with pytest.raises(ValueError, match="there are no runs in this folder"):
        collect([tmp_path])


class Outline(html.parser.HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.pictures: list[dict[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = dict(attrs)
        self.ids += [found["id"] or ""] if "id" in found else []
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag == "svg":
            self.pictures.append(found)


def test_the_page_needs_nothing_else_and_has_the_numbers(tmp_path: Path) -> None:
    for seed in range(2):
        write_run(tmp_path / f"seed-{seed}" / "a", recipe_with(seed=seed), seed)
        write_run(tmp_path / f"seed-{seed}" / "b", recipe_with("kd", seed=seed), 5 + seed)
    page, tables = report([tmp_path], tmp_path / "page" / "report.html", title="A & B", introduction=["x < y"])
    text = page.read_text()
    outline = Outline()
    outline.feed(text)
    assert not re.search(r"https?:|//\w+\.|@import|url\((?!#)", text)
    assert not {"img", "iframe", "object"} & set(outline.tags)
    own = [reference[1:] for reference in outline.references if reference.startswith("#")]
    assert [reference for reference in outline.references if not reference.startswith("#")] == ["data:,"]
    assert set(own) <= set(outline.ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(outline.ids)
    assert len(outline.ids) == len(set(outline.ids))
    assert "A &amp; B" in text
    assert "x &lt; y" in text
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    for row in tables[0].rows:
        for key, digits, scale in (("acc", 2, 100), ("nll", 4, 1), ("cece", 4, 1)):
            mean, deviation = row.mean(key), row.deviation(key)
            assert mean is not None
            assert deviation is not None
            assert f"{mean * scale:.{digits}f}<" in text
            assert f"±&nbsp;{deviation * scale:.{digits}f}<" in text


def test_every_picture_is_described_in_words(tmp_path: Path) -> None:
    write_run(tmp_path / "a", recipe_with(), 0)
    page, _ = report([tmp_path], tmp_path / "report.html")
    outline = Outline()
    outline.feed(page.read_text())
    before, after = outline.pictures
    assert before["role"] == after["role"] == "img"
    assert (before["aria-label"] or "").startswith("Reliability diagram of LatentBE, 90 predictions")
    assert (after["aria-label"] or "").startswith("Reliability diagram of LatentBE at temperature")


def test_pictures_take_the_pages_colours_and_are_the_same_twice(tmp_path: Path) -> None:
    write_run(tmp_path / "a", recipe_with(), 0)
    (section,) = sections(collect([tmp_path])[0])
    row = section.rows[0]
    bins = row.before
    drawn = panel_svg(panel(row, bins, "", "ece"), "a")
    assert drawn == panel_svg(panel(row, bins, "", "ece"), "a")
    assert panel(row, bins, "", "ece").under == f"T 1, ECE {row.mean('ece'):.4f}"
    assert panel(row, bins, "1.52", "cece").under == f"T 1.52, ECE {row.mean('cece'):.4f}"
    assert "var(--accuracy)" in drawn
    assert "var(--gap)" in drawn
    assert not re.search(r"(fill|stroke): #(?!ffffff)", drawn)
    worst = max(range(15), key=lambda i: float((bins.accuracy - bins.confidence).abs().nan_to_num()[i] * bins.count[i]))
    assert f"confidence {worst / 15:.2f} to {(worst + 1) / 15:.2f}" in described(bins, "a")


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", recipe_with(), 0)
    with pytest.raises(ValueError, match="is a folder"):
        report([tmp_path], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write"):
        report([tmp_path], tmp_path / "file" / "page.html")
    with pytest.raises(ValueError, match="figures: cannot write"):
        report([tmp_path], tmp_path / "x.html", figures=tmp_path / "file")
    with pytest.raises(ValueError, match="format: expected html, md, csv, latex, got 'pdf'"):
        report([tmp_path], tmp_path / "x.html", format="pdf")  # type: ignore[arg-type]
