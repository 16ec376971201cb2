from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
from torchvision.datasets.vision import StandardTransform

from onefold.data import Arrays, as_split, from_arrays, labels_of, loader_for, targets_of
from onefold.data.split import check_range

X, Y = torch.zeros(4, 3, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 2, 3], dtype=torch.int32)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


class Unsized(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index


def test_arrays() -> None:
    arrays = Arrays(X, Y)
    assert arrays.y.dtype == torch.int64
    assert (len(arrays), arrays.images, arrays.nbytes) == (4, True, 48 + 32)
    assert not Arrays(X.float(), Y).images
    assert arrays.take(torch.tensor([2, 0])).y.tolist() == [2, 0]
    image, label = arrays[3]
    assert (image.shape, label) == ((3, 2, 2), 3)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_token_indices_stay_what_they_are(dtype: torch.dtype) -> None:
    tokens = torch.randint(300, (4, 7), dtype=dtype)
    for given in (TensorDataset(tokens, Y), (tokens, Y), (tokens.numpy(), Y.numpy())):
        split = as_split(given)
        assert isinstance(split, Arrays)
        assert not split.images
        ((x, _),) = loader_for(split, 4, train=False).batches()
        assert x.dtype == dtype
        assert torch.equal(x, tokens)
    for odd in (tokens[:, 0], tokens[:, :, None, None], tokens.to(torch.int16)):
        with pytest.raises(ValueError, match=r"train: x: expected uint8 images .* or token indices \[N, L\]"):
            as_split((odd, Y), "train")
    arrays = Arrays(tokens, Y)
    with pytest.raises(ValueError, match=r"tokens: expected uint8 images or floats, got torch\.int"):
        from_arrays("tokens", arrays, arrays, arrays, ("a", "b", "c", "d"))


def test_what_may_be_given_from_python() -> None:
    for given in ((X, Y), [X, Y], (X.numpy(), Y.numpy()), TensorDataset(X, Y)):
        split = as_split(given)
        assert isinstance(split, Arrays)
        assert torch.equal(split.x, X)
    arrays, dataset = Arrays(X, Y), TensorDataset(X, Y, Y)
    for kept in (arrays, dataset, DataLoader(dataset)):
        assert as_split(kept) is kept


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.dtype(">f8")])
def test_floats_of_numpy_are_made_what_networks_are_made_of(dtype: Any) -> None:
    x = (np.arange(12).reshape(4, 3) / 7).astype(dtype)
    split = as_split((x, Y.numpy()))
    assert isinstance(split, Arrays)
    assert split.x.dtype == torch.float32
    np.testing.assert_array_equal(split.x.numpy(), x.astype(np.float32))


def test_tensors_stay_what_they_are() -> None:
    for x in (torch.rand(4, 3, dtype=torch.float64), torch.rand(4, 3).bfloat16()):
        for given in ((x, Y), TensorDataset(x, Y)):
            split = as_split(given)
            assert isinstance(split, Arrays)
            assert split.x is x


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X, Y, Y), r"val: expected a pair of tensors \(x, y\), got tuple of Tensor, Tensor, Tensor"),
        ((X, [0, 1]), r"val: expected a pair of tensors \(x, y\), got tuple of Tensor, list"),
        ((X, Y[:3]), "val: y: expected 4 labels, one for each example, got 3"),
        ((X, Y.float()), r"val: y: expected integer class indices \[N\], got torch.float32"),
        ((X, Y > 1), r"val: y: expected integer class indices \[N\], got torch.bool"),
        (
            (X.flatten(1), Y),
            r"val: x: expected uint8 images \[N, C, H, W\], got \[4, 12\]; give other inputs as floats",
        ),
        ((X.int(), Y), r"val: x: expected uint8 images .*, floats \[N, ...\] or .*, got torch.int32"),
        ((X[:0], Y[:0]), "val: x: expected at least one example, got none"),
        (Stream(), "val: an IterableDataset cannot be shuffled"),
        (Unsized(), "val: expected a Dataset with a length, got Unsized without __len__"),
        ("cifar10", r"val: expected a torch Dataset, a DataLoader or a pair of tensors \(x, y\), got str;"),
        (Path(), r"got pathlib\S*Path; .* a DataLoader with a collate_fn that makes batches \(x, y\)$"),
    ],
)
def test_refuses_what_is_no_split(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_split(given, "val")


def test_labels_are_known_or_not() -> None:
    labels = labels_of(Arrays(X, Y))
    assert labels is not None
    assert labels.tolist() == [0, 1, 2, 3]
    assert labels_of(TensorDataset(X, Y, Y)) is None


def test_labels_outside_the_classes_are_listed_with_their_place() -> None:
    check_range(Y, range(4), str)
    with pytest.raises(ValueError, match=r"classes 0 to 2, got 2 outside of them:\n  at 1: label -1\n  at 3: label 3$"):
        check_range(torch.tensor([0, -1, 2, 3]), range(3), "at {}".format)
    with pytest.raises(ValueError, match=r"got 250 outside of them:(.|\n)*label 7\n  and 240 more$"):
        check_range(torch.from_numpy(np.full(250, 7)), range(3), "at {}".format)


class Targets(Dataset[int]):
    def __init__(self, targets: object, target_transform: object = None) -> None:
        self.targets, self.target_transform = targets, target_transform

    def __len__(self) -> int:
        return 4


def test_labels_that_are_known_without_reading() -> None:
    for known in (Arrays(X, Y), Targets([0, 1, 2, 3]), Targets(Y), Targets(Y.numpy()), TensorDataset(X, Y)):
        labels = targets_of(known)
        assert labels is not None
        assert labels.tolist() == [0, 1, 2, 3]
        part = targets_of(Subset(known, [2, 0]))  # type: ignore[arg-type]
        assert part is not None
        assert part.tolist() == [2, 0]
    for unknown in (None, ["a"] * 4, [[1], [1, 2]] * 2, [[1], [2]] * 2, [0.5, 1.0] * 2, [0, 1]):
        assert targets_of(Targets(unknown)) is None
    assert targets_of(Targets([0, 1, 2, 3], target_transform=abs)) is None
    joint = Targets([0, 1, 2, 3])
    joint.transforms = StandardTransform(torch.neg, None)  # type: ignore[attr-defined]
    assert targets_of(joint) is not None
    for changing in (StandardTransform(None, abs), lambda x, y: (x, -y)):
        joint.transforms = changing  # type: ignore[attr-defined]
        assert targets_of(joint) is None
    assert targets_of(Unsized()) is None
    assert targets_of(DataLoader(TensorDataset(X, Y))) is None
