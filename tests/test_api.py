from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from onefold import Teachers, batch_ensemble
from onefold.api import distill, evaluate
from onefold.engine import Diverged
from onefold.methods import Method, plain
from onefold.metrics import evaluate_predictions
from onefold.objectives import dirichlet_mean, kd
from onefold.perturb import InputSpace
from onefold.run import RunFolder


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def net(classes: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))


def data(count: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    return torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8), torch.arange(count) % classes


class Pairs(Dataset[Any]):
    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index], int(self.y[index])


def teachers(count: int = 2, classes: int = 3) -> Teachers:
    return Teachers([net(classes) for _ in range(count)])


def short(*arguments: Any, **changes: Any) -> Any:
    given: dict[str, Any] = {"epochs": 2, "batch_size": 16, "lr": 0.02, "workers": 0}
    return distill(*arguments, **(given | changes))


def test_the_whole_thing_without_a_folder() -> None:
    own, theirs = net(), teachers()
    before = copy.deepcopy(own.state_dict()), copy.deepcopy(theirs.state_dict())
    result = short(theirs, own, data(50), val=data(20), test=data(30))
    assert type(result.model) is nn.Sequential
    assert list(result.model.state_dict()) == list(own.state_dict())
    assert not result.model.training
    assert all(torch.equal(v, before[0][k]) for k, v in own.state_dict().items())
    assert all(torch.equal(v, before[1][k]) for k, v in theirs.state_dict().items())
    assert result.temperature == result.metrics["temperature"]
    assert result.folder is None


def test_all_ways_to_give_data_lead_to_the_same_network() -> None:
    own, theirs, train, val, test = net(), teachers(), data(48), data(20), data(30)
    results = [
        short(theirs, own, wrap(*train), val=wrap(*val), test=wrap(*test))
        for wrap in (lambda x, y: (x, y), lambda x, y: (x.numpy(), y.numpy()), TensorDataset, Pairs)
    ]
    for other in results[1:]:
        assert all(torch.equal(v, other.model.state_dict()[k]) for k, v in results[0].model.state_dict().items())
        assert other.metrics == results[0].metrics
    loader = DataLoader(Pairs(*train), batch_size=16)
    result = short(theirs, own, loader, val=DataLoader(Pairs(*val), batch_size=7), test=Pairs(*test))
    assert result.metrics["count"] == 30


def test_metrics_are_those_of_evaluate() -> None:
    val, test = data(20), data(30)
    result = short(teachers(), net(), data(50), val=val, test=test, method="kd", perturbation="tdiv")
    assert evaluate(result.model, test, calibrate_on=val, device="cpu") == pytest.approx(result.metrics, rel=1e-5)
    alone = short(teachers(), net(), data(50), val=val)
    assert alone.metrics == pytest.approx(evaluate(alone.model, val), rel=1e-5)
    assert alone.temperature is not None
    assert "cnll" not in alone.metrics
    proxy = short(teachers(), net(), data(50), test=test, method="proxy-end2", perturbation="none")
    assert proxy.metrics == pytest.approx(evaluate(proxy.model, test, predict=dirichlet_mean), rel=1e-5)


def test_a_teacher_is_made_the_same_way() -> None:
    result = short(None, net(), data(50), test=data(30), method="supervised", perturbation="none", label_smoothing=0.1)
    again = short([result.model, result.model], net(), data(50), test=data(30))
    assert again.metrics.keys() >= {"acc", "nll"}


