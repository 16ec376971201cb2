"""An exported network reaches the reported numbers for images that are preprocessed as the exported facts say."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors
import safetensors.torch
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import onefold
from onefold.data.augment import ResizedCrop
from onefold.engine import train_teachers
from onefold.engine.networks.named import build_network
from onefold.export import export
from onefold.recipe import Recipe
from onefold.recipes import recipe_named
from onefold.run import RunFolder

COLOURS = {"blue": (40, 60, 200), "green": (60, 190, 70)}
ENDINGS = {"safetensors": "a.safetensors", "onnx": "a.onnx", "torch-export": "a.pt2", "hub": "a"}
MODES = ("RGB", "L", "RGBA", "P")


def draw(folder: Path, each: int) -> None:
    """Images of several sizes and modes: a bright frame, which a centre crop cuts off, around one of two colours."""
    draws = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, colour in COLOURS.items():
            (folder / split / name).mkdir(parents=True)
            for k in range(each):
                high, wide = (int(side) for side in draws.integers(12, 30, 2))
                pixels = draws.normal(colour, 60, (high, wide, 3)).clip(0, 255).astype(np.uint8)
                pixels[:2] = pixels[-2:] = 255
                image = Image.fromarray(pixels).convert(MODES[k % len(MODES)])
                image.save(folder / split / name / f"{k:03}.png")


def recipe_of(data: Path) -> Recipe:
    recipe = recipe_named("digits")
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=16)
    source = dataclasses.replace(recipe.data, source=f"folder:{data}", workers=0)
    return dataclasses.replace(recipe, network="wrn10x1", members=2, epochs=2, optim=optim, data=source)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run and its data."""
    folder = tmp_path_factory.mktemp("project")
    draw(folder / "data", 40)
    train_teachers(recipe_of(folder / "data"), folder / "teachers", members=[0])
    return folder / "teachers" / "teacher-0", folder / "data"


def prepared(given: dict[str, Any], data: Path) -> tuple[Tensor, Tensor]:
    """The test images, from the exported description alone, with PIL and NumPy."""
    steps, images, labels = given["preprocessing"], [], []
    assert (steps["interpolation"], steps["antialias"]) == ("bilinear", True)  # PIL's way
    for label, name in enumerate(COLOURS):
        for file in sorted((data / "test" / name).iterdir()):
            image: Image.Image = Image.open(file)
            image = (image.convert("RGBA") if image.mode == "P" else image).convert(steps["mode"])
            wide, high = image.size
            short = min(wide, high)
            wide, high = (int(steps["resize"] * side / short) for side in (wide, high))
            image = image.resize((wide, high), Image.Resampling.BILINEAR)
            h, w = steps["center_crop"]
            top, left = round((high - h) / 2), round((wide - w) / 2)
            pixels = np.asarray(image, dtype=np.float32)[top : top + h, left : left + w] / steps["divide_by"]
            images.append(torch.from_numpy(pixels.transpose(2, 0, 1)))
            labels.append(label)
    return torch.stack(images), torch.tensor(labels)


def facts_in(format: str, file: Path) -> dict[str, Any]:
    """The facts in an exported file."""
    if format == "onnx":
        about = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).get_modelmeta()
        return {"input": json.loads(about.custom_metadata_map["onefold.input"])}
    if format == "torch-export":
        extra = {"onefold.json": ""}
        torch.export.load(file, extra_files=extra)
        text = extra["onefold.json"]
    elif format == "hub":
        text = (file / "config.json").read_text()
    else:
        with safetensors.safe_open(file, "pt") as opened:
            text = opened.metadata()["onefold"]
    facts: dict[str, Any] = json.loads(text)
    return facts


def logits_of(format: str, file: Path, x: Tensor) -> Tensor:
    if format == "onnx":
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
    if format == "torch-export":
        answers: Tensor = torch.export.load(file).module()(x)
        return answers
    facts = facts_in(format, file)
    net = build_network("wrn10x1", facts["classes"], facts["statistics"], facts["input"]["shape"][1:]).eval()
    net.load_state_dict(safetensors.torch.load_file(file / "model.safetensors" if format == "hub" else file))
    logits: Tensor = net(x).detach()
    return logits


@pytest.mark.parametrize("format", ["safetensors", "onnx", "torch-export", "hub"])
def test_the_description_gives_the_metrics_of_the_run(trained: tuple[Path, Path], tmp_path: Path, format: str) -> None:
    run, data = trained
    written = export(run, format, tmp_path / ENDINGS[format], calibrated=False).path
    x, labels = prepared(facts_in(format, written)["input"], data)
    logits = logits_of(format, written, x)
    metrics = RunFolder(run).result["metrics"]
    assert float(F.cross_entropy(logits, labels)) == pytest.approx(metrics["nll"], abs=1e-5)
    assert float((logits.argmax(1) == labels).double().mean()) == pytest.approx(metrics["acc"])


