"""The compact form: what metrics look at is kept exactly, the rest nearly, and a megabyte holds CIFAR-100's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onefold.predictions import packed, stored, whole
from onefold.predictions.compact import archive
from onefold.run import RunFolder

MEGABYTE = 1_000_000
Floats = npt.NDArray[np.floating]
Labels = npt.NDArray[np.int64]


def answers(rows: int, classes: int, seed: int = 0) -> tuple[Labels, Floats]:
    """Labels and log-probabilities of a network that is right about three times in four, and too sure."""
    rng = np.random.default_rng(seed)
    labels = np.random.default_rng(rows).integers(0, classes, rows)
    hard = 1.5 * np.random.default_rng(rows + 1).normal(size=(rows, classes))
    z = 1.5 * rng.normal(size=(rows, classes)) + hard + 14 * rng.random((rows, 1)) * np.eye(classes)[labels]
    return labels, log_softmax(z).astype(np.float32)


def log_softmax(z: Floats) -> Floats:
    z = z.astype(np.float64)
    z = z - z.max(1, keepdims=True)
    return np.asarray(z - np.log(np.exp(z).sum(1, keepdims=True)))


def metrics(logits: Floats, labels: Labels, temperature: float) -> tuple[float, float, float]:
    """Accuracy, NLL and ECE in 15 bins, by the book."""
    log_p = log_softmax(logits.astype(np.float64) / temperature)
    right = log_p.argmax(1) == labels
    confidence = np.exp(log_p.max(1)).astype(np.float32)
    bins = np.ceil(confidence * 15).clip(1, 15)
    gaps = [abs((right[bins == b].astype(float) - confidence[bins == b]).sum()) for b in range(1, 16)]
    return right.mean(), -log_p[np.arange(len(labels)), labels].mean(), sum(gaps) / len(labels)


def through(path: Path, content: bytes | None) -> tuple[Labels, Floats]:
    assert content is not None
    path.write_bytes(content)
    found = whole(path)
    assert found is not None
    return found


def test_ten_thousand_images_of_a_hundred_classes(tmp_path: Path) -> None:
    labels, logits = answers(10_000, 100)
    temperature = 1.5
    content = packed(labels, logits, temperature, MEGABYTE)
    assert content is not None
    assert len(content) < MEGABYTE < logits.astype(np.float32).nbytes / 3
    back, found = through(tmp_path / "a.npz", content)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(back, labels)
    np.testing.assert_array_equal(found.argmax(1), logits.argmax(1))
    for t in (1.0, temperature):
        before, after = metrics(logits, labels, t), metrics(found, labels, t)
        assert 0.5 < before[0] < 0.95
        assert after[0] == before[0]
        assert after[1:] == pytest.approx(before[1:], abs=1e-6)
    # Between and beyond the two temperatures for which sums were kept, too.
    for t in (0.8, 1.2, 2.5):
        assert metrics(found, labels, t)[1] == pytest.approx(metrics(logits, labels, t)[1], abs=1e-4)


def test_an_ensemble_of_packed_networks(tmp_path: Path) -> None:
    each = [answers(2000, 100, seed) for seed in range(3)]
    labels = each[0][0]

    def together(logits: list[Floats]) -> Floats:
        return np.asarray(np.log(np.mean([np.exp(log_softmax(z)) for z in logits], axis=0)))

    wanted = together([z for _, z in each])
    also = np.argsort(wanted, axis=1)[:, -3:]
    found = together([through(tmp_path / "a.npz", packed(labels, z, 1.3, MEGABYTE // 5, also))[1] for _, z in each])
    np.testing.assert_array_equal(found.argmax(1), wanted.argmax(1))
    before, after = metrics(wanted, labels, 1.0), metrics(found, labels, 1.0)
    assert after == pytest.approx(before, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(
    logits=hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 12), st.integers(2, 40)),
        elements=st.floats(-90, 90, width=32, allow_subnormal=False),
    ),
    temperature=st.floats(0.3, 4),
    seed=st.integers(0, 1000),
)
def test_what_is_exact(tmp_path_factory: pytest.TempPathFactory, logits: Floats, temperature: float, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, logits.shape[1], len(logits))
    log_p = log_softmax(logits).astype(np.float32)
    content = packed(labels, logits, temperature, MEGABYTE)
    _, found = through(tmp_path_factory.mktemp("packed") / "a.npz", content)
    rows = np.arange(len(labels))
    np.testing.assert_allclose(found[rows, labels], log_p[rows, labels], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(log_p[rows, found.argmax(1)], log_p.max(1), rtol=1e-6, atol=1e-12)
    likely = log_p >= np.log(0.05)
    np.testing.assert_allclose(found[likely], log_p[likely], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(np.exp(found.astype(np.float64)).sum(1), 1, atol=5e-4)
    assert np.isfinite(found).all()
    # The rest: a few percent of what is not tiny.
    some = (log_p > -8) & ~likely
    np.testing.assert_allclose(found[some], log_p[some], atol=0.15)


def test_finer_where_there_is_room(tmp_path: Path) -> None:
    labels, logits = answers(500, 20)
    sizes, errors = [], []
    for limit in (40_000, 15_000, 14_000):
        content = packed(labels, logits, 1.0, limit)
        _, found = through(tmp_path / "a.npz", content)
        assert content is not None
        assert len(content) < limit
        sizes.append(len(content))
        errors.append(float(np.abs(found - logits)[logits > -10].max()))
    assert sizes == sorted(sizes, reverse=True)
    assert errors[0] < 0.2
    assert errors == sorted(errors)
    assert packed(labels, logits, 1.0, 2000) is None


def test_the_same_predictions_are_the_same_bytes() -> None:
    labels, logits = answers(100, 10)
    assert packed(labels, logits, 1.2, MEGABYTE) == packed(labels, logits.astype(np.float64), 1.2, MEGABYTE)
    assert packed(labels, logits, 1.2, MEGABYTE) == packed(labels, logits + np.float32(0), 1.2, MEGABYTE)


@pytest.mark.parametrize("classes", [2, 10, 300])
def test_read_like_any_predictions(tmp_path: Path, classes: int) -> None:
    labels, logits = answers(301, classes)
    run = RunFolder(tmp_path)
    assert run.predictions("test") is None
    run.write_predictions("test", labels, logits)
    ordinary = stored(run.predictions_file("test"))
    assert ordinary is not None
    assert not ordinary.compact
    content = packed(labels, logits, 1.0, MEGABYTE)
    assert content is not None
    run.predictions_file("test").write_bytes(content)
    compact = stored(run.predictions_file("test"))
    assert compact is not None
    assert (compact.compact, compact.classes, compact.examples) == (True, classes, 301)
    found = run.predictions("test")
    assert found is not None
    for rows in (1, 100, 1000):
        pieces = list(compact.batches(rows))
        np.testing.assert_array_equal(np.concatenate([z for z, _ in pieces]), found[1])
        np.testing.assert_array_equal(np.concatenate([y for _, y in pieces]), labels)
    np.testing.assert_allclose(found[1][logits > -8], logits[logits > -8], atol=0.1)


def test_a_later_form_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(archive({"form": np.array(2), "labels": np.arange(3)}))
    with pytest.raises(ValueError, match=r"a\.npz has form 2, but only forms up to 1 can be read; use a newer"):
        stored(path)


@pytest.mark.parametrize(
    "how", ["no shift", "few exact", "other rows", "floats", "torn", "labels outside", "three planes"]
)
def test_damage_is_told_in_one_sentence(tmp_path: Path, how: str) -> None:
    labels, logits = answers(50, 5)
    path = tmp_path / "a.npz"
    content = packed(labels, logits, 1.0, MEGABYTE)
    assert content is not None
    path.write_bytes(content)
    with np.load(path) as file:
        arrays = dict(file)
    match how:
        case "no shift":
            del arrays["shift"]
        case "few exact":
            arrays["exact"] = arrays["exact"][:, :-1]
        case "other rows":
            arrays["labels"] = arrays["labels"][:-1]
        case "floats":
            arrays["codes"] = arrays["codes"].astype(np.float32)
        case "labels outside":
            arrays["labels"] = arrays["labels"] + np.uint8(3)
        case "three planes":
            arrays["exact"] = arrays["exact"][:3]
    path.write_bytes(content[:-300] if how == "torn" else archive(arrays))
    with pytest.raises(ValueError, match=r"a\.npz: expected labels and logits, got a damaged or foreign file"):
        whole(path)