def test_evaluation_of_ensembles_is_the_mean_of_their_softmax() -> None:
    theirs, student, test = teachers(3), batch_ensemble(net(), 2, "normal").train(), data(30)
    x = test[0] / 255
    for ensemble in (theirs, student):
        before = copy.deepcopy(ensemble.state_dict())
        modes = [m.training for m in ensemble.modules()]
        found = evaluate(ensemble, test)
        logits = ensemble(x) if ensemble is theirs else student.at_rest(x)
        expected = evaluate_predictions(logits.softmax(-1).mean(0).log(), test[1])
        assert found == pytest.approx(expected, rel=1e-4)
        assert modes == [m.training for m in ensemble.modules()]
        assert all(torch.equal(v, before[k]) for k, v in ensemble.state_dict().items())
    for several in (list(theirs.networks), tuple(theirs.networks), nn.ModuleList(theirs.networks)):
        assert evaluate(several, test) == evaluate(theirs, test)
    training = net().train()
    evaluate(training, test)
    assert training[2].training
    for nothing in (3, "net"):
        with pytest.raises(ValueError, match="model: expected a network"):
            evaluate(nothing, test)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("optimizer", "scheduler"),
    [
        (lambda groups: AdamW(groups, betas=(0.8, 0.9)), None),
        (lambda groups: SGD(groups), lambda o: CosineAnnealingLR(o, 8)),
        (None, lambda o: OneCycleLR(o, [0.1, 0.2], total_steps=9)),
        (None, lambda o: ReduceLROnPlateau(o, factor=0.5, patience=-1)),
    ],
)
def test_optimizers_and_schedulers_of_ones_own(tmp_path: Path, optimizer: Any, scheduler: Any) -> None:
    given: dict[str, Any] = {"optimizer": optimizer, "scheduler": scheduler, "val": data(20)}
    splits = data(50)

    class Stop(Exception):
        pass

    class Stopper:
        def update(self, done: int, *_: float) -> None:
            if done == 8:
                raise Stop

        def message(self, text: str) -> None:
            pass

    theirs, own = teachers(), net()
    straight = short(theirs, own, splits, **given)
    with pytest.raises(Stop):
        short(theirs, own, splits, out=tmp_path, progress=Stopper(), **given)
    resumed = short(theirs, net(), splits, out=tmp_path, **given)  # whose weights are made anew, and not used
    assert all(torch.equal(v, resumed.model.state_dict()[k]) for k, v in straight.model.state_dict().items())
    if scheduler is not None:  # one rate an epoch is logged
        rates = [r["lr"] for r in RunFolder(tmp_path).metrics() if r["kind"] == "train"]
        assert len(set(rates)) == 2


def test_a_plateau_is_one_of_what_is_measured() -> None:
    """Stepped once an evaluation: with the likelihood of val, or with its accuracy where more is better."""
    seen: dict[str, list[float]] = {}

    def noting(mode: Any) -> Any:
        class Noting(ReduceLROnPlateau):
            def step(self, metrics: Any, *rest: Any) -> None:  # type: ignore[override]
                seen.setdefault(mode, []).append(float(metrics))
                super().step(metrics, *rest)

        return lambda optimizer: Noting(optimizer, mode)

    for mode, key in (("min", "nll"), ("max", "acc")):
        result = short(teachers(), net(), data(50), val=data(20), epochs=4, eval_every=2, scheduler=noting(mode))
        assert len(seen[mode]) == 2
        assert result.metrics[key] in [pytest.approx(value) for value in seen[mode]]


def test_inputs_that_break_later_are_blamed_and_not_the_learning_rate() -> None:
    with pytest.raises(ValueError, match="train: expected finite inputs, got NaN or infinite values in the batch of"):
        short(teachers(), net(), Pairs(*with_nan(50, 40)))
    with pytest.raises(ValueError, match="val: expected finite inputs"):
        short(teachers(), net(), data(50), val=Pairs(*with_nan(50, 40)))


