from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler

from onefold import distill, evaluate
from onefold.data import GivenLoader, loader_for


def pairs(count: int = 10) -> TensorDataset:
    return TensorDataset(torch.arange(count)[:, None].expand(count, 3).to(torch.uint8), torch.arange(count).int())


def test_iterates_the_users_loader_as_it_is() -> None:
    loader = GivenLoader(DataLoader(pairs(), batch_size=4))
    batches = list(loader.batches())
    assert torch.cat([y for _, y in batches]).tolist() == list(range(10))
    assert all(x.dtype == torch.float32 and y.dtype == torch.int64 for x, y in batches)
    torch.testing.assert_close(batches[1][0][:, 0], torch.arange(4, 8) / 255)
    assert (len(loader), loader.examples) == (3, 10)
    dropping = GivenLoader(DataLoader(pairs(), batch_size=4, drop_last=True))
    assert (len(dropping), dropping.examples) == (2, 8)


def test_goes_on_in_the_middle() -> None:
    loader = GivenLoader(DataLoader(pairs(), batch_size=4))
    assert [y.tolist() for _, y in loader.batches(start_step=1)] == [[4, 5, 6, 7], [8, 9]]


def test_tells_a_sampler_the_epoch() -> None:
    sampler: DistributedSampler[Any] = DistributedSampler(pairs(), num_replicas=1, rank=0, seed=0)
    loader = GivenLoader(DataLoader(pairs(), batch_size=10, sampler=sampler))
    (_, first), (_, second), (_, again) = (next(loader.batches(epoch)) for epoch in (0, 1, 0))
    assert first.tolist() != second.tolist()
    assert first.tolist() == again.tolist()


class Noisy(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(3), index


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", [False, True])
def test_training_goes_on_in_the_middle_of_an_epoch_with_what_would_have_come(own: bool, workers: int) -> None:
    def batches(epoch: int, step: int = 0, seed: int = 0, rank: int = 0) -> list[list[float]]:
        torch.rand(step + 1)  # whatever has been drawn before
        generator = torch.Generator().manual_seed(step) if own else None
        loader = DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers, generator=generator)
        before = torch.get_rng_state()
        drawn = loader_for(loader, 4, train=True, seed=seed, rank=rank, world_size=2).batches(epoch, step)
        found = [[*x.flatten().tolist(), *y.tolist()] for x, y in drawn]
        assert torch.equal(torch.get_rng_state(), before)
        return found

    whole = batches(1)
    assert batches(1, 2) == whole[2:]
    assert batches(1, 0) == whole
    assert all(other != whole for other in (batches(0), batches(1, seed=1), batches(1, rank=1)))


def test_a_sampler_inside_a_batch_sampler_is_told_the_epoch_and_seeded() -> None:
    def order(sampler: Sampler[int], epoch: int) -> list[int]:
        loader = DataLoader(pairs(), batch_sampler=BatchSampler(sampler, 10, drop_last=False))
        return next(GivenLoader(loader, seed=0).batches(epoch))[1].tolist()

    told: DistributedSampler[Any] = DistributedSampler(pairs(), num_replicas=1, rank=0, seed=0)
    for sampler in (told, RandomSampler(pairs(), generator=torch.Generator())):
        first, second, again = (order(sampler, epoch) for epoch in (0, 1, 0))
        assert first == again != second


class Unsized(Dataset[tuple[Tensor, int]]):
    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(3), index


class Growing(Sampler[list[int]]):
    """Batches of one example, of two, and of three."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0], [1, 2], [3, 4, 5]])

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    "given",
    [
        {"sampler": SubsetRandomSampler(range(7))},
        {"sampler": SubsetRandomSampler(range(7)), "drop_last": True},
        {"sampler": RandomSampler(pairs(), replacement=True, num_samples=25)},
        {"sampler": DistributedSampler(pairs(), num_replicas=2, rank=1)},
        {"batch_sampler": BatchSampler(SubsetRandomSampler(range(7)), 4, drop_last=False)},
        {"batch_sampler": BatchSampler(range(10), 4, drop_last=True)},
    ],
)
@pytest.mark.parametrize("dataset", [pairs(), Unsized()], ids=["sized", "unsized"])
def test_examples_are_those_of_an_epoch(dataset: Dataset[Any], given: dict[str, Any]) -> None:
    given = given if "batch_sampler" in given else given | {"batch_size": 4}
    loader = GivenLoader(DataLoader(dataset, **given))
    assert loader.examples == sum(len(y) for _, y in loader.batches())


def test_batches_of_a_samplers_own_are_of_the_data_set() -> None:
    assert GivenLoader(DataLoader(pairs(6), batch_sampler=Growing())).examples == 6
    with pytest.raises(ValueError, match="DataLoader: expected a dataset with a length, got Unsized without"):
        _ = GivenLoader(DataLoader(Unsized(), batch_sampler=Growing())).examples


class Endless(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


def test_refuses_what_it_cannot_use() -> None:
    with pytest.raises(ValueError, match="DataLoader: expected one with a length"):
        len(GivenLoader(DataLoader(Endless())))
    three = TensorDataset(torch.zeros(4, 1), torch.zeros(4), torch.zeros(4))
    with pytest.raises(
        ValueError,
        match=r"batches \(x, y\) of two tensors, got list of Tensor, Tensor, Tensor at step 0; .*collate",
    ):
        next(GivenLoader(DataLoader(three)).batches())
    with pytest.raises(ValueError, match="got Tensor at step 0"):
        next(GivenLoader(DataLoader(torch.zeros(3))).batches())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="example 1 of batch 2: label 9"):
        list(GivenLoader(DataLoader(pairs(), batch_size=4), classes=9).batches())


class Streaming(IterableDataset[tuple[Tensor, int]]):
    """Examples one after another, and no length."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return zip(self.x, self.y.tolist(), strict=True)


def test_only_training_has_to_know_how_long_an_epoch_is() -> None:
    x, y = torch.rand(24, 4), torch.arange(24) % 3
    streaming = DataLoader(Streaming(x, y), batch_size=8)
    net = nn.Linear(4, 3)
    whole = evaluate(net, (x, y), calibrate_on=(x, y))
    assert evaluate(net, streaming, calibrate_on=streaming) == pytest.approx(whole)
    given: dict[str, Any] = {"method": "supervised", "epochs": 1, "batch_size": 8, "device": "cpu", "workers": 0}
    expected, found = (distill(None, net, (x, y), val=val, test=val, **given) for val in ((x, y), streaming))
    assert found.metrics == pytest.approx(expected.metrics)
    with pytest.raises(ValueError, match=r"DataLoader: expected one with a length, got one without; .* the schedule"):
        distill(None, net, streaming, **(given | {"batch_size": None}))
