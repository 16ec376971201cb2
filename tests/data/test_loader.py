from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from onefold.data import (
    Arrays,
    CropFlip,
    DeviceLoader,
    GivenLoader,
    Loader,
    ResizedCrop,
    StreamLoader,
    crop_and_flip,
    draw,
    loader_for,
)
from onefold.data.order import generator_for, order_of


def numbered(count: int = 23, side: int = 6) -> Arrays:
    """Random images; the label says which one it is."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8, generator=generator)
    return Arrays(x, torch.arange(count))


def collected(loader: Loader, epoch: int = 0, start_step: int = 0) -> list[tuple[Tensor, Tensor]]:
    return list(loader.batches(epoch, start_step))


def same(one: list[tuple[Tensor, Tensor]], other: list[tuple[Tensor, Tensor]]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True)
    )


def test_a_training_batch_is_the_definition() -> None:
    arrays, augment = numbered(), CropFlip(2)
    order = order_of(23, seed=5, epoch=3, shuffle=True)
    draws = draw(23, augment, generator_for("augment", 5, 3))
    loader = DeviceLoader(arrays, 4, augment=augment, shuffle=True, seed=5)
    for step, (x, y) in enumerate(loader.batches(epoch=3)):
        chosen = order[4 * step : 4 * step + 4]
        expected = crop_and_flip(arrays.x[chosen], draws.part(4 * step, 4 * step + 4), 2)
        assert x.dtype == torch.float32
        np.testing.assert_array_equal(x.numpy(), expected.numpy().astype(np.float32) / np.float32(255))
        assert torch.equal(y, chosen)
    assert step == 5


def test_an_epoch_sees_every_example_once_and_evaluation_keeps_the_order() -> None:
    training = torch.cat([y for _, y in DeviceLoader(numbered(), 4, shuffle=True).batches()])
    assert training.sort().values.tolist() == list(range(23))
    assert training.tolist() != list(range(23))
    batches = collected(DeviceLoader(numbered(), 4))
    assert torch.cat([y for _, y in batches]).tolist() == list(range(23))
    assert [len(y) for _, y in batches] == [4, 4, 4, 4, 4, 3]


def test_the_middle_of_an_epoch_needs_nothing_before_it() -> None:
    def fresh() -> DeviceLoader:
        return DeviceLoader(numbered(), 4, augment=CropFlip(1), shuffle=True, seed=9)

    whole = collected(fresh(), epoch=7)
    assert same(whole[3:], collected(fresh(), epoch=7, start_step=3))
    used = fresh()
    collected(used, epoch=6)
    assert same(whole, collected(used, epoch=7))
    assert not same(whole, collected(fresh(), epoch=8))


def test_nothing_depends_on_the_global_generator() -> None:
    loader = DeviceLoader(numbered(), 4, augment=CropFlip(1), shuffle=True)
    torch.manual_seed(0)
    first = collected(loader)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert same(first, collected(loader))
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(3))


@pytest.mark.parametrize(("batch", "world"), [(4, 2), (8, 4), (12, 3)])
@pytest.mark.parametrize("drop_last", [True, False])
def test_parts_of_the_ranks_are_the_batch_of_one_process(batch: int, world: int, drop_last: bool) -> None:
    def of(rank: int, world_size: int) -> list[tuple[Tensor, Tensor]]:
        loader = DeviceLoader(
            numbered(21),
            batch,
            augment=CropFlip(1),
            shuffle=True,
            seed=2,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
        )
        return collected(loader, epoch=1)

    parts = [of(rank, world) for rank in range(world)]
    joined = [(torch.cat([x for x, _ in step]), torch.cat([y for _, y in step])) for step in zip(*parts, strict=True)]
    assert same(joined, of(0, 1))
    assert len(joined) == (21 // batch if drop_last else -(-21 // batch))


def test_length_and_examples() -> None:
    kept, dropped = DeviceLoader(numbered(23), 4), DeviceLoader(numbered(23), 4, drop_last=True)
    assert (len(kept), kept.examples, len(dropped), dropped.examples) == (6, 23, 5, 20)
    assert len(collected(dropped)) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_floats_pass_as_they_are(dtype: torch.dtype) -> None:
    x = torch.randn(10, 5, dtype=dtype)
    loader = DeviceLoader(Arrays(x, torch.arange(10)), 4, augment=CropFlip(), shuffle=True)
    for batch, y in loader.batches():
        assert batch.dtype == dtype
        assert torch.equal(batch, x[y])


def test_who_writes_into_a_batch_does_not_write_into_the_data() -> None:
    x = torch.randn(10, 5)
    loader = DeviceLoader(Arrays(x.clone(), torch.arange(10)), 4)
    for batch, y in loader.batches():
        batch.zero_()
        y.zero_()
    assert torch.equal(torch.cat([batch for batch, _ in loader.batches()]), x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gets_the_bits_of_the_cpu() -> None:
    def on(device: str) -> list[tuple[Tensor, Tensor]]:
        loader = DeviceLoader(numbered(), 4, augment=CropFlip(2), shuffle=True, seed=4, device=device)
        return [(x.cpu(), y.cpu()) for x, y in loader.batches(epoch=2)]

    assert same(on("cuda"), on("cpu"))


def test_refuses_a_batch_larger_than_the_data() -> None:
    with pytest.raises(ValueError, match="expected at most the 23 examples"):
        DeviceLoader(numbered(), 24, drop_last=True)


def test_the_choice_of_a_loader() -> None:
    arrays = numbered()
    dataset: TensorDataset = TensorDataset(arrays.x, arrays.y, arrays.y)

    def kind(split: Any, **options: Any) -> type:
        return type(loader_for(split, 4, train=True, **options))

    assert kind(arrays) is DeviceLoader
    assert kind((arrays.x, arrays.y)) is DeviceLoader
    assert kind(arrays, device_bytes=arrays.nbytes) is DeviceLoader
    assert kind(arrays, device_bytes=arrays.nbytes - 1) is StreamLoader
    assert kind(arrays, augment=ResizedCrop(4)) is StreamLoader
    assert kind(dataset) is StreamLoader
    assert kind(DataLoader(dataset)) is GivenLoader


def test_training_shuffles_and_augments_and_evaluation_does_not() -> None:
    arrays = numbered()
    training = loader_for(arrays, 23, train=True, augment=CropFlip(2), seed=1)
    evaluation = loader_for(arrays, 23, train=False, augment=CropFlip(2), seed=1)
    (x, y), (clean, ordered) = next(training.batches()), next(evaluation.batches())
    assert torch.equal(ordered, arrays.y)
    assert torch.equal(clean, arrays.x.float() / 255)
    assert not torch.equal(y, ordered)
    assert not torch.equal(x, clean[y])


def test_refuses_labels_outside_the_classes_with_their_index() -> None:
    with pytest.raises(
        ValueError, match=r"classes 0 to 20, got 2 outside of them:\n  example 21: label 21\n  example 22"
    ):
        loader_for(numbered(23), 4, train=True, classes=21)
