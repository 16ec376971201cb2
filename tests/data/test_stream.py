from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from onefold.data import Arrays, CropFlip, ImageFiles, ResizedCrop, StreamLoader, loader_for
from onefold.data.view import view_of


class Drawing(Dataset[tuple[Tensor, int]]):
    """Answers with what torch, NumPy and Python draw when asked: a user's random transforms."""

    def __init__(self, count: int = 13) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        drawn = [float(torch.rand(())), float(np.random.rand()), random.random()]  # noqa: NPY002
        return torch.tensor([float(index), *drawn]), index


class Fixed(Dataset[Any]):
    """Answers with what it was given."""

    def __init__(self, *examples: Any) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> Any:
        return self.examples[index]


def collected(loader: Any, epoch: int = 0, start_step: int = 0) -> list[tuple[Tensor, Tensor]]:
    return list(loader.batches(epoch, start_step))


def same(one: list[tuple[Tensor, Tensor]], other: list[tuple[Tensor, Tensor]]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True)
    )


def drawing(**options: Any) -> StreamLoader:
    return StreamLoader(Drawing(), 4, **{"shuffle": True, "seed": 3, "workers": 0, **options})


def test_the_number_of_workers_does_not_matter() -> None:
    alone = [collected(drawing(), epoch) for epoch in range(2)]
    for workers in (1, 2):
        loader = drawing(workers=workers)
        assert all(same(collected(loader, epoch), alone[epoch]) for epoch in range(2))
    assert not same(alone[0], alone[1])


def test_every_example_has_its_own_draws_in_every_epoch() -> None:
    loader = drawing()
    drawn = torch.cat([x for epoch in range(3) for x, _ in loader.batches(epoch)])
    assert len(drawn[:, 1].unique()) == len(drawn[:, 2].unique()) == len(drawn[:, 3].unique()) == 39
    assert not same(collected(drawing()), collected(drawing(seed=4)))


def test_the_middle_of_an_epoch_needs_nothing_before_it() -> None:
    whole = collected(drawing(), epoch=5)
    assert same(whole[2:], collected(drawing(), epoch=5, start_step=2))


def test_an_iteration_left_in_the_middle_leaves_nothing_behind() -> None:
    loader = drawing(workers=2)
    next(loader.batches(epoch=0))
    assert same(collected(loader, epoch=1), collected(drawing(), epoch=1))


def test_the_runs_own_random_numbers_are_left_alone() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    expected = torch.rand(2).tolist(), random.random(), np.random.rand()  # noqa: NPY002
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    collected(drawing())
    assert (torch.rand(2).tolist(), random.random(), np.random.rand()) == expected  # noqa: NPY002


@pytest.mark.parametrize(("batch", "world"), [(4, 2), (6, 3)])
def test_parts_of_the_ranks_are_the_batch_of_one_process(batch: int, world: int) -> None:
    def of(rank: int, world_size: int) -> list[tuple[Tensor, Tensor]]:
        loader = StreamLoader(Drawing(), batch, shuffle=True, workers=0, rank=rank, world_size=world_size)
        return collected(loader)

    parts = [of(rank, world) for rank in range(world)]
    assert min(len(part[-1][1]) for part in parts) == 0  # 13 examples: the last batch has one, for one rank
    joined = [(torch.cat([x for x, _ in step]), torch.cat([y for _, y in step])) for step in zip(*parts, strict=True)]
    assert same(joined, of(0, 1))


def test_length_order_and_last_batch() -> None:
    evaluation, dropping = drawing(shuffle=False), drawing(drop_last=True)
    assert torch.cat([y for _, y in evaluation.batches()]).tolist() == list(range(13))
    assert (len(evaluation), evaluation.examples, len(dropping), dropping.examples) == (4, 13, 3, 12)
    assert len(collected(dropping)) == 3


def test_pixels_come_out_like_from_the_device() -> None:
    x = torch.randint(0, 256, (9, 3, 5, 5), dtype=torch.uint8)
    arrays = Arrays(x, torch.arange(9))
    streamed = loader_for(arrays, 4, train=False, device_bytes=0, workers=0)
    assert same(collected(streamed), collected(loader_for(arrays, 4, train=False)))


