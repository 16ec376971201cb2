"""A report on twelve runs with every measurement: its numbers against those of the files, by other means."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import onefold
from onefold.cli.arguments import parse
from onefold.cli.requests import Evaluate
from onefold.cli.run_measure import wanted_of
from onefold.paper import found
from onefold.recipe import DistillRecipe
from onefold.recipes import cifar10, cifar100, digits
from onefold.report import Grid, Section, collect, grids, report, sections, sentences
from onefold.report.compare import of_paper
from onefold.report.grid import MINUS, PLUS_MINUS, SIGMA
from onefold.report.latex import split, tex
from onefold.report.missing import MANY, command, missing
from onefold.report.pictures import pictures
from onefold.run import RunFolder

WriteRun = Callable[..., RunFolder]
LABELS = ["single network", "ensemble of 4", "KD", "BE", "LatentBE", "LatentBE + TDiv-SDiv"]


@pytest.fixture(scope="module")
def section(everything: Path) -> Section:
    answers, notes = collect([everything])
    assert notes == []
    (only,) = sections(answers)
    return only


@pytest.fixture(scope="module")
def tables(section: Section) -> dict[str, Grid]:
    return {grid.name: grid for grid in grids(section)}


def nll_of(*runs: Path) -> float:
    p, labels = [], np.zeros(0)
    for run in runs:
        with np.load(run / "predictions" / "test.npz") as arrays:
            labels = arrays["labels"]
            z = arrays["logits"].astype(np.float64)
            p.append(np.exp(z) / np.exp(z).sum(1, keepdims=True))
    return float(-np.log(np.mean(p, axis=0)[np.arange(len(labels)), labels]).mean())


def test_rows_and_numbers(everything: Path, section: Section, tables: dict[str, Grid]) -> None:
    assert [row.label for row in section.rows] == LABELS
    results = dict(tables["results"].rows)
    teachers = [everything / "teachers" / f"teacher-{m}" for m in range(4)]
    each = [nll_of(path) for path in teachers]
    nll = results["single network"][1]
    assert nll.mean == pytest.approx(statistics.fmean(each), rel=1e-6)
    assert nll.deviation == pytest.approx(statistics.stdev(each), rel=1e-5)
    assert results["ensemble of 4"][1].mean == pytest.approx(nll_of(*teachers), rel=1e-6)
    students = [nll_of(everything / f"seed-{seed}" / "latentbe-tdiv-sdiv") for seed in range(2)]
    assert results["LatentBE + TDiv-SDiv"][1].mean == pytest.approx(statistics.fmean(students), rel=1e-6)
    sizes = dict(tables["ensembles"].rows)
    assert list(sizes) == ["ensemble of 1", "ensemble of 2", "ensemble of 3", "ensemble of 4"]
    for m in (1, 2, 3):
        assert sizes[f"ensemble of {m}"][1].mean == pytest.approx(nll_of(*teachers[:m]), rel=1e-6)


def test_the_papers_numbers_stand_beside_ours(tables: dict[str, Grid]) -> None:
    results = dict(tables["results"].rows)
    kd = results["KD"][1]
    assert kd.papers == f"0.270{PLUS_MINUS}0.004"
    assert kd.mean is not None
    assert kd.difference == f"{(kd.mean - 0.270) / 0.004:+.1f}{SIGMA}".replace("-", MINUS)
    ensemble = results["ensemble of 4"][0]
    assert ensemble.papers == "94.71"
    assert ensemble.mean is not None
    assert ensemble.difference == f"{ensemble.mean - 94.71:+.2f}".replace("-", MINUS)
    assert results["single network"][0].papers == f"93.05{PLUS_MINUS}0.16"
    assert results["BE"][4].papers == f"0.011{PLUS_MINUS}0.001"
    assert dict(tables["corruption"].rows)["LatentBE + TDiv-SDiv"][1].papers == f"1.237{PLUS_MINUS}0.024"
    assert dict(tables["ensembles"].rows)["ensemble of 3"][2].papers == "0.011"
    assert dict(tables["ensembles"].rows)["ensemble of 1"][1].papers == "0.271"  # DE-1, which is not the mean of all
    assert all(cell.paper is None for _, cells in tables["health"].rows for cell in cells)


def test_a_deviation_that_the_paper_rounds_to_nothing_is_no_unit(tmp_path: Path, write: WriteRun) -> None:
    distill = dataclasses.replace(cifar10().distill, method="aekd", perturbation="none")
    write(tmp_path / "a", dataclasses.replace(cifar10(), distill=distill), 0, measured=False)
    (section,) = sections(collect([tmp_path])[0])
    ece = dict(grids(section)[0].rows)["AE-KD"][2]
    assert ece.papers == f"0.042{PLUS_MINUS}0.000"
    assert ece.in_deviations is None
    assert ece.mean is not None
    assert ece.difference == f"{ece.mean - 0.042:+.3f}".replace("-", MINUS)


def test_other_recipes_are_not_compared(tmp_path: Path, write: WriteRun) -> None:
    write(tmp_path / "short", dataclasses.replace(cifar10(), epochs=60), 0, measured=False)
    write(tmp_path / "own", dataclasses.replace(cifar10(), network="wrn16x2"), 0, measured=False)
    write(tmp_path / "bf16", dataclasses.replace(cifar10(), precision="bf16"), 0, measured=False)
    by_name = {answer.paths[0].name: answer for answer in collect([tmp_path])[0]}
    assert of_paper(by_name["short"]) == of_paper(by_name["own"]) == {}
    assert of_paper(by_name["bf16"]) != {}
    said = [s for section in sections(list(by_name.values())) for s in sentences(section, grids(section))]
    because = "because settings differ: LatentBE + TDiv-SDiv (epochs 60, precision auto): epochs is 60 (paper: 200)."
    assert f"Not compared with the paper, {because}" in said


def test_cifar100_ensembles_are_compared_with_the_baselines_not_the_costs(tmp_path: Path, write: WriteRun) -> None:
    for m in range(4):
        write(tmp_path / f"teacher-{m}", cifar100(), 0, member=m, measured=False)
    ensemble = next(a for a in collect([tmp_path])[0] if a.label == "ensemble of 4")
    assert of_paper(ensemble)["cece"].mean == 0.018
    assert of_paper(ensemble, table="costs")["hours"].mean == 6.2


def test_corruption_means_leave_the_extra_ones_out(everything: Path, tables: dict[str, Grid]) -> None:
    each = []
    for seed in range(2):
        content = json.loads((everything / f"seed-{seed}" / "kd" / "measurements" / "corruption.json").read_text())
        each.append(statistics.fmean(row["acc"] for row in content["rows"] if row["corruption"] != "speckle_noise"))
    accuracy = dict(tables["corruption"].rows)["KD"][0]
    assert accuracy.mean == pytest.approx(100 * statistics.fmean(each))
    assert accuracy.deviation == pytest.approx(100 * statistics.stdev(each))


def test_an_odd_temperature_is_told_once_of_all_that_have_it(tmp_path: Path, write: WriteRun) -> None:
    for method, strength in (("kd", 6.0), ("be", 2.5), ("latentbe", 6.0)):
        recipe = dataclasses.replace(cifar10(), distill=DistillRecipe(method, "none"))
        write(tmp_path / method, recipe, 0, strength=strength, measured=False)
    (section,) = sections(collect([tmp_path])[0])
    (said,) = [s for s in sentences(section, grids(section)) if "leaves the network as it is" in s]
    assert said.startswith("KD, LatentBE: the temperature is 1,")


def test_a_temperature_that_does_harm_is_told(tmp_path: Path, write: WriteRun) -> None:
    run = write(tmp_path / "kd", cifar10(), 0, strength=2.5, measured=False)
    assert not [s for s in report_of(tmp_path) if "makes the NLL of the test split worse" in s]
    labels, logits = run.predictions("val") or pytest.fail("no predictions")
    run.write_predictions("val", labels, 0.1 * logits)  # so unsure there that it is made too sure
    (told,) = [s for s in report_of(tmp_path) if "makes the NLL of the test split worse" in s]
    assert told.startswith("LatentBE + TDiv-SDiv: the temperature makes")


def report_of(folder: Path) -> list[str]:
    (section,) = sections(collect([folder])[0])
    return sentences(section, grids(section))


def test_warnings_of_the_health_check_are_said(everything: Path, tmp_path: Path, write: WriteRun) -> None:
    del everything
    run = write(tmp_path / "a", cifar10(), 0)
    path = run.path / "measurements" / "health.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"warning": "Averaging hurts; train longer."}))
    (section,) = sections(collect([tmp_path])[0])
    assert "LatentBE + TDiv-SDiv: Averaging hurts; train longer." in sentences(section, grids(section))


def test_pictures_are_those_that_there_are_numbers_for(section: Section, tmp_path: Path, write: WriteRun) -> None:
    names = [picture.name for picture in pictures(section)]
    assert names == [
        "cost",
        "corruption",
        "learning",
        "reliability",
        "entropy",
        "entropy-histograms",
        "subspace",
        "subspace-reestimated",
        "plane-0",
        "plane-1",
        "plane-2",
        "diversity",
        "perturbation",
    ]
    write(tmp_path / "a", cifar10(), 0, measured=False)
    (bare,) = sections(collect([tmp_path])[0])
    assert [picture.name for picture in pictures(bare)] == ["learning", "reliability", "diversity", "perturbation"]
    for picture in pictures(section):
        for panel in picture.panels:
            assert re.search(r"\d", panel.description), picture.name


def test_diversity_is_that_of_the_test_split_where_it_was_logged(tmp_path: Path, write: WriteRun) -> None:
    run = write(tmp_path / "a", cifar10(), 0, measured=False)
    for held_out, end in (("test", 0.5 / 12), ("validation", 0.4 / 12)):
        (section,) = sections(collect([tmp_path])[0])
        (picture,) = [picture for picture in pictures(section) if picture.name == "diversity"]
        titles = [panel.title for panel in picture.panels]
        assert titles == ["Div on training images", f"Div on {held_out} images", "validation NLL"]
        assert picture.panels[1].description.endswith(f"to {end:.4g}.")
        log = run.path / "metrics.jsonl"  # of an older version
        log.write_text(re.sub(r', "test_div": [^}]*', "", log.read_text()))


def titles_of(section: Section, name: str) -> list[str]:
    (picture,) = [picture for picture in pictures(section) if picture.name == name]
    assert len(picture.panels) % picture.columns == 0  # no row of panels is half empty
    return [panel.title for panel in picture.panels]


def test_losses_of_different_methods_are_not_drawn_together(section: Section) -> None:
    (learning,) = [picture for picture in pictures(section) if picture.name == "learning"]
    assert titles_of(section, "learning") == ["validation error, %", "validation NLL"]
    assert "Training losses are omitted, because each method minimises a different loss" in learning.caption
    assert [label for label, _ in learning.legend] == [label for label in LABELS if label != "ensemble of 4"]
    latent = [row for row in section.rows if row.first.method in ("supervised", "latentbe")]
    few = dataclasses.replace(section, rows=tuple(latent))
    alone, students = "training loss, single networks", "training loss, LatentBE"
    assert titles_of(few, "learning") == [alone, students, "validation error, %", "validation NLL"]
    (learning,) = [picture for picture in pictures(few) if picture.name == "learning"]
    assert "single network from" in learning.panels[0].description
    assert "LatentBE + TDiv-SDiv from" in learning.panels[1].description
    assert "single network" not in learning.panels[1].description
    assert "training losses of different methods are not comparable" in learning.caption
    one = dataclasses.replace(section, rows=tuple(row for row in latent if row.first.kind == "student"))
    assert titles_of(one, "learning") == ["training loss", "validation error, %", "validation NLL"]
    assert titles_of(one, "perturbation") == ["change in TDiv", "change in SDiv"]


def test_losses_are_all_there_is_where_nothing_was_validated(section: Section) -> None:
    bare = []
    for row in section.rows:
        logs = [tuple(line for line in answer.log if line["kind"] != "val") for answer in row.answers]
        answers = [dataclasses.replace(answer, log=log) for answer, log in zip(row.answers, logs, strict=True)]
        bare.append(dataclasses.replace(row, answers=tuple(answers)))
    names = ("single networks", "KD", "BE", "LatentBE")
    assert titles_of(dataclasses.replace(section, rows=tuple(bare)), "learning") == [
        f"training loss, {name}" for name in names
    ]


def test_what_is_missing_comes_with_its_command(section: Section, tmp_path: Path, write: WriteRun) -> None:
    assert missing(section) == []
    write(tmp_path / "a", cifar10(), 0, measured=False)
    (bare,) = sections(collect([tmp_path])[0])
    lacking = {entry.what: entry for entry in missing(bare)}
    assert "corrupted images" in lacking
    assert lacking["corrupted images"].command.startswith(f"onefold evaluate {tmp_path / 'a'} --")
    page, _ = report([tmp_path], tmp_path / "r.html")
    assert '-missing">Not measured yet</h3>' in page.read_text()
    assert all("..." not in entry.command for entry in lacking.values())
    (others,) = [entry.command for entry in lacking.values() if "--ood" in entry.command]
    (spec,) = wanted_of(evaluate_asked(others)).ood.values()
    assert spec == "folder:PATH"  # which needs no download


def evaluate_asked(command: str) -> Evaluate:
    request = parse(command.split()[1:])
    assert isinstance(request, Evaluate)
    return request


def test_its_command_has_all_folders_or_the_one_that_holds_them() -> None:
    folders = [f"/runs/a b/seed-{k}" for k in range(MANY)]
    every = " ".join(f"'{folder}'" for folder in folders)
    assert command(folders, "--health", everybody=True) == f"onefold evaluate {every} --health"
    folders += ["/runs/other", "/runs/other"]
    assert command(folders, "--health", everybody=True) == "onefold evaluate /runs --health"
    assert command(folders, "--health", everybody=False) == f"onefold evaluate {every} /runs/other --health"


def test_figures_are_svg_and_pdf(tmp_path: Path, write: WriteRun) -> None:
    write(tmp_path / "a", cifar10(), 0)
    _, (section,) = report([tmp_path], tmp_path / "r.md", format="md", figures=tmp_path / "figures")
    names = {picture.name for picture in pictures(section)}
    folder = tmp_path / "figures" / "cifar10-wrn28x1"
    assert {path.name for path in folder.iterdir()} == {f"{n}.{end}" for n in names for end in ("svg", "pdf")}
    for path in folder.glob("*.pdf"):
        content = path.read_bytes()
        assert content.startswith(b"%PDF")
        assert content.rstrip().endswith(b"%%EOF")
    for path in folder.glob("*.svg"):
        drawn = ET.parse(path).getroot().iter("{http://www.w3.org/2000/svg}path")
        assert sum(1 for _ in drawn) > 10
        assert "var(--" not in path.read_text()
        assert "#0d0e" not in path.read_text()


def test_markdown_csv_and_latex_have_the_same_numbers(
    everything: Path, tables: dict[str, Grid], tmp_path: Path
) -> None:
    text = {}
    for form, ending in (("md", "md"), ("csv", "csv"), ("latex", "tex")):
        path, _ = report([everything], tmp_path / f"r.{ending}", format=form)  # type: ignore[arg-type]
        text[form] = path.read_text()
    lines = list(csv.DictReader(io.StringIO(text["csv"])))
    assert len(lines) == sum(len(cells) for grid in tables.values() for _, cells in grid.rows)
    ours = dict(tables["results"].rows)["LatentBE"][1]
    (line,) = [x for x in lines if (x["table"], x["row"], x["column"]) == ("results", "LatentBE", "NLL")]
    assert float(line["mean"]) == pytest.approx(ours.mean, rel=1e-6)
    assert float(line["deviation"]) == pytest.approx(ours.deviation, rel=1e-6)
    paper = found("CIFAR-10", "WRN28x1", "KD + LatentBE", "DE-4")["NLL"]
    assert (float(line["paper"]), float(line["paper_deviation"])) == (paper.mean, paper.std)
    assert float(line["in_deviations"]) == pytest.approx(ours.in_deviations, rel=1e-6)
    cell = f"{ours.text}{PLUS_MINUS}{ours.spread} (paper 0.263{PLUS_MINUS}0.003, {ours.difference})"
    assert cell in text["md"]
    for part in (f"{ours.text}{PLUS_MINUS}{ours.spread}", f"0.263{PLUS_MINUS}0.003", ours.difference):
        assert tex(part) in text["latex"]
    for grid in tables.values():
        rows = [x for x in text["md"].splitlines() if x.startswith("| ") and f"| {grid.headings[0]} " in x]
        assert rows
    parts = [part for grid in tables.values() for part in split(grid)]
    assert text["latex"].count(r"\begin{tabular}") == text["latex"].count(r"\bottomrule") == len(parts)
    body = [x for x in text["latex"].splitlines() if x.endswith(r"\\") and x.startswith("LatentBE &")]
    assert body[0].count("&") == 5


# Folders that are not as they should be


def test_runs_from_python_are_reported(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y = torch.rand(60, 5), torch.arange(60) % 3
    net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    common = {"val": (x[:20], y[:20]), "test": (x[20:], y[20:]), "epochs": 2, "device": "cpu"}
    teachers = []
    for m in range(2):
        made = onefold.distill(
            None,
            net,
            (x, y),
            method="supervised",
            perturbation="none",
            seed=m,
            out=tmp_path / f"t{m}",
            **common,  # type: ignore[arg-type]
        )
        teachers.append(made.model)
    student = onefold.distill(teachers, net, (x, y), perturbation="none", out=tmp_path / "s", **common)  # type: ignore[arg-type]
    _, (section,) = report([tmp_path], tmp_path / "report.html")
    assert section.title == "data given in Python, Sequential"
    assert [(row.label, row.networks) for row in section.rows] == [("single network", 2), ("LatentBE", 1)]
    assert section.rows[1].mean("nll") == pytest.approx(student.metrics["nll"], rel=1e-5)


def test_runs_from_python_are_told_apart_by_what_has_no_name(tmp_path: Path) -> None:
    """Networks of one class, tensors and own functions: they were one row, as if they were seeds."""
    torch.manual_seed(0)
    x, y = torch.rand(60, 5), torch.arange(60) % 3

    def net(width: int = 8, act: type[torch.nn.Module] = torch.nn.ReLU) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(5, width), act(), torch.nn.Linear(width, 3))

    def run(name: str, net: torch.nn.Module, x: torch.Tensor = x, y: torch.Tensor = y, **given: Any) -> None:
        settings: dict[str, Any] = {"method": "supervised", "test": (x, y), "epochs": 1, "device": "cpu"} | given
        onefold.distill(None, net, (x, y), out=tmp_path / name, **settings)

    run("a", net())
    run("again", net(), seed=1)
    run("wide", net(16))
    run("tanh", net(act=torch.nn.Tanh))
    run("adam", net(), optimizer=lambda groups: torch.optim.AdamW(groups, lr=1e-3))
    run("data", net(), x[:40] + 1, y[:40])
    _, (section,) = report([tmp_path], tmp_path / "report.md", format="md")
    labels = {row.label.removeprefix("single network "): row.networks for row in section.rows}
    assert labels == {
        "(data A, layers A, 75 parameters, SGD)": 2,
        "(data A, layers C, 147 parameters, SGD)": 1,
        "(data A, layers B, 75 parameters, SGD)": 1,
        "(data A, layers A, 75 parameters, AdamW)": 1,
        "(data B, layers A, 75 parameters, SGD)": 1,
    }
    assert "40 to 60 test examples" in (tmp_path / "report.md").read_text()


def test_names_are_escaped(tmp_path: Path, write: WriteRun) -> None:
    write(tmp_path / "<b>&" / "a", digits(), 0)
    page, _ = report([tmp_path / "<b>&"], tmp_path / "report.html", title="<script>alert(1)</script>")
    text = page.read_text()
    assert "<script>alert" not in text
    assert "&lt;b&gt;&amp;" in text
