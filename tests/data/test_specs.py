from __future__ import annotations

import os
from pathlib import Path

import pytest

from onefold.data import KINDS, READERS, load


@pytest.mark.parametrize(
    ("spec", "offer"),
    [
        ("cifar-10", "cifar10"),
        ("CIFAR100", "cifar100"),
        ("tinyimagenet", "tiny-imagenet"),
        ("tiny_imagenet", "tiny-imagenet"),
        ("imagenet1k", "imagenet"),
        ("SVNH", "svhn"),
        ("digit", "digits"),
        ("folders:some/where", "folder:some/where"),
        ("nzp:a.npz", "npz:a.npz"),
        ("some/where/mine.npz", "npz:some/where/mine.npz"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(spec: str, offer: str) -> None:
    with pytest.raises(
        ValueError, match=rf"^data: expected cifar10, .* or hf:NAME, got '{spec}'; did you mean {offer}\?$"
    ):
        load(spec)


def test_a_bare_path_is_offered_as_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"did you mean folder:{tmp_path}\?"):
        load(str(tmp_path))
    with pytest.raises(ValueError, match=r"got 'qqqq'$"):
        load("qqqq")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_needs_a_path_or_a_name(kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^data: expected {kind}:(PATH|NAME), got '{kind}:'$"):
        load(f"{kind}:")


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"val_fraction: expected a value between 0 and 1, got 1\.5"):
        load("digits", val_fraction=1.5)
    with pytest.raises(ValueError, match="image_size: expected at least 1, got 0"):
        load("imagenet", image_size=0)
    with pytest.raises(ValueError, match="image_size: expected none, because cifar10 is used at its own size, got 64"):
        load("cifar10", image_size=64)


@pytest.mark.parametrize("name", sorted(set(READERS) - {"digits"}))
def test_nothing_is_written_without_data(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{name}: .* not found.* pass --download"):
        load(name, tmp_path / "data")
    assert os.listdir(tmp_path) == []
