"""Predictions read piece by piece are the predictions, and a temperature fitted to pieces is the same."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from onefold.metrics import evaluate_predictions, fit_temperature, fit_temperature_to
from onefold.predictions import Stored, stored
from onefold.report import measured as module
from onefold.report.measured import measured, measured_together
from onefold.report.stored import batches, together


def write(path: Path, seed: int, rows: int = 301, classes: int = 7, dtype: str = "<f4") -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    labels = np.random.default_rng(0).integers(0, classes, rows)
    logits = (rng.normal(size=(rows, classes)) + 2 * np.eye(classes)[labels]).astype(dtype)
    np.savez(path, labels=labels, logits=logits)
    return torch.from_numpy(logits.astype(logits.dtype.newbyteorder("="))), torch.from_numpy(labels)


def opened(path: Path) -> Stored:
    found = stored(path)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", ["<f4", "<f8", ">f4", "<f2"])
@pytest.mark.parametrize("rows", [1, 50, 301, 1000])
def test_batches_are_the_whole(tmp_path: Path, rows: int, dtype: str) -> None:
    logits, labels = write(tmp_path / "a.npz", 1, dtype=dtype)
    found = list(batches(opened(tmp_path / "a.npz"), rows))
    assert max(len(y) for _, y in found) <= rows
    torch.testing.assert_close(torch.cat([z for z, _ in found]), logits, rtol=0, atol=0)
    assert torch.equal(torch.cat([y for _, y in found]), labels)


def test_compressed_files_are_read_too(tmp_path: Path) -> None:
    logits, labels = write(tmp_path / "a.npz", 1)
    np.savez_compressed(tmp_path / "b.npz", labels=labels.numpy(), logits=logits.numpy())
    torch.testing.assert_close(torch.cat([z for z, _ in batches(opened(tmp_path / "b.npz"), 10)]), logits)


def test_metrics_do_not_depend_on_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = write(tmp_path / "test.npz", 1)
    val_logits, val_labels = write(tmp_path / "val.npz", 2, rows=120)
    wanted = evaluate_predictions(logits, labels, val_logits=val_logits, val_labels=val_labels)
    wanted.pop("count")
    monkeypatch.setattr("onefold.predictions.files.VALUES", 100)
    for held in (2**26, 0):
        monkeypatch.setattr(module, "HELD", held)
        found = measured(opened(tmp_path / "test.npz"), opened(tmp_path / "val.npz"))
        assert found.metrics == pytest.approx(wanted, rel=1e-6)
        assert found.examples == 301
        assert found.after is not None
        assert int(found.after.count.sum()) == 301


def test_a_temperature_of_pieces_is_that_of_the_whole() -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 5, (200,))
    logits = 3 * torch.randn(200, 5) + 2 * torch.nn.functional.one_hot(labels, 5)
    pieces = list(zip(logits.split(33), labels.split(33), strict=True))
    assert fit_temperature_to(lambda: iter(pieces)) == pytest.approx(fit_temperature(logits, labels), rel=1e-10)


def test_ensembles_of_the_first_ones(tmp_path: Path) -> None:
    each = [write(tmp_path / f"{m}.npz", m) for m in range(3)]
    vals = [write(tmp_path / f"val-{m}.npz", 10 + m, rows=90) for m in range(3)]
    files = [opened(tmp_path / f"{m}.npz") for m in range(3)]
    found = measured_together(files, [opened(tmp_path / f"val-{m}.npz") for m in range(3)])
    for m in range(3):
        wanted = evaluate_predictions(
            torch.stack([logits for logits, _ in each[: m + 1]]),
            each[0][1],
            val_logits=torch.stack([logits for logits, _ in vals[: m + 1]]),
            val_labels=vals[0][1],
        )
        wanted.pop("count")
        assert found[m].metrics == pytest.approx(wanted, rel=1e-5)
        # by hand
        p = np.mean([torch.softmax(z.double(), 1).numpy() for z, _ in each[: m + 1]], axis=0)
        y = each[0][1].numpy()
        assert found[m].metrics["nll"] == pytest.approx(-np.log(p[np.arange(len(y)), y]).mean(), rel=1e-6)


def test_other_labels_are_no_ensemble(tmp_path: Path) -> None:
    write(tmp_path / "a.npz", 0)
    write(tmp_path / "b.npz", 1, rows=300)
    with pytest.raises(ValueError, match="expected the same labels for all teachers in a folder, got others"):
        next(together([opened(tmp_path / "a.npz"), opened(tmp_path / "b.npz")]))


def damage(path: Path, how: str) -> None:
    labels, logits = np.arange(5) % 3, np.zeros((5, 3), np.float32)
    match how:
        case "torn":
            path.write_bytes(path.read_bytes()[:-700])
        case "flipped":
            content = bytearray(path.read_bytes())
            content[1500] ^= 255
            path.write_bytes(bytes(content))
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not an archive")
        case "pickled":
            np.savez(path, labels=np.array([{}], dtype=object), logits=logits)
        case "no logits":
            np.savez(path, labels=labels)
        case "columns":
            np.savez(path, labels=labels, logits=np.asfortranarray(logits))
        case "labels outside":
            np.savez(path, labels=labels + 1, logits=logits)
        case "other lengths":
            np.savez(path, labels=labels[:4], logits=logits)
        case "whole numbers":
            np.savez(path, labels=labels, logits=logits.astype(int))
        case "no rows":
            np.savez(path, labels=labels[:0], logits=logits[:0])


DAMAGE = ["torn", "flipped", "empty", "text", "pickled", "no logits", "columns", "labels outside", "other lengths"]
DAMAGE += ["whole numbers", "no rows"]


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_told_in_one_sentence(tmp_path: Path, how: str) -> None:
    path = tmp_path / "a.npz"
    write(path, 0)
    damage(path, how)
    with pytest.raises(ValueError, match=r"a\.npz: expected labels and logits, got a damaged or foreign file"):
        list(batches(opened(path)))


def test_nothing_there(tmp_path: Path) -> None:
    assert stored(tmp_path / "a.npz") is None
    assert not zipfile.is_zipfile(tmp_path / "a.npz")