def test_data_that_can_be_iterated_once_are_refused_with_the_reason() -> None:
    x, y = data(48)
    once = iter(list(zip(x, y.tolist(), strict=True)))

    class Once(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return once

        def __len__(self) -> int:
            return 48

    with pytest.raises(ValueError, match=r"expected 3 batches in every epoch, got 2; .* allow iterating again"):
        short(teachers(), net(), DataLoader(Once(), 16))


def test_other_data_are_another_run(tmp_path: Path) -> None:
    theirs, train, val = teachers(), data(50), data(20)
    short(theirs, net(), train, val=val, out=tmp_path)
    other = train[0].clone()
    other[30] += 1
    with pytest.raises(ValueError, match=r"splits\.train"):
        short(theirs, net(), (other, train[1]), val=val, out=tmp_path)
    with pytest.raises(ValueError, match=r"splits\.val"):
        short(theirs, net(), train, val=(val[0], val[1].flip(0)), out=tmp_path)
    short(theirs, net(), TensorDataset(*train), val=val, out=tmp_path)  # the same in another way


def test_factors_get_their_rate_from_the_kind_of_optimizer() -> None:
    seen: list[list[float]] = []

    def make(kind: Any) -> Any:
        def factory(groups: list[dict[str, Any]]) -> Any:
            seen.append([group["lr"] for group in groups])
            return kind(groups)

        return factory

    short(teachers(), net(), data(50), optimizer=make(SGD))
    assert seen == [[0.02, 0.04]]
    short(teachers(), net(), data(50), optimizer=make(AdamW))
    assert seen[-1] == [0.02, 0.02]


def test_a_folder_goes_on_refuses_and_is_left_alone(tmp_path: Path) -> None:
    splits: dict[str, Any] = {"val": data(20), "test": data(30)}
    theirs, own, train = teachers(), net(), data(50)
    first = short(theirs, own, train, out=tmp_path, **splits)
    again = short(theirs, net(), train, out=tmp_path, **splits)
    assert all(torch.equal(v, again.model.state_dict()[k]) for k, v in first.model.state_dict().items())
    for change, match in (
        ({"lr": 0.01}, r"optim\.lr: 0.02 -> 0.01"),
        ({"optimizer": AdamW}, r"run\.optimizer\.class: 'SGD' -> 'AdamW'"),
        ({"method": "be"}, r"run\.method: 'latentbe' -> 'be'"),
        ({"space": InputSpace(0.01)}, "space: "),
    ):
        with pytest.raises(ValueError, match=match):
            short(theirs, own, train, out=tmp_path, **splits, **change)


def test_a_method_of_ones_own() -> None:
    result = short(teachers(), net(), data(50), test=data(30), method=Method("mine", plain, kd), perturbation="none")
    assert 0 <= result.metrics["acc"] <= 1


def test_options() -> None:
    for change in ({"ema": 0.5}, {"clip": 0.1}, {"accumulate": 2}, {"precision": "bf16"}, {"augment": True}):
        theirs, own, train = teachers(), net(), data(48)
        base, other = short(theirs, own, train), short(theirs, own, train, **change)
        assert any(not torch.equal(v, other.model.state_dict()[k]) for k, v in base.model.state_dict().items()), change


class Counting(nn.Module):
    """Counts the training steps it sees."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.steps = inner, 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        answer: Tensor = self.inner(x)
        return answer


LONG = torch.randint(9, (50, 16))


def with_nan(count: int, index: int) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 1, 4, 4)
    x[index, 0, 1, 1] = torch.nan
    return x, torch.arange(count) % 3


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"method": "kd", "perturbation": "tdiv-sdiv"}, "perturbation: 'tdiv-sdiv' needs a student with members"),
        ({"method": "latentbee"}, "did you mean 'latentbe'"),
        ({"perturbation": "tdif"}, "did you mean 'tdiv'"),
        ({"method": "supervised", "teachers": None, "perturbation": "tdiv"}, "'supervised' has none"),
        ({"teachers": [net()], "perturbation": "tdiv-sdiv"}, "needs at least 2 teachers"),
        ({"teachers": None}, "teachers: 'latentbe' needs them"),
        ({"teachers": net()[1]}, "expected Teachers or a list"),
        (
            {"method": "supervised"},
            "teachers: expected None for 'supervised', .* got Teachers; give None",
        ),
        ({"method": "supervised", "teachers": [net()]}, "teachers: expected None for 'supervised', .* got list"),
        ({"teachers": teachers(2, 4)}, "student has 3 classes and the teachers have 4"),
        ({"net": nn.Flatten}, r"net: expected a torch\.nn\.Module"),
        ({"train": data(50, 4)}, "train: labels: expected classes 0 to 2, got 12 outside"),
        ({"val": data(20, 5)}, r"val: labels: .*\n  val\[3\]: label 3"),
        ({"test": data(20, 5)}, "test: labels: "),
        ({"train": None}, "train: expected a torch Dataset"),
        ({"train": 3}, "train: expected a torch Dataset"),
        (
            {"train": (torch.randn(50, 1, 4, 4), torch.arange(50) % 3)},
            r"space: .*InputSpace\.standardized\(mean, std\) .*InputSpace\.of",
        ),
        ({"train": Pairs(LONG, torch.arange(50) % 3)}, "floating-point"),
        ({"train": (torch.full((50, 1, 4, 4), torch.nan), torch.arange(50) % 3)}, "train: expected finite inputs"),
        (
            {"train": with_nan(50, 40)},
            r"train: expected finite inputs, .* in 1 examples: 40; fix or remove",
        ),
        ({"val": with_nan(20, 19)}, r"val: expected finite inputs, .* 19;"),
        ({"test": with_nan(20, 3)}, "test: expected finite inputs"),
        ({"test": Pairs(*with_nan(20, 3))}, "test: expected finite inputs, got NaN or infinite values in the first"),
        ({"val": (torch.rand(20, 1, 5, 5), torch.arange(20) % 3)}, r"val: expected inputs .*\[8, 1, 5, 5\]"),
        ({"test": Pairs(torch.rand(20, 25), torch.arange(20) % 3)}, r"test: expected inputs .*\[8, 25\]"),
        ({"val": DataLoader(TensorDataset(torch.rand(20, 16), torch.rand(20)))}, "integer class indices"),
        ({"train": data(50, 1), "net": net(1), "teachers": teachers(2, 1)}, "net: expected at least two classes"),
        (
            {"train": DataLoader(Pairs(*data(49)), 16), "method": "kd", "perturbation": "none"},
            "49 examples in batches of 16 .* single one for BatchNorm",
        ),
        (
            {"train": data(49), "method": "kd", "perturbation": "none", "batch_size": 48},
            "batch_size: 49 examples in batches of 48 .* single one for BatchNorm",
        ),
        (
            {"train": data(48), "method": "kd", "perturbation": "none", "accumulate": 16},
            r"\(processed in 16 parts\) leave a single one",
        ),
        (
            {"train": (torch.rand(50, 1, 5, 5), torch.arange(50) % 3)},
            r"net: cannot take inputs torch\.float32 \[8, 1, 5, 5\]: ",
        ),
        ({"teachers": [nn.Linear(7, 3), nn.Linear(7, 3)]}, "teachers: cannot take inputs torch.float32"),
        ({"epochs": 0}, "epochs: expected a whole number of at least 1, got 0"),
        ({"epochs": 2.5}, "epochs: expected a whole number"),
        ({"alpha": 1.5}, "alpha: expected a value from 0 to 1"),
        ({"temperature": 0.0}, "temperature: expected a positive number"),
        ({"lr": float("nan")}, "lr: expected a positive number, got nan"),
        ({"weight_decay": -1.0}, "weight_decay: expected a number of at least 0"),
        ({"batch_size": 0}, "batch_size: expected"),
        ({"accumulate": 0}, "accumulate: expected"),
        ({"warmup_epochs": 3}, "warmup_epochs: expected from 0 to the 2 epochs, got 3"),
        ({"clip": 0.0}, "clip: expected a positive number"),
        ({"ema": 1.0}, "ema: expected a decay between 0 and 1"),
        ({"label_smoothing": 1.0}, "label_smoothing: expected"),
        ({"precision": "fp8"}, "precision: expected"),
        ({"device": "gpu"}, "device: expected auto, cpu"),
        ({"device": "meta"}, "device: expected auto, cpu"),
        ({"optimizer": lambda _: 3}, "optimizer: expected a function"),
        ({"optimizer": lambda groups: torch.optim.LBFGS(groups[0]["params"])}, "got LBFGS"),
        ({"scheduler": lambda o: ReduceLROnPlateau(o)}, "scheduler: ReduceLROnPlateau .*; give val"),
        ({"optimizer": SGD(net().parameters(), 0.1)}, "optimizer: expected a function .*, got a SGD object"),
        ({"optimizer": lambda _: SGD(net().parameters(), 0.1)}, "optimizer: .* a copy of the network"),
        ({"scheduler": CosineAnnealingLR(SGD(net().parameters(), 0.1), 8)}, "scheduler: expected a function"),
        ({"scheduler": lambda _: CosineAnnealingLR(SGD(net().parameters(), 0.1), 8)}, "of the optimizer it is given"),
        ({"scheduler": lambda o: OneCycleLR(o, 0.1, total_steps=7)}, "7 steps, but training takes 8"),
        ({"scheduler": lambda _: 3}, "scheduler: expected a function"),
        ({"out": "/proc/nowhere/run"}, "out: cannot write to /proc/nowhere/run"),
    ],
)
def test_mistakes_are_found_before_any_training(changes: dict[str, Any], match: str) -> None:
    counting = Counting(net())
    given: dict[str, Any] = {"teachers": teachers(), "net": counting, "train": data(50)} | changes
    first = [given.pop(name) for name in ("teachers", "net", "train")]
    with pytest.raises(ValueError, match=match):
        short(*first, **given)
    assert counting.steps == 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_no_cuda_where_asked() -> None:
    with pytest.raises(ValueError, match="device: 'cuda' was requested, but CUDA is not available here; use 'cpu'"):
        short(teachers(), net(), data(50), device="cuda")


def test_a_warm_up_that_fits_is_chosen(tmp_path: Path) -> None:
    short(teachers(), net(), data(50), out=tmp_path / "a")
    assert RunFolder(tmp_path / "a").recipe["optim"]["warmup_epochs"] == 0.2


def test_a_divergence_says_so_without_a_folder() -> None:
    with pytest.raises(Diverged, match="there is no checkpoint yet"):
        short(teachers(), net(), data(50), lr=1e30, epochs=4)


def test_what_is_advised_first_helps_a_network_without_norms() -> None:
    def bare() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))

    sure = [bare() for _ in range(4)]
    for teacher in sure:
        teacher[4].weight.data *= 100  # type: ignore[index]
    given: dict[str, Any] = {"perturbation": "none", "epochs": 10, "batch_size": 16, "workers": 0, "warmup_epochs": 0}
    train = 10 * torch.randn(64, 8), torch.arange(64) % 3
    with pytest.raises(Diverged, match=r"Clip the gradient \(clip=1\.0, .*--optim\.clip 1\)"):
        distill(sure, bare(), train, **given)
    found = distill(sure, bare(), train, clip=1.0, **given).model
    assert all(bool(weight.isfinite().all()) for weight in found.parameters())


def test_a_seed_decides_everything() -> None:
    theirs, own, train = teachers(), net(), data(50)
    models = [short(theirs, own, train, seed=seed, augment=True).model for seed in (3, 3, 4)]
    states = [torch.cat([v.flatten().double() for v in m.state_dict().values()]) for m in models]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def test_probabilities_are_refused_where_logits_are_wanted() -> None:
    answering = Teachers([nn.Sequential(net(), nn.Softmax(-1)) for _ in range(2)])
    with pytest.raises(ValueError, match=r"teachers: expected logits, got probabilities.*without its softmax"):
        short(answering, net(), data(50))
    with pytest.raises(ValueError, match="net: expected logits, got probabilities"):
        short(teachers(), nn.Sequential(net(), nn.Softmax(-1)), data(50))
    logs = Teachers([nn.Sequential(net(), nn.LogSoftmax(-1)) for _ in range(2)])
    assert short(logs, net(), data(50), val=data(20)).metrics["count"] == 20  # as good as logits