def test_small_images_are_cropped_and_flipped() -> None:
    pad, side = 2, 4
    x = torch.arange(1, side * side + 1, dtype=torch.uint8).reshape(1, 1, side, side)
    padded = torch.nn.functional.pad(x, (pad,) * 4)[0]
    crops = [padded[:, i : i + side, j : j + side] for i in range(2 * pad + 1) for j in range(2 * pad + 1)]
    possible = {tuple(view.flatten().tolist()) for crop in crops for view in (crop, crop.flip(-1))}
    loader = loader_for(
        Arrays(x.expand(300, 1, side, side), torch.zeros(300, dtype=torch.long)),
        300,
        train=True,
        augment=CropFlip(pad),
        device_bytes=0,
        workers=0,
    )
    ((batch, _),) = collected(loader)
    seen = {tuple((image * 255).round().int().flatten().tolist()) for image in batch}
    assert seen <= possible
    assert len(seen) > 40  # of 50


def test_floats_are_not_augmented() -> None:
    x = torch.randn(6, 3, 4, 4)
    loader = loader_for(Arrays(x, torch.arange(6)), 3, train=True, augment=CropFlip(), device_bytes=0, workers=0)
    for batch, y in loader.batches():
        assert torch.equal(batch, x[y])


def test_large_images_are_scaled_and_cropped(tmp_path: Path) -> None:
    pixels = np.zeros((64, 128, 3), dtype=np.uint8)
    pixels[:, 32:96] = 255  # the middle square
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    files = ImageFiles([str(tmp_path / "wide.png")] * 8, torch.zeros(8, dtype=torch.long))
    evaluation = loader_for(files, 8, train=False, augment=ResizedCrop(28), workers=0)
    ((x, _),) = collected(evaluation)
    # The shorter side, 64, goes to 32; the middle 28 x 28 of it is white.
    assert x.shape == (8, 3, 28, 28)
    assert (x == 1).all()
    training = loader_for(files, 8, train=True, augment=ResizedCrop(28), workers=0)
    (x, _), (again, _), (other, _) = (next(training.batches(epoch)) for epoch in (0, 0, 1))
    assert x.shape == (8, 3, 28, 28)
    assert torch.equal(x, again)
    assert not torch.equal(x, other)
    assert not torch.equal(x[0], x[1])
    workers = loader_for(files, 8, train=True, augment=ResizedCrop(28), workers=2)
    assert same(collected(training, epoch=3), collected(workers, epoch=3))


def test_scales_as_for_imagenet() -> None:
    view = view_of(ResizedCrop(224), train=False)
    assert view is not None
    resize, crop = view.transforms  # type: ignore[attr-defined]
    assert (resize.size, crop.size) == ([256], (224, 224))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Fixed((torch.zeros(2), 0), (torch.zeros(2), 7)), "^example 1: expected classes 0 to 2, got label 7$"),
        (
            Fixed((torch.zeros(2), 0), torch.zeros(2)),
            r"^example 1: expected \(image, label\), got Tensor; give a DataLoader with a collate_fn that makes .*$",
        ),
        (Fixed(("a.png", 0)), "^example 0: expected a tensor, an array or a PIL image, got str$"),
        (Fixed((torch.zeros(2), 0.5)), "^example 0: expected a class index as label, got 0.5$"),
        (Fixed((torch.zeros(2), 0), (torch.zeros(3), 0)), r"^images of a batch: expected one shape, got \[2\], \[3\]"),
        (
            ImageFiles(["/nowhere/a.png"], torch.zeros(1)),
            r"^/nowhere/a.png cannot be read: .*; fix or remove it and run again",
        ),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_refusals_are_one_sentence_also_from_a_worker(dataset: Dataset[Any], message: str, workers: int) -> None:
    loader = StreamLoader(dataset, 2, workers=workers, classes=3)
    with pytest.raises(ValueError, match=message):
        collected(loader)


def test_labels_and_images_in_the_forms_datasets_give() -> None:
    grey = Image.fromarray(np.full((2, 2), 51, dtype=np.uint8))
    loader = StreamLoader(Fixed((grey, np.int64(1)), (grey, torch.tensor([2]))), 2, workers=0)
    ((x, y),) = collected(loader)
    assert y.tolist() == [1, 2]
    assert torch.equal(x, torch.full((2, 1, 2, 2), 51) / 255)


def test_refuses_a_negative_number_of_workers() -> None:
    with pytest.raises(ValueError, match="workers: expected at least 0, got -1"):
        drawing(workers=-1)
