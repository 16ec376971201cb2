from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from onefold import distill
from onefold.engine import Job, conduct
from onefold.engine.device import own_randomness
from onefold.engine.diversity import FEWEST, diversity_log
from onefold.engine.training import prepare
from onefold.methods import METHODS
from onefold.run import RunFolder


def state(model: torch.nn.Module) -> dict[str, Tensor]:
    return model.state_dict()


def pairs(logits: Tensor) -> float:
    """The mean over examples and ordered pairs of KL(p_i || p_j), one by one."""
    log_p = logits.double().log_softmax(-1)
    each = [(p, q) for i, p in enumerate(log_p) for j, q in enumerate(log_p) if i != j]
    values = [(p.exp() * (p - q)).sum(-1).mean() for p, q in each]
    return float(torch.stack(values).mean())


@pytest.mark.parametrize(("method", "perturbation"), [("latentbe", "tdiv-sdiv"), ("be", "gaussian"), ("kd", "tdiv")])
def test_looking_changes_no_bit(method: str, perturbation: str, make_job: Any, tmp_path: Path) -> None:
    with_it, without = (
        conduct(make_job(method, perturbation, diversity_every=every), RunFolder(tmp_path / str(every)), {"recipe": 1})
        for every in (1, 0)
    )
    one, other = state(with_it.model), state(without.model)
    assert all(torch.equal(one[name], other[name]) for name in other)
    kinds = {every: [r["kind"] for r in RunFolder(tmp_path / str(every)).metrics()] for every in (1, 0)}
    assert kinds[1].count("perturbation") == 2
    assert kinds[1].count("diversity") == (0 if method == "kd" else 2)
    assert not {"perturbation", "diversity"} & set(kinds[0])


def test_the_numbers_are_those_of_a_plain_loop(make_job: Any) -> None:
    job: Job = make_job("be", "gaussian", diversity_every=1)
    with own_randomness(job.device):
        training = prepare(job)
        log = training.diversity
        assert log is not None
        before = torch.get_rng_state()
        diversity, perturbation = log.records(3, 2)
        again = log.records(3, 2)
        assert torch.equal(torch.get_rng_state(), before)
    assert again == [diversity, perturbation]
    assert log.images is not None
    x, val, test = (log.images[split] for split in ("train", "val", "test"))
    assert (len(x), len(val), len(test)) == (60, 30, 40)  # all there are, fewer than wanted
    student, teachers = training.student.at_rest, job.teachers
    assert teachers is not None
    with torch.no_grad():
        assert diversity["train_div"] == pytest.approx(pairs(student(x)), rel=1e-4)
        assert diversity["val_div"] == pytest.approx(pairs(student(val)), rel=1e-4)
        assert diversity["test_div"] == pytest.approx(pairs(student(test)), rel=1e-4)
        assert perturbation["tdiv_before"] == pytest.approx(pairs(teachers(x)), rel=1e-3)
    assert diversity["kind"] == "diversity"
    assert (perturbation["kind"], perturbation["name"]) == ("perturbation", "gaussian")
    assert (perturbation["step"], perturbation["epoch"]) == (3, 2)


def test_tdiv_adds_to_the_teachers_diversity(make_job: Any) -> None:
    job: Job = make_job("latentbe", "tdiv", diversity_every=1)
    with own_randomness(job.device):
        log = prepare(job).diversity
        assert log is not None
        _, perturbation = log.records(1, 1)
    assert perturbation["tdiv_change"] > 0
    assert (
        perturbation["sdiv_before"] == perturbation["sdiv_change"] == 0
    )  # factors at one: the members agree everywhere


def test_how_often_if_nothing_is_said(make_job: Any) -> None:
    job: Job = make_job()
    with own_randomness(job.device):
        student = prepare(job).student
    for examples, count, every in ((45_000, 256, 1), (10_000, 100, 1), (400, FEWEST, 16)):
        log = diversity_log(job, student, examples)  # of two epochs
        assert log is not None
        assert (log.count, log.every) == (count, every)
        assert log.count / log.every <= 0.01 * examples
    job = dataclasses.replace(job, settings=dataclasses.replace(job.settings, epochs=250))
    log = diversity_log(job, student, 45_000)
    assert log is not None
    assert log.every == 3


def test_nothing_to_compare(make_job: Any) -> None:
    for method, perturbation in (("supervised", "none"), ("supervised", "gaussian"), ("kd", "none")):
        job: Job = make_job(method, perturbation, diversity_every=1)
        with own_randomness(job.device):
            assert prepare(job).diversity is None


@pytest.mark.parametrize("every", [-1, True, 1.5])
def test_refused(every: object, make_job: Any) -> None:
    with pytest.raises(ValueError, match="diversity_every: expected a whole number"):
        make_job(diversity_every=every)


def test_no_name_of_a_method_in_it() -> None:
    import onefold.engine.diversity as module

    text = Path(module.__file__).read_text()
    assert not any(f'"{name}"' in text for name in METHODS)


class Brighter(Dataset[tuple[Tensor, int]]):
    """Images of which only the first eight, at which a training looks before it begins, are all in [0, 1]."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(3, 8, 8) * (0.9 if index < 8 else 1.1), index % 4


def test_images_that_training_accepts_do_not_end_it() -> None:
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(192, 4)) for _ in range(3)]
    given: dict[str, Any] = {"batch_size": 16, "workers": 0, "device": "cpu", "progress": False}
    distill(nets[:2], nets[2], Brighter(), epochs=1, perturbation="tdiv-sdiv", diversity_every=1, **given)
