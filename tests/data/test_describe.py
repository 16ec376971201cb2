from __future__ import annotations

import torch
from torch.utils.data import TensorDataset

from onefold.data import Arrays, Source, Statistics, describe, from_arrays, rows


def pixels(*labels: int) -> Arrays:
    return Arrays(torch.full((len(labels), 3, 4, 6), 51, dtype=torch.uint8), torch.tensor(labels))


def test_shows_counts_sizes_and_statistics() -> None:
    source = from_arrays(
        "mine", pixels(0, 0, 1), pixels(0, 1), pixels(1), ("ant", "bee"), notes=("a note\nof two lines",)
    )
    assert rows(source) == [
        ("data", "mine"),
        ("classes", "2: ant, bee"),
        ("train", "3 examples: ant 2, bee 1"),
        ("val", "2 examples, 1 of each class"),
        ("test", "1 example: ant 0, bee 1"),
        ("images", "6 x 4 pixels, 3 channels"),
        ("mean", "0.2, 0.2, 0.2"),
        ("deviation", "1, 1, 1"),
        ("note", "a note\nof two lines"),
        ("note", "test has no example of 1 of the 2 classes: ant"),
    ]
    lines = describe(source).splitlines()
    assert lines[0] == "data       mine"
    assert lines[-2] == "           of two lines"


def test_many_classes_and_features_are_shortened() -> None:
    labels = torch.arange(30).repeat(2)
    labels[31] = 7
    features = Arrays(torch.randn(60, 5), labels)
    names = tuple(f"class {number}" for number in range(30))
    table = dict(rows(from_arrays("table", features, features, features, names)))
    assert table["classes"].startswith("30: class 0, class 1")
    assert table["classes"].endswith("class 19, ...")
    assert table["train"] == "60 examples, from 1 (class 1) to 3 (class 7) per class"
    assert table["features"] == "5"
    assert table["mean"].startswith("from ")


def test_a_dataset_that_does_not_know_its_labels_is_counted() -> None:
    dataset = TensorDataset(torch.zeros(1200, 3))
    source = Source("own", dataset, dataset, dataset, ("a", "b"), Statistics((0.0,), (1.0,)), (8, 8), None)
    assert ("val", "1,200 examples") in rows(source)
    assert ("images", "8 x 8 pixels, 1 channel") in rows(source)
