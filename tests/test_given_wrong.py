"""What is given to `distill` and `evaluate` by mistake is told by its name."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import onefold
from onefold.api.given import batch_size_for
from onefold.data import as_split
from onefold.engine.distributed.world import World
from onefold.methods import plain
from onefold.objectives import kd
from onefold.perturb import tdiv
from onefold.run import RunFolder


def net() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))


def data(count: int = 48, odd: int | None = None) -> tuple[Tensor, Tensor]:
    x = torch.rand(count, 1, 4, 4)
    if odd is not None:
        x[odd, 0, 1, 1] = torch.nan
    return x, torch.arange(count) % 3


def test_evaluate_blames_inputs_and_not_the_network() -> None:
    streamed = Subset(TensorDataset(*data(odd=5)), range(48))
    for test, place in ((data(odd=5), " in 1 examples: 5;"), (streamed, ";")):
        with pytest.raises(
            ValueError, match=f"^test: expected finite inputs, got NaN or infinite values{place} fix or remove"
        ):
            onefold.evaluate(net(), test, workers=0)
        with pytest.raises(ValueError, match=r"^calibrate_on: expected finite inputs"):
            onefold.evaluate(net(), data(), calibrate_on=test, workers=0)
    broken = net()
    nn.init.constant_(broken[3].bias, torch.nan)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="check whether a network has diverged"):
        onefold.evaluate(broken, data())


def test_features_as_numpy_makes_them_are_no_mistake() -> None:
    x, y = np.random.default_rng(0).standard_normal((48, 4)), np.arange(48) % 3
    student = onefold.distill(None, nn.Linear(4, 3), (x, y), method="supervised", perturbation="none", epochs=1)
    assert onefold.evaluate(student.model, (x, y))["count"] == 48


def test_evaluate_says_which_split_is_empty() -> None:
    full = torch.rand(6, 4), torch.arange(6) % 3
    empty = TensorDataset(torch.rand(0, 4), torch.arange(0))
    for none in (DataLoader(empty), Subset(TensorDataset(*full), [])):
        for test, val, name in ((none, full, "test"), (full, none, "calibrate_on")):
            with pytest.raises(ValueError, match=f"^{name}: .*expected at least one example, got none"):
                onefold.evaluate(nn.Linear(4, 3), test, val, device="cpu")


def test_inputs_that_a_network_can_deal_with_are_no_mistake() -> None:
    class Mending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()

        def forward(self, x: Tensor) -> Any:
            return self.inner(x.nan_to_num())

    assert onefold.evaluate(Mending(), data(odd=5))["count"] == 48


def test_teachers_that_are_the_same_get_one_note(caplog: pytest.LogCaptureFixture) -> None:
    one, other = net(), net()

    def told(*teachers: nn.Module) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            onefold.distill(teachers, net(), data(), epochs=1, progress=False)
        return [note for note in caplog.messages if "same weights" in note]

    assert told(one, net(), other) == []
    (note,) = told(one, other, one, copy.deepcopy(other))
    assert note.startswith("teachers 0, 2 and teachers 1, 3 have the same weights and give the same predictions")


def test_a_loader_has_the_batches_that_it_has() -> None:
    loader = DataLoader(TensorDataset(*data()), batch_size=12)
    with pytest.raises(ValueError, match=r"batch_size: expected none beside a DataLoader, .* of 12, got 64"):
        onefold.distill([net(), net()], net(), loader, batch_size=64)
    pair = World()
    pair.size = 2
    for train, given, world, expected in (
        (loader, None, World(), 12),
        (loader, 12, World(), 12),
        (loader, None, pair, 24),
        (loader, 24, pair, 24),
        (DataLoader(TensorDataset(*data()), batch_size=None), 64, World(), 64),
        (data(), None, World(), 128),
        (data(), 64, World(), 64),
    ):
        assert batch_size_for(as_split(train), given, world) == expected


@pytest.mark.parametrize("given", [{"augment": True}, {"drop_last": True}])
def test_what_a_data_loader_does_by_itself_is_not_asked_for(given: dict[str, Any]) -> None:
    x, y = data()
    loader = DataLoader(TensorDataset((x * 255).to(torch.uint8), y), batch_size=16)
    with pytest.raises(ValueError, match=f"^{next(iter(given))}: expected none beside a DataLoader, which makes"):
        onefold.distill(None, net(), loader, method="supervised", perturbation="none", epochs=1, **given)


def test_a_folder_does_not_say_what_batches_a_data_loader_makes(tmp_path: Path) -> None:
    """Folders from before they were looked at say 128, whatever they were."""
    loader = DataLoader(TensorDataset(*data()), batch_size=16)
    onefold.distill(None, net(), loader, method="supervised", perturbation="none", epochs=1, out=tmp_path)
    assert RunFolder(tmp_path).recipe["optim"]["batch_size"] == 128
    assert RunFolder(tmp_path).about["steps"] == 3


SHORT: dict[str, Any] = {"epochs": 1, "batch_size": 12, "workers": 0, "progress": False, "device": "cpu"}


@pytest.mark.parametrize("method", ["latentbe", "supervised"])
def test_numbers_of_another_type_are_told_with_what_to_do(method: str) -> None:
    x, y = data(24)
    teachers = [net(), net()] if method != "supervised" else None
    given = {"method": method, "perturbation": "none"} | SHORT
    told = r"cannot take inputs torch\.float64 .* the weights are torch\.float32: give x\.float\(\)$"
    with pytest.raises(ValueError, match=f"^net: {told}"):
        onefold.distill(teachers, net(), (x.double(), y), **given)
    with pytest.raises(ValueError, match=r"^val: expected inputs .* like those of train, .*: give x\.float\(\)$"):
        onefold.distill(teachers, net(), (x, y), val=(x.double(), y), **given)
    if teachers is not None:
        half = [teacher.half() for teacher in teachers]
        with pytest.raises(
            ValueError, match=r"^teachers: .* torch\.float16: give the network in float32, network\.float"
        ):
            onefold.distill(half, net(), (x, y), **given)
    with pytest.raises(ValueError, match=r"^net: cannot take inputs torch\.float32 \[8, 9\]: [^;]*$"):
        onefold.distill(teachers, net(), (torch.rand(24, 9), y), **given)  # of the right type


def test_a_model_is_evaluated_on_numbers_of_its_type() -> None:
    x, y = data(24)
    told = (
        r"^test: expected inputs of the type of the model's weights, got torch\.{}; the weights are torch\.{}: give {}"
    )
    with pytest.raises(
        ValueError, match=told.format("float32", "float16", r"the network in float32, network\.float\(")
    ):
        onefold.evaluate(net().half(), (x, y))
    with pytest.raises(ValueError, match=told.format("float64", "float32", r"x\.float\(\)")):
        onefold.evaluate(net(), (x.double(), y))
    with pytest.raises(
        ValueError, match=told.format("float64", "float32", r"x\.float").replace("test", "calibrate_on")
    ):
        onefold.evaluate(net(), (x, y), calibrate_on=(x.double(), y))
    assert onefold.evaluate(net().double(), (x.double(), y))["count"] == 24
    with pytest.raises(RuntimeError, match="mat1 and mat2"):  # not about types
        onefold.evaluate(net(), (torch.rand(24, 9), y))


def test_a_classifier_with_one_logit_is_told_to_have_two() -> None:
    def sigmoid() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 1))

    x, y = data(24)[0], torch.arange(24) % 2
    told = "expected at least two classes, got 1; give a network two outputs"
    with pytest.raises(ValueError, match=f"^net: {told}"):
        onefold.distill(None, sigmoid(), (x, y), method="supervised", perturbation="none", **SHORT)
    with pytest.raises(ValueError, match=f"^teachers: {told}"):
        onefold.distill([sigmoid(), sigmoid()], nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), (x, y), **SHORT)
    with pytest.raises(ValueError, match=told):
        onefold.evaluate(sigmoid(), (x, y))
    # And what the sentence says is so.
    z = torch.randn(9, 1)
    torch.testing.assert_close(torch.cat([0 * z, z], 1).softmax(1)[:, 1:], z.sigmoid())


@pytest.mark.parametrize("temperature", ["2", [2.0], "nan", 0, -1.0, torch.ones(2), float("inf")])
def test_a_temperature_is_a_number(temperature: Any) -> None:
    with pytest.raises(ValueError, match=r"^temperature: expected a positive finite number, got "):
        onefold.calibrated(net(), temperature)


def test_whatever_is_a_number_is_a_temperature() -> None:
    one, x = net(), data(4)[0]
    for two in (2, 2.0, torch.tensor(2.0), np.float32(2)):
        torch.testing.assert_close(onefold.calibrated(one, two)(x), one(x) / 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        *("lr", "momentum", "weight_decay", "temperature", "alpha", "cap", "label_smoothing"),
        *("warmup_epochs", "clip", "ema"),
    ],
)
def test_what_is_no_number_is_told_by_its_name(name: str) -> None:
    for given in ("0.1", True, [0.1], torch.tensor([0.1, 0.2])):
        with pytest.raises(ValueError, match=f"^{name}: expected a number, got "):
            onefold.distill([net(), net()], net(), data(), **(SHORT | {name: given}))
    if name == "lr":
        onefold.distill([net(), net()], net(), data(), **(SHORT | {name: np.float32(0.1)}))


@pytest.mark.parametrize("name", ["epochs", "batch_size", "accumulate"])
def test_what_is_no_count_is_told_by_its_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: expected a whole number of at least 1, got '2'"):
        onefold.distill([net(), net()], net(), data(), **(SHORT | {name: "2"}))


def test_a_space_is_not_given_by_name() -> None:
    with pytest.raises(ValueError, match=r"^space: expected an InputSpace, got str; give onefold\.InputSpace\."):
        onefold.distill([net(), net()], net(), data(), space="standardized", **SHORT)  # type: ignore[arg-type]


def test_functions_of_ones_own_are_tried_before_training() -> None:
    steps: list[bool] = []
    counting = net()
    counting.register_forward_hook(lambda own, *_: steps.append(True) if own.training else None)
    vector = onefold.Method("mine", plain, lambda s, t, y: kd(s, t, y, reduction="none"))
    number = onefold.Method("mine", plain, lambda s, t, y: float(kd(s, t, y)))  # type: ignore[arg-type, return-value]
    for method, got in ((vector, r"torch\.float32 \[1, 8\]"), (number, "float")):
        with pytest.raises(ValueError, match=rf"^objective: expected it to return a scalar tensor.*, got {got}$"):
            onefold.distill([net(), net()], counting, data(), method=method, **SHORT)

    def smaller(x: Tensor, teachers: Any, student: Any) -> Tensor:  # noqa: ARG001
        return x[:, :, :3]

    with pytest.raises(
        ValueError, match=r"^perturbation: expected it to return inputs like .*, got .* \[8, 1, 3, 4\]$"
    ):
        onefold.distill([net(), net()], counting, data(), perturbation=smaller, **SHORT)
    assert not steps
    onefold.distill([net(), net()], counting, data(), perturbation=tdiv, **SHORT)
    assert steps
