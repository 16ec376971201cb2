from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Subset, TensorDataset

from onefold.data import Arrays, ResizedCrop, load, loader_for
from onefold.data.preprocessing import of_name, of_source, preprocessing, view_from

AS_IT_IS = {"resize": None, "interpolation": None, "antialias": None, "center_crop": None, "divide_by": 255}


def pictures(folder: Path, sides: tuple[int, ...]) -> str:
    """Ten random images of each of two classes, of these sizes in turn."""
    draws = np.random.default_rng(0)
    for name in ("a", "b"):
        (folder / "train" / name).mkdir(parents=True)
        for k in range(10):
            side = sides[k % len(sides)]
            pixels = draws.integers(0, 256, (side, side + 3, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "train" / name / f"{k}.png")
    return f"folder:{folder}"


def test_images_of_several_sizes_are_scaled_and_cropped(tmp_path: Path) -> None:
    source = load(pictures(tmp_path, (14, 20)))
    found = of_source(source)
    assert found["mode"] == "RGB"
    assert found["resize"] == round(source.image_size[0] * 256 / 224)
    assert (found["interpolation"], found["antialias"]) == ("bilinear", True)
    assert (found["center_crop"], found["divide_by"]) == (list(source.image_size), 255)
    view = view_from(found)
    assert view is not None
    test = source.test
    batches = loader_for(test, 100, train=False, augment=source.augment, workers=0).batches()
    seen = torch.cat([x for x, _ in batches])
    for k in range(len(seen)):
        expected = np.asarray(view(test[k][0]), dtype=np.float32).transpose(2, 0, 1) / 255  # type: ignore[index]
        np.testing.assert_array_equal(seen[k].numpy(), expected)


def test_images_of_one_size_keep_it(tmp_path: Path) -> None:
    assert of_source(load(pictures(tmp_path, (9,)))) == {"mode": "RGB"} | AS_IT_IS
    assert of_source(load("digits")) == {"mode": "L"} | AS_IT_IS
    assert view_from(of_source(load("digits"))) is None


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), {"mode": None} | AS_IT_IS),
        (torch.rand(4, 3, 8, 8), {"mode": None} | AS_IT_IS | {"divide_by": 1}),
        (torch.rand(4, 6), {}),
    ],
)
def test_arrays(x: Tensor, expected: dict[str, object], tmp_path: Path) -> None:
    assert preprocessing(Arrays(x, torch.arange(4)), None) == expected
    x, y = x.repeat(5, *[1] * (x.dim() - 1)), torch.arange(20) % 2
    np.savez(tmp_path / "a.npz", train_x=x, train_y=y, test_x=x, test_y=y)
    assert of_source(load(f"npz:{tmp_path}/a.npz")) == expected


def test_a_dataset_of_ones_own_has_its_own_transforms() -> None:
    dataset = Subset(TensorDataset(torch.rand(4, 3, 8, 8), torch.arange(4)), [0, 1])
    assert preprocessing(dataset, None) == {}
    assert preprocessing(dataset, ResizedCrop(224))["resize"] == 256


def test_known_by_name() -> None:
    assert of_name("digits", 1, [8, 8]) == of_source(load("digits"))
    imagenet = of_name("imagenet", 3, [224, 224])
    assert imagenet is not None
    assert (imagenet["resize"], imagenet["center_crop"]) == (256, [224, 224])
    assert of_name("folder:imagenet", 3, [224, 224]) is None
