"""Images of another distribution are preprocessed as the run's own test images are."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from onefold.engine import train_teachers
from onefold.engine.measure.inputs import DataOptions, RunData
from onefold.engine.measure.ood import ood
from onefold.engine.measure.outside import outside_batches, scaling
from onefold.engine.measure.subject import Folder, Subject, subject_of
from onefold.recipes import recipe_named
from onefold.run import RunFolder

CPU = torch.device("cpu")


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def title(self, text: str) -> None:
        pass

    def count(self, done: int, total: int, detail: str = "") -> None:
        pass

    def message(self, text: str) -> None:
        self.messages.append(text)


def draw(folder: Path) -> None:
    """Wide images with a bright frame, of several sizes and of two classes."""
    draws = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, level in (("dark", 60), ("light", 160)):
            (folder / split / name).mkdir(parents=True)
            for k in range(30):
                high = int(draws.integers(10, 16))
                pixels = draws.normal(level, 60, (high, 2 * high, 3)).clip(0, 255).astype(np.uint8)
                pixels[:, :3] = pixels[:, -3:] = 255
                Image.fromarray(pixels).save(folder / split / name / f"{k:02}.png")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    draw(folder / "data")
    recipe = recipe_named("digits")
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=16)
    source = dataclasses.replace(recipe.data, source=f"folder:{folder}/data", workers=0)
    recipe = dataclasses.replace(recipe, network="wrn10x1", members=2, epochs=1, optim=optim, data=source)
    train_teachers(recipe, folder / "teachers", members=[0])
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained / "teachers" / "teacher-0", tmp_path / "run")
    return tmp_path / "run"


def measured(run: Path, **options: Any) -> tuple[Subject, RunData]:
    subject = subject_of(Folder(run), CPU)
    return subject, RunData(subject, DataOptions(workers=0, **options))


def aurocs(run: Path) -> dict[str, float]:
    sets = json.loads((run / "measurements" / "ood.json").read_text())["sets"]
    return {one["name"]: one["scores"]["entropy"]["auroc"] for one in sets}


@pytest.mark.parametrize("recorded", [True, False])
def test_a_copy_of_the_test_images_cannot_be_told_from_them(
    trained: Path, run: Path, tmp_path: Path, recorded: bool
) -> None:
    if not recorded:  # as older runs
        about = RunFolder(run).about
        about.pop("preprocessing")
        (run / "run.json").write_text(json.dumps(about))
    shutil.copytree(trained / "data", tmp_path / "copy")
    subject, data = measured(run)
    ood(subject, data, {"copy": f"folder:{tmp_path}/copy"}, Heard())
    assert aurocs(run)["copy"] == pytest.approx(0.5, abs=1e-6)


def test_arrays_are_scaled_and_cropped_like_images(run: Path, tmp_path: Path) -> None:
    subject, data = measured(run)
    side = subject.image_size[0]
    wide = np.zeros((2, 40, 80, 3), np.uint8)
    wide[:, :, :20] = wide[:, :, -20:] = 255  # outside of the square in the middle
    np.savez(tmp_path / "wide.npz", x=wide)
    (tmp_path / "wide").mkdir()
    Image.fromarray(wide[0]).save(tmp_path / "wide" / "a.png")
    for spec in (f"npz:{tmp_path}/wide.npz", f"folder:{tmp_path}/wide"):
        _, batches = outside_batches(subject, spec, data, scaling(subject, data))
        (x,) = batches()
        assert x.shape[1:] == (3, side, side)
        assert float(x.max()) == 0


def test_what_was_measured_otherwise_is_measured_again(trained: Path, run: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "data" / "test" / "dark", tmp_path / "dark")
    sets = {"dark": f"folder:{tmp_path}/dark"}
    subject, data = measured(run)
    ood(subject, data, sets, Heard())
    file = run / "measurements" / "ood.json"
    stored = json.loads(file.read_text())
    ood(subject, data, sets, heard := Heard())
    assert len(heard.messages) == 1
    for one in stored["sets"]:  # an older version, which squashed them
        del one["resize"]
        one["scores"]["entropy"]["auroc"] = 0.123
    file.write_text(json.dumps(stored))
    ood(subject, data, sets, heard := Heard())
    assert heard.messages == []
    assert aurocs(run)["dark"] != 0.123


@pytest.mark.parametrize("place", ["data", "data/test", "data/train/dark", "."])
def test_the_runs_own_images_are_refused(trained: Path, run: Path, place: str) -> None:
    subject, data = measured(run)
    with pytest.raises(ValueError, match=r"own cannot be measured: .* has images of the run's own data"):
        ood(subject, data, {"own": f"folder:{trained / place}"}, Heard())
    assert not (run / "measurements" / "ood.json").exists()


def test_other_images_may_lie_beside_the_splits(trained: Path, run: Path) -> None:
    subject, data = measured(run)
    (trained / "data" / "others").mkdir()
    Image.new("RGB", (9, 9)).save(trained / "data" / "others" / "a.png")
    ood(subject, data, {"others": f"folder:{trained}/data/others"}, Heard())
    shutil.rmtree(trained / "data" / "others")
    assert set(aurocs(run)) == {"others"}


def test_unreadable_images_are_left_out_if_asked(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for k in range(3):
        Image.new("RGB", (9, 9), (k, k, k)).save(folder / f"{k}.png")
    (folder / "a.png").write_bytes(b"no image")
    (folder / "b.png").write_bytes((folder / "0.png").read_bytes()[:40])
    subject, data = measured(run)
    sets = {"broken": f"folder:{folder}"}
    with pytest.raises(ValueError, match=r"2 files cannot be used; .*--data.skip-unreadable(?s:.*)a.png(?s:.*)b.png"):
        ood(subject, data, sets, Heard())
    subject, data = measured(run, skip_unreadable=True)
    ood(subject, data, sets, heard := Heard())
    (said,) = heard.messages
    assert "left out 2 files" in said
    (one,) = json.loads((run / "measurements" / "ood.json").read_text())["sets"]
    assert one["count"] == 3
