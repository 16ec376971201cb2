from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.utils.data import DataLoader

from onefold import Teachers, distill
from onefold.data import Arrays, load
from onefold.engine import Job
from onefold.engine.untrained import chance_note, ordered, untrained_note
from onefold.run import RunFolder


def test_the_order_is_the_area_under_the_curve() -> None:
    logits, labels = torch.randn(200, 4), torch.randint(4, (200,))
    probabilities = logits.double().softmax(-1)
    expected = [roc_auc_score(labels == label, probabilities[:, label]) for label in range(4)]
    assert ordered(logits, labels) == pytest.approx(sum(expected) / 4)
    assert ordered(torch.eye(4)[labels] + 0.01 * logits, labels) == 1


@pytest.fixture(scope="module")
def digits() -> tuple[Any, list[nn.Module]]:
    """Handwritten digits, and two networks that have seen them for a moment."""
    source = load("digits")
    nets = []
    for seed in range(2):
        run: dict[str, Any] = {"method": "supervised", "perturbation": "none", "epochs": 6, "seed": seed}
        nets.append(distill(None, fresh(seed), source.train, val=source.val, device="cpu", **run).model)
    return source, nets


def job_with(make_job: Any, teachers: list[nn.Module], train: Any, val: Any) -> Job:
    job: Job = make_job("kd", "none")
    return dataclasses.replace(job, teachers=Teachers(teachers), train=train, val=val)


def fresh(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.mark.parametrize("seed", range(5))
def test_networks_without_training_are_told_from_trained_ones(make_job: Any, digits: Any, seed: int) -> None:
    source, trained = digits
    note = untrained_note(job_with(make_job, [trained[0], fresh(seed), trained[1]], source.train, source.val), 10)
    assert note is not None
    assert note.startswith("teacher 1 looks untrained: accuracy ")
    assert " on 128 examples of val, of which " in note
    note = untrained_note(job_with(make_job, [fresh(seed), fresh(seed + 10)], source.train, None), 10)
    assert note is not None
    assert note.startswith("teachers 0, 1 look untrained")
    assert "examples of train" in note
    assert untrained_note(job_with(make_job, trained, source.train, source.val), 10) is None
    assert untrained_note(job_with(make_job, trained, source.train, None), 10) is None


class Shuffled(nn.Module):
    """The same network with its classes in another order."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.net(x).roll(3, dims=-1)
        return answer


def test_classes_in_another_order(make_job: Any, digits: Any) -> None:
    source, trained = digits
    odd: list[nn.Module] = [Shuffled(trained[0]), trained[1]]
    note = untrained_note(job_with(make_job, odd, source.train, source.val), 10)
    assert note is not None
    assert note.startswith("teacher 0 looks untrained")


def test_a_teacher_of_a_rare_class_may_always_answer_the_common_one(make_job: Any) -> None:
    """Its probabilities still tell the two apart, which is what a student learns from."""
    torch.manual_seed(0)
    y = (torch.arange(128) % 16 == 0).long()
    x = torch.randn(128, 4) + y[:, None]
    knowing, ignorant = nn.Linear(4, 2), nn.Linear(4, 2)
    with torch.no_grad():
        for net, weight in ((knowing, 0.3), (ignorant, 0.0)):
            net.weight.copy_(torch.tensor([[-weight] * 4, [weight] * 4]))
            net.bias.copy_(torch.tensor([4.0, -4.0]))
    assert bool((knowing(x).argmax(1) == 0).all())
    note = untrained_note(job_with(make_job, [knowing, ignorant], Arrays(x, y), None), 2)
    assert note is not None
    assert note.startswith("teacher 1 looks untrained: accuracy 94% on 128 examples")


def test_what_cannot_be_judged_is_left_alone(make_job: Any, digits: Any) -> None:
    source, _ = digits
    nets = [fresh(0), fresh(1)]
    few = Arrays(source.val.x[:20], source.val.y[:20])
    assert untrained_note(job_with(make_job, nets, few, few), 10) is None
    one = Arrays(source.val.x, torch.zeros_like(source.val.y))
    assert untrained_note(job_with(make_job, nets, source.train, one), 10) is None
    assert untrained_note(make_job("supervised", "none"), 3) is None


@pytest.mark.parametrize("as_arrays", [True, False])
def test_with_few_examples_in_val_those_of_train_are_looked_at(make_job: Any, digits: Any, as_arrays: bool) -> None:
    source, trained = digits
    val: Any = Arrays(source.val.x[:31], source.val.y[:31])
    val = val if as_arrays else list(zip(val.x / 255, val.y.tolist(), strict=True))
    note = untrained_note(job_with(make_job, [fresh(0), fresh(1)], source.train, val), 10)
    assert note is not None
    assert note.startswith("teachers 0, 1 look untrained")
    assert " on 128 examples of train, of which " in note
    assert untrained_note(job_with(make_job, trained, source.train, val), 10) is None


def stored(folder: Path, right: float, **counts: int) -> RunFolder:
    """A finished run with predictions for three classes, of which a share is right and the rest is of the first."""
    run = RunFolder(folder)
    run.path.mkdir(parents=True)
    for split, count in counts.items():
        labels = torch.arange(count) % 3
        logits = torch.zeros(count, 3)
        logits[:, 0] = 1
        logits[torch.arange(count) < right * count] = 5 * torch.eye(3)[labels[: math.ceil(right * count)]]
        run.write_predictions(split, labels.numpy(), logits.log_softmax(-1).numpy())
    run.write_json("result.json", {})
    return run


def test_finished_teachers_no_better_than_chance(tmp_path: Path) -> None:
    good, bad, small = (stored(tmp_path / str(m), share, val=60, test=90) for m, share in enumerate((0.9, 0, 0)))
    note = chance_note({0: good, 2: bad})
    assert note is not None
    assert note.startswith("teacher 2 is no better than chance on the validation split; train it longer")
    note = chance_note({0: bad, 1: good, 3: small})
    assert note is not None
    assert note.startswith("teachers 0, 3 are no better than chance on the validation split; train them longer")
    assert chance_note({0: good}) is None


def test_few_validation_examples_say_nothing_about_finished_teachers(tmp_path: Path) -> None:
    few, all_of_them = stored(tmp_path / "few", 0, val=24), stored(tmp_path / "all", 0, val=24, test=90)
    assert chance_note({0: few}) is None
    note = chance_note({0: all_of_them})
    assert note is not None
    assert "on the test split" in note
    assert chance_note({0: RunFolder(tmp_path / "nothing")}) is None


def test_a_loader_of_the_users_is_not_asked(make_job: Any, digits: Any) -> None:
    source, _ = digits

    class Counted(DataLoader[Any]):
        taken = 0

        def __iter__(self) -> Any:
            for batch in super().__iter__():
                type(self).taken += 1
                yield batch

    loader = Counted(list(zip(source.val.x / 255, source.val.y.tolist(), strict=True)), batch_size=50)  # type: ignore[arg-type]
    nets = [fresh(0), fresh(1)]
    assert untrained_note(job_with(make_job, nets, loader, None), 10) is None
    assert untrained_note(job_with(make_job, nets, source.train, loader), 10) is None
    assert Counted.taken == 0
