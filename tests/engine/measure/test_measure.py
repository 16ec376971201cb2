from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from onefold.data import Arrays, load
from onefold.data.augment import as_input
from onefold.data.corrupt import corrupt
from onefold.engine.evaluate import evaluate_run
from onefold.engine.measure.corruption import corruption
from onefold.engine.measure.costs import costs
from onefold.engine.measure.health import health
from onefold.engine.measure.inputs import DataOptions, RunData
from onefold.engine.measure.members import members
from onefold.engine.measure.ood import ood
from onefold.engine.measure.progress import Counting, Told
from onefold.engine.measure.subject import Folder, Subject, subject_of
from onefold.engine.measure.subspace import GRID, T, subspace
from onefold.engine.networks.named import network_of
from onefold.ensemble import collapse, subnetwork
from onefold.metrics import detection, evaluate_predictions, log_mean_probabilities, predictive_entropy
from onefold.run import RunFolder

Copied = Callable[[str], Path]
CPU = torch.device("cpu")
# The package; onefold.data has a function of that name.
CORRUPT = importlib.import_module("onefold.data.corrupt")
TWO = ("contrast", "shot_noise")


class Quiet:
    """Says nothing."""

    def title(self, text: str) -> None:
        pass

    def count(self, done: int, total: int, detail: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        pass


class Heard(Quiet):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def measured(run: Path) -> tuple[Subject, RunData]:
    subject = subject_of(Folder(run), CPU)
    return subject, RunData(subject, DataOptions())


def corrupted(run: Path, folder: Path | None = None, progress: Counting | None = None) -> None:
    """Everything is measured, and nothing left out."""
    subject, data = measured(run)
    told = Told()
    corruption([subject], data, folder, progress or Quiet(), told)
    assert told == Told()


def read(run: Path, name: str, first: int | None = None) -> dict[str, Any]:
    """A measurement; of a folder of teachers, that of the first three together, if nothing else is said."""
    first = 3 if first is None and run.name == "teachers" and name != "members" else first
    part = "" if first is None else f"first-{first}"
    found: dict[str, Any] = json.loads((run / "measurements" / part / f"{name}.json").read_text())
    assert found["version"] == 1
    return found


def network(run: Path) -> nn.Module:
    net, _ = network_of(RunFolder(run).about)
    net.load_state_dict(safetensors.torch.load_file(run / "model.safetensors"))
    return net.eval()


def answers(net: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        out: Tensor = net.eval()(x).log_softmax(-1)
    return out


def plain(log_p: Tensor, labels: Tensor) -> tuple[float, float]:
    """Accuracy and NLL, one by one."""
    right = sum(int(row.argmax()) == int(y) for row, y in zip(log_p, labels, strict=True))
    nll = -sum(float(row[y]) for row, y in zip(log_p.double(), labels, strict=True))
    return right / len(labels), nll / len(labels)


def digits(split: str) -> Arrays:
    found = load("digits").splits[split]
    assert isinstance(found, Arrays)
    return found


@pytest.mark.usefixtures("few")
def test_corruption_of_teachers_together_and_alone(run: Copied) -> None:
    path = run("teachers")
    corrupted(path)
    test = digits("test")
    together = read(path, "corruption")
    assert together["source"] == "generated, seed 0"
    assert [(row["corruption"], row["severity"]) for row in together["rows"]] == [(n, s) for n in TWO for s in (2, 5)]
    for row in (together["rows"][0], together["rows"][3]):
        x = as_input(corrupt(test.x, row["corruption"], row["severity"], 0))
        each = [answers(network(path / f"teacher-{m}"), x) for m in range(3)]
        for folder, first, log_p in (
            (path, 3, torch.stack(each).exp().mean(0).log()),
            (path, 2, torch.stack(each[:2]).exp().mean(0).log()),
            (path / "teacher-1", None, each[1]),
        ):
            (own,) = [other for other in read(folder, "corruption", first)["rows"] if same(other, row)]
            acc, nll = plain(log_p, test.y)
            assert own["acc"] == pytest.approx(acc)
            assert own["nll"] == pytest.approx(nll, rel=1e-5)
            assert own["ece"] == pytest.approx(evaluate_predictions(log_p, test.y)["ece"], abs=1e-6)
            assert own["count"] == len(test)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return (one["corruption"], one["severity"]) == (other["corruption"], other["severity"])


@pytest.mark.usefixtures("few")
def test_corruption_goes_on_and_is_not_done_twice(run: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("kd")
    whole = run("latentbe")  # another run of the same size, to be measured without a break
    corrupted(whole)

    class Stops(Quiet):
        def count(self, done: int, total: int, detail: str = "") -> None:  # noqa: ARG002
            if done == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        corrupted(path, progress=Stops())
    assert not (path / "measurements" / "corruption.json").exists()
    asked: list[tuple[str, int]] = []

    def noting(images: Tensor, name: str, severity: int, seed: int, first: int = 0) -> Tensor:
        asked.append((name, severity))
        return corrupt(images, name, severity, seed, first)

    monkeypatch.setattr(CORRUPT, "corrupt", noting)
    heard = Heard()
    corrupted(path, progress=heard)
    assert asked == [("shot_noise", 5)]
    assert "resuming after 3" in heard.messages[0]
    rows = read(path, "corruption")["rows"]
    assert [sorted(row) for row in rows] == [sorted(row) for row in read(whole, "corruption")["rows"]]
    assert not (path / "measurements" / "corruption.partial.json").exists()
    corrupted(path, progress=heard)
    assert len(asked) == 1
    assert "already stored" in heard.messages[-1]
    # Other weights: nothing that is stored is theirs.
    shutil.copy(whole / "model.safetensors", path / "model.safetensors")
    corrupted(path)
    assert len(asked) == 5
    assert read(path, "corruption")["rows"] == read(whole, "corruption")["rows"]


def test_published_corruptions(run: Copied, tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    draws = np.random.default_rng(0)
    labels = draws.integers(0, 10, 40)
    np.save(folder / "labels.npy", np.tile(labels, 5))
    sets = {n: draws.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8) for n in CORRUPT.CORRUPTIONS}
    for name, images in sets.items():
        np.save(folder / f"{name}.npy", images)
    path = run("kd")
    corrupted(path, folder)
    found = read(path, "corruption")
    assert found["source"] == "CIFAR-10-C (published)"
    assert len(found["rows"]) == 75
    row = found["rows"][7]
    chosen = torch.from_numpy(sets[row["corruption"]][40 * (row["severity"] - 1) : 40 * row["severity"]])
    x = nn.functional.interpolate(chosen.permute(0, 3, 1, 2) / 255, (8, 8), mode="bilinear", antialias=True)
    grey = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    acc, nll = plain(answers(network(path), grey), torch.from_numpy(labels))
    assert row["acc"] == pytest.approx(acc, abs=1e-6)
    assert row["nll"] == pytest.approx(nll, rel=1e-4)


def test_out_of_distribution(run: Copied, tmp_path: Path) -> None:
    from PIL import Image

    draws = np.random.default_rng(1)
    x = draws.integers(0, 256, (90, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "noise.npz", x=x)
    colours = draws.integers(0, 256, (12, 20, 30, 3), dtype=np.uint8)
    (tmp_path / "pictures" / "deep").mkdir(parents=True)
    for number, picture in enumerate(colours):
        Image.fromarray(picture).save(tmp_path / "pictures" / "deep" / f"{number:02d}.png")
    path = run("teachers")
    subject, data = measured(path)
    data.options = DataOptions(workers=0)
    sets = {"noise": f"npz:{tmp_path}/noise.npz", "pictures": f"folder:{tmp_path}/pictures"}
    ood(subject, data, sets, Quiet())
    test = digits("test")
    nets = [network(path / f"teacher-{m}") for m in range(3)]

    def scores(x: Tensor, folder: Path) -> tuple[Tensor, Tensor]:
        each = torch.stack([answers(net, x) for net in nets])
        log_p = log_mean_probabilities(each if folder == path else each[2:3])
        return predictive_entropy(log_p), 1 - log_p.exp().amax(1)

    noise = torch.from_numpy(x).permute(0, 3, 1, 2) / 255
    for folder in (path, path / "teacher-2"):
        found = read(folder, "ood")
        inside, outside = scores(as_input(test.x), folder), scores(noise, folder)
        assert [entry["name"] for entry in found["sets"]] == ["noise", "pictures"]
        assert found["inside"]["name"] == "digits test"
        assert (found["inside"]["count"], found["sets"][0]["count"], found["sets"][1]["count"]) == (1197, 90, 12)
        for place, name in enumerate(("entropy", "max_probability")):
            exact = detection(inside[place], outside[place])
            for metric, tolerance in {"auroc": 1e-3, "aupr": 2e-3, "fpr95": 1.01 / 90}.items():  # one of the images
                assert found["sets"][0]["scores"][name][metric] == pytest.approx(exact[metric], abs=tolerance)
        edges = np.linspace(0, np.log(10), 51)
        np.testing.assert_allclose(found["inside"]["entropy"]["edges"], edges, rtol=1e-12)
        for entry, values in ((found["inside"], inside[0]), (found["sets"][0], outside[0])):
            expected, _ = np.histogram(values.numpy(), edges)
            # An entropy on an edge may fall on either side of it.
            assert np.abs(expected - np.array(entry["entropy"]["counts"])).sum() <= 2
    heard = Heard()
    ood(subject, data, sets, heard)
    assert len(heard.messages) == 2
    with pytest.raises(ValueError, match=r"gone cannot be measured: npz:.*found none"):
        ood(subject, data, {"gone": "npz:/no/such.npz"}, Quiet())
    assert len(read(path, "ood")["sets"]) == 2


def test_first_members(run: Copied) -> None:
    path = run("teachers")
    rows = members(path)
    assert [row["members"] for row in rows] == [1, 2, 3]
    assert read(path, "members")["rows"] == rows
    found = {
        split: [RunFolder(path / f"teacher-{m}").predictions(split) for m in range(3)] for split in ("val", "test")
    }
    for m, row in enumerate(rows, 1):
        stacked = {s: torch.stack([torch.from_numpy(p[1]) for p in ps[:m] if p]) for s, ps in found.items()}
        labels = {s: torch.from_numpy(ps[0][0]) for s, ps in found.items() if ps[0]}
        val, y = stacked["val"], labels["val"]
        expected = evaluate_predictions(stacked["test"], labels["test"], val_logits=val, val_labels=y)
        assert row["metrics"] == pytest.approx(expected, rel=1e-6)
    assert rows[-1]["metrics"] == pytest.approx(evaluate_run(path))
    assert rows[0]["metrics"]["acc"] == evaluate_run(path / "teacher-0")["acc"]


@pytest.mark.parametrize("name", ["latentbe", "be"])
def test_subspace(run: Copied, name: str) -> None:
    path = run(name)
    subject, data = measured(path)
    assert subject.student is not None
    assert subspace(subject, data, 60, Quiet()) is None
    found = read(path, "subspace")
    assert found["t"] == pytest.approx(np.linspace(-0.5, 1.5, 21))
    assert [(c["split"], c["reestimated"]) for c in found["curves"]] == [
        ("train", False),
        ("test", False),
        ("train", True),
        ("test", True),
    ]
    loader = data.sampled("test", 60)
    x, labels = (torch.cat(each) for each in zip(*loader.batches(), strict=True))
    assert len(x) == 60
    nets = [subnetwork(subject.student, m) for m in range(3)]

    def at(*coefficients: float) -> nn.Module:
        """The weights combined one by one; what the members share stays."""
        net, _ = network_of(subject.about)
        states = [each.state_dict() for each in nets]
        mixed = {}
        for key, value in states[0].items():
            if not value.is_floating_point():
                mixed[key] = value
                continue
            parts = [c * state[key].double() for c, state in zip(coefficients, states, strict=True)]
            mixed[key] = torch.stack(parts).sum(0).float()
        net.load_state_dict(mixed)
        return net

    for t in (-0.5, 0.0, 0.7, 1.0):
        acc, nll = plain(answers(at(1 - t, t, 0), x), labels)
        curve = found["curves"][1]
        assert curve["error"][T.index(t)] == pytest.approx(1 - acc, abs=1e-9)
        assert curve["nll"][T.index(t)] == pytest.approx(nll, rel=1e-3)
    acc, nll = plain(answers(collapse(subject.student), x), labels)
    assert found["average"]["t"] is None
    assert found["average"]["test"]["nll"] == pytest.approx(nll, rel=1e-4)
    assert found["average"]["train_reestimated"].keys() == {"error", "nll"}
    plane = found["plane"]
    a, b = GRID.index(0.5), GRID.index(-0.3)
    acc, nll = plain(answers(at(0.8, 0.5, -0.3), x), labels)
    assert plane["error"][b][a] == pytest.approx(1 - acc, abs=1e-9)
    assert plane["nll"][b][a] == pytest.approx(nll, rel=1e-3)
    heard = Heard()
    assert subspace(*measured(path), 60, heard) is None
    assert "already stored" in heard.messages[0]


def test_health_in_full(run: Copied) -> None:
    path = run("latentbe")
    assert read(path, "health")["split"] == "val"  # made when the run ended
    assert health(*measured(path), Quiet()) is None
    found = read(path, "health")
    metrics = RunFolder(path).result["metrics"]
    for name in ("acc", "nll", "ece"):
        assert found["collapsed"][name] == pytest.approx(metrics[name], rel=1e-4, abs=1e-6)
    assert (found["split"], found["count"], len(found["members"])) == ("test", 1197, 3)
    be = run("be")
    assert not (be / "measurements").exists()
    assert health(*measured(be), Quiet()) is None
    metrics = RunFolder(be).result["metrics"]
    assert read(be, "health")["ensemble"]["nll"] == pytest.approx(metrics["nll"], rel=1e-4)


def test_nobody_is_warned_of_an_average_that_is_not_served(run: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    from onefold.engine.measure import health as module

    monkeypatch.setattr(module, "warning_of", lambda *_, **__: "averaging hurts")
    for name, warning in (("latentbe", "averaging hurts"), ("be", None)):
        path, heard = run(name), Heard()
        health(*measured(path), heard)
        assert read(path, "health")["warning"] == warning
        assert len(heard.messages) == (warning is not None)


def test_what_has_no_members(run: Copied) -> None:
    for name, why in (("kd", "method 'kd', whose student has no members"), ("teachers", "teachers share no weights")):
        subject, data = measured(run(name))
        for told in (health(subject, data, Quiet()), subspace(subject, data, 10, Quiet())):
            assert told is not None
            assert why in told
    path = run("latentbe")
    shutil.rmtree(path / "checkpoints")
    subject, data = measured(path)
    told = health(subject, data, Quiet())
    assert told is not None
    assert "only it has the members' factors" in told


def test_costs(run: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    from onefold.engine.measure import costs as module

    monkeypatch.setattr(module, "BATCHES", (1, 4))
    monkeypatch.setattr(module, "SECONDS", 0.0)
    expected = {
        "latentbe": ["single", "ensemble", "be", "collapsed"],
        "be": ["single", "ensemble", "be", "collapsed"],
        "kd": ["single"],
        "teachers": ["single", "ensemble"],
    }
    for name, kinds in expected.items():
        path = run(name)
        subject, _ = measured(path)
        assert costs(subject, Quiet()) == []
        found = read(path, "costs")
        assert [(r["what"], r["batch"]) for r in found["inference"]] == [(k, b) for b in (1, 4) for k in kinds]
        assert all(row["ms_per_image"] > 0 for row in found["inference"])
        each = [[r["seconds"] for r in own.metrics() if r["kind"] == "train"][-1] for own in subject.runs]
        assert found["train_seconds"] == pytest.approx(sum(each))
    heard = Heard()
    costs(subject, heard)
    assert "already stored" in heard.messages[0]


def test_a_run_of_ones_own_network_says_what_is_missing(tmp_path: Path, run: Copied) -> None:
    path = run("kd")
    about = json.loads((path / "run.json").read_text())
    for name, told in (
        ("network", "expected network in it"),
        ("image_size", "trained from Python and has only the weights"),
    ):
        del about[name]
        (path / "run.json").write_text(json.dumps(about))
        with pytest.raises(ValueError, match=told):
            subject_of(Folder(path), CPU)
    assert tmp_path.exists()