def test_the_code_on_the_card_gives_the_same_inputs(trained: tuple[Path, Path], tmp_path: Path) -> None:
    run, data = trained
    folder = export(run, "hub", tmp_path / "hub").path
    card = (folder / "README.md").read_text()
    given = json.loads((folder / "config.json").read_text())["input"]
    code = card.split("```python\n")[1].split("```")[0]
    files = [file for name in COLOURS for file in sorted((data / "test" / name).iterdir())]
    names: dict[str, Any] = {"images": [Image.open(file) for file in files]}
    exec(compile(code, "card", "exec"), names)
    torch.testing.assert_close(names["x"], prepared(given, data)[0], rtol=0, atol=1e-6)
    steps = given["preprocessing"]
    assert f"shorter side is {steps['resize']} pixels (bilinear, antialiased)" in card


def test_an_older_run_does_not_record_it(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """It is found out from the data; if these are gone, the card says how it was decided."""
    shutil.copytree(trained[0].parent.parent, tmp_path / "old")
    run, data = tmp_path / "old" / "teachers" / "teacher-0", tmp_path / "old" / "data"
    about = RunFolder(run).about
    recorded = about.pop("preprocessing")
    recipe = RunFolder(run).recipe
    recipe["data"]["source"] = about["data"] = f"folder:{data}"
    for name, content in {"run.json": about | {"data_place": str(data)}, "recipe.json": recipe}.items():
        (run / name).write_text(json.dumps(content))
    facts = facts_in("safetensors", export(run, "safetensors").path)
    assert facts["input"]["preprocessing"] == recorded
    shutil.rmtree(data)
    written = export(run, "hub")
    folder = written.path
    assert any("does not record how images were brought to this size" in note for note in written.notes)
    assert json.loads((folder / "config.json").read_text())["input"]["preprocessing"] is None
    card = (folder / "README.md").read_text()
    assert "The run does not record how images were brought to this size" in card
    assert f"shorter side is {recorded['resize']} pixels" in card
    assert "prepare" not in card


@pytest.mark.parametrize("pixels", [True, False])
def test_from_python(pixels: bool, tmp_path: Path) -> None:
    x = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8)
    x, y = x if pixels else 3 * x.float() - 1, torch.arange(40) % 2
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    plain: dict[str, Any] = {"method": "supervised", "perturbation": "none", "progress": False, "epochs": 1}
    onefold.distill(None, net, (x, y), test=(x, y), out=tmp_path / "run", **plain)
    folder = export(tmp_path / "run", "hub", net=net, example=torch.rand(2, 3, 8, 8)).path
    given = json.loads((folder / "config.json").read_text())["input"]
    assert given["preprocessing"]["divide_by"] == (255 if pixels else 1)
    assert ("range" in given) == pixels
    card = (folder / "README.md").read_text()
    if not pixels:
        assert "with values as in the data it was trained on" in card
        return
    names: dict[str, Any] = {"images": x.numpy()}
    exec(compile(card.split("```python\n")[1].split("```")[0], "card", "exec"), names)
    torch.testing.assert_close(names["x"], x.float() / 255)


def test_scaling_is_recorded_from_python_too(tmp_path: Path) -> None:
    x, y = torch.randint(0, 256, (40, 3, 20, 20), dtype=torch.uint8), torch.arange(40) % 2
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    plain: dict[str, Any] = {"method": "supervised", "perturbation": "none", "progress": False, "epochs": 1}
    onefold.distill(None, net, (x, y), augment=ResizedCrop(4), out=tmp_path / "run", workers=0, val=(x, y), **plain)
    folder = export(tmp_path / "run", "hub", net=net, example=torch.rand(2, 3, 4, 4)).path
    steps = json.loads((folder / "config.json").read_text())["input"]["preprocessing"]
    assert (steps["mode"], steps["resize"], steps["center_crop"]) == (None, 5, [4, 4])


def test_standardisation_is_only_told_of_networks_that_have_it(trained: tuple[Path, Path], tmp_path: Path) -> None:
    folder = export(trained[0], "hub", tmp_path / "with").path
    assert "the network standardises them itself" in (folder / "README.md").read_text()
    config = json.loads((folder / "config.json").read_text())
    assert config["statistics"] == RunFolder(trained[0]).about["statistics"]
    (tmp_path / "plain_net.py").write_text(
        "from torch import nn\n\n\ndef net(classes):\n    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))\n"
    )
    recipe = dataclasses.replace(recipe_of(trained[1]), network=f"{tmp_path}/plain_net.py:net", epochs=1)
    train_teachers(recipe, tmp_path / "teachers", members=[0])
    folder = export(tmp_path / "teachers" / "teacher-0", "hub", tmp_path / "without").path
    assert "standardis" not in (folder / "README.md").read_text()
    assert "statistics" not in json.loads((folder / "config.json").read_text())
