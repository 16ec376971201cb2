"""A run folder from Python is resumed by the same call alone: with other data, networks or functions it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset, TensorDataset

import onefold
from onefold.methods import Method, Perturbing, plain
from onefold.run import RunFolder, same_example

X = torch.rand(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 3


class Noisy(Dataset[tuple[Tensor, int]]):
    """Examples with random augmentation, from the global random numbers or from numbers of their own."""

    def __init__(self, plus: float = 0.0, turned: bool = False, own: bool = False) -> None:
        self.plus, self.turned = plus, turned
        self.draws = torch.Generator().manual_seed(torch.seed() % 1000) if own else None

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = 0.1 * torch.randn(X[index].shape, generator=self.draws)
        return X[index] + self.plus + noise, int(2 - Y[index] if self.turned else Y[index])


def network(act: type[nn.Module] = nn.ReLU) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), act(), nn.Linear(8, 3))


def own_method(weight: float) -> Method:
    def objective(student: Tensor, teachers: Tensor, labels: Tensor) -> Tensor:
        return weight * F.cross_entropy(student[0], labels) + 0 * teachers.sum()

    return Method("mine", plain, objective)


def own_perturbation(by: float) -> Perturbing:
    def moved(x: Tensor, teachers: object, student: object) -> Tensor:  # noqa: ARG001
        return x + by

    return Perturbing("moved", moved)


def cosine(steps: int) -> Callable[[Optimizer], CosineAnnealingLR]:
    return lambda optimizer: CosineAnnealingLR(optimizer, steps)


def loader(plus: float) -> DataLoader[Any]:
    return DataLoader(TensorDataset(X + plus, Y), batch_size=20)


@pytest.fixture
def distil(tmp_path: Path) -> Callable[..., onefold.Result]:
    torch.manual_seed(0)
    teachers = onefold.Teachers([network().eval() for _ in range(2)])

    def call(train: Any = (X, Y), net: nn.Module | None = None, **given: Any) -> onefold.Result:
        settings: dict[str, Any] = {
            "method": "kd",
            "perturbation": "none",
            "epochs": 1,
            "out": tmp_path / "run",
        } | given
        return onefold.distill(teachers, network() if net is None else net, train, **settings)

    return call


@pytest.mark.parametrize(
    ("first", "again", "other", "reason"),
    [
        ({"train": Noisy()}, {"train": Noisy()}, {"train": Noisy(plus=5)}, "glances.train: these are other examples"),
        ({"train": Noisy()}, {"train": Noisy()}, {"train": Noisy(turned=True)}, "these are other examples"),
        ({"train": Noisy(own=True)}, {"train": Noisy(own=True)}, {"train": Noisy(turned=True)}, "other labels"),
        ({"train": loader(0)}, {"train": loader(0)}, {"train": loader(1)}, "these are other examples"),
        ({"net": network()}, {"net": network()}, {"net": network(nn.Tanh)}, "given.network: the network has other l"),
        ({"method": own_method(1)}, {"method": own_method(1)}, {"method": own_method(2)}, "given.method: its code, or"),
        (
            {"perturbation": own_perturbation(0.1)},
            {"perturbation": own_perturbation(0.1)},
            {"perturbation": own_perturbation(0.2)},
            "given.perturbation: its code, or a value that it uses",
        ),
        (
            {"scheduler": cosine(10)},
            {"scheduler": cosine(10)},
            {"scheduler": cosine(20)},
            "given.scheduler: the scheduler has other settings",
        ),
    ],
)
def test_a_finished_run_is_read_by_the_same_call_alone(
    distil: Callable[..., onefold.Result], first: Any, again: Any, other: Any, reason: str
) -> None:
    expected = distil(**first)
    assert distil(**again).metrics == expected.metrics
    with pytest.raises(ValueError, match=rf"started with different settings.*\n.*{reason}"):
        distil(**other)


def test_looking_at_examples_moves_no_random_numbers_of_the_user(distil: Callable[..., onefold.Result]) -> None:
    net = network()
    before = torch.get_rng_state()
    distil(train=Noisy(), net=net)
    assert torch.equal(torch.get_rng_state(), before)


def test_folders_of_before_are_resumed(distil: Callable[..., onefold.Result], tmp_path: Path) -> None:
    expected, run = distil(train=Noisy()), RunFolder(tmp_path / "run")
    run.write_json("run.json", {name: v for name, v in run.about.items() if name not in ("given", "glances")})
    assert distil(train=Noisy()).metrics == expected.metrics


def test_fingerprints_of_another_python_or_torch_are_not_compared(
    distil: Callable[..., onefold.Result], tmp_path: Path
) -> None:
    expected, run = distil(method=own_method(1)), RunFolder(tmp_path / "run")
    older = {name: f"Python 3.0:{value.partition(':')[2]}" for name, value in run.about["given"].items()}
    run.write_json("run.json", run.about | {"given": older})
    assert distil(method=own_method(2)).metrics == expected.metrics


def test_an_image_that_was_decoded_a_little_otherwise_is_the_same() -> None:
    assert same_example([1.0, 0.5, 0.2], [1.0, 0.501, 0.2])
    assert same_example([1.0, 0.5, 0.2], [1.0])  # one of the two could only tell the label
    assert not same_example([1.0, 0.5, 0.2], [1.0, 0.55, 0.2])
    assert not same_example([1.0, 0.5, 0.2], [2.0, 0.5, 0.2])
    assert not same_example([1.0, 0.5, 0.2], [1.0, 0.5, 0.3])
