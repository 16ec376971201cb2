from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onefold.data import Arrays, load


class Feature(SimpleNamespace):
    """Stands for a feature of the library's: recognised by the name of its class."""


class ClassLabel(Feature):
    pass


class ImageFeature(Feature):
    pass


ImageFeature.__name__ = "Image"


class Rows:
    """Stands for a split of the library's, images undecoded."""

    def __init__(self, images: list[Any], labels: list[int], **features: Feature) -> None:
        self.columns = {"img": images, "label": labels}
        self.features = features or {"img": ImageFeature(), "label": ClassLabel(names=["no", "yes"])}

    def __len__(self) -> int:
        return len(self.columns["label"])

    def __getitem__(self, key: int | str) -> Any:
        return self.columns[key] if isinstance(key, str) else {name: value[key] for name, value in self.columns.items()}

    def cast_column(self, name: str, feature: Feature) -> Rows:
        assert (name, feature.decode) == ("img", False)
        return self


def encoded(value: int) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), value, dtype=np.uint8)).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


def rows(count: int, first: int = 0) -> Rows:
    return Rows([encoded(first + index) for index in range(count)], [index % 2 for index in range(count)])


class Library(SimpleNamespace):
    """Stands for the library."""

    def __init__(self, splits: dict[str, Rows] | Exception) -> None:
        super().__init__(config=SimpleNamespace(HF_HUB_OFFLINE=False), Image=ImageFeature, asked=[])
        self.splits = splits

    def load_dataset(self, name: str, config: str | None) -> dict[str, Rows]:
        self.asked.append((name, config, self.config.HF_HUB_OFFLINE))
        if isinstance(self.splits, Exception):
            raise self.splits
        return self.splits


def install(monkeypatch: pytest.MonkeyPatch, splits: dict[str, Rows] | Exception) -> Library:
    library = Library(splits)
    monkeypatch.setitem(sys.modules, "datasets", library)
    constants = SimpleNamespace(HF_HUB_OFFLINE=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(constants=constants))
    monkeypatch.setitem(sys.modules, "huggingface_hub.constants", constants)
    return library


def lengths(source: Any) -> list[int]:
    return [len(split) for split in source.splits.values()]


def test_splits_and_columns_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    library = install(monkeypatch, {"train": rows(20), "validation": rows(4, 50), "test": rows(6, 90)})
    source = load("hf:owner/name:plain")
    assert lengths(source) == [20, 4, 6]
    assert isinstance(source.test, Arrays)
    assert source.test.x[:, 0, 0, 0].tolist() == [90, 91, 92, 93, 94, 95]
    assert source.test.y.tolist() == [0, 1, 0, 1, 0, 1]
    assert (source.name, source.classes) == ("hf:owner/name:plain", ("no", "yes"))
    assert library.asked == [("owner/name", "plain", True)]


def test_the_network_is_asked_only_for_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    library = install(monkeypatch, {"train": rows(20), "test": rows(6)})
    load("hf:name", download=True)
    load("hf:name")
    assert library.asked == [("name", None, False), ("name", None, True)]
    assert not library.config.HF_HUB_OFFLINE


def test_missing_splits_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"train": rows(20), "test": rows(6)})
    assert lengths(load("hf:name")) == [18, 2, 6]
    install(monkeypatch, {"train": rows(20)})
    assert lengths(load("hf:name")) == [14, 2, 4]
    install(monkeypatch, {"train": rows(20), "valid": rows(8)})
    assert lengths(load("hf:name")) == [18, 2, 8]


def test_a_test_split_without_labels_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    unlabelled = Rows([encoded(0)] * 3, [-1] * 3)
    install(monkeypatch, {"train": rows(20), "validation": rows(8), "test": unlabelled})
    source = load("hf:name")
    assert lengths(source) == [18, 2, 8]
    assert source.notes[0] == "test has no labels and is not used"


def test_broken_images_and_labels_are_named_by_their_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    train = rows(20)
    train.columns["img"][3] = {"bytes": b"", "path": None}
    train.columns["img"][5] = {"bytes": None, "path": str(tmp_path / "gone.png")}
    install(monkeypatch, {"train": train, "test": rows(6)})
    with pytest.raises(
        ValueError, match=r"2 files cannot be used(.|\n)*hf:name train\[3\]: it is empty(.|\n)*train\[5\]: "
    ):
        load("hf:name")
    assert lengths(load("hf:name", skip_unreadable=True)) == [16, 2, 6]
    train.columns["label"][7] = 2
    with pytest.raises(ValueError, match=r"classes 0 to 1, got 1 outside of them:\n  hf:name train\[7\]: label 2"):
        load("hf:name")


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"unsupervised": rows(2)}, "^hf:name: expected a split named train, got unsupervised$"),
        (
            {"train": Rows([], [], text=Feature(), label=ClassLabel(names=["a"]))},
            "^hf:name: expected one column of type Image, got none among text, label$",
        ),
        (
            {"train": Rows([], [], img=ImageFeature(), a=ClassLabel(names=[]), b=ClassLabel(names=[]))},
            "^hf:name: expected one column of type ClassLabel, got a, b among img, a, b$",
        ),
        (
            FileNotFoundError("not\ncached"),
            "^hf:name: the datasets library could not load it: not cached; pass --download",
        ),
    ],
)
def test_refuses_what_it_cannot_use(
    splits: dict[str, Rows] | Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, splits)
    with pytest.raises(ValueError, match=message):
        load("hf:name")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"^hf:NAME needs the package datasets, .*pip install .*datasets$"):
        load("hf:name")
