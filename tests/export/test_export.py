"""What is exported predicts what the run predicted, in programs that do not know this one."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor, nn

import onefold
from onefold.cli import main
from onefold.data import Arrays, load
from onefold.engine import evaluate_run
from onefold.engine.networks.named import build_network
from onefold.engine.served import Own
from onefold.export import FORMATS, about_temperature, agree, export
from onefold.export.deployed import deployed, published_data
from onefold.export.onnx_file import onnx_bytes
from onefold.export.program import program_bytes, traced
from onefold.run import RunFolder

Copied = Callable[[str], Path]
RUNS = ("kd", "proxy-end2", "be", "latentbe", "conv", "teachers")
ALONE = """
import sys
sys.modules["onefold"] = None  # whoever asks for it fails
import numpy, torch
x = torch.from_numpy(numpy.load("x.npy"))
for k, file in enumerate(sys.argv[1:]):
    if file.endswith(".onnx"):
        import onnxruntime
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        assert [i.name for i in session.get_inputs()] == ["x"] and session.get_inputs()[0].shape[0] == "batch"
        assert [o.name for o in session.get_outputs()] == ["logits"]
        answer = lambda x: session.run(None, {"x": x.numpy()})[0]
    else:
        program = torch.export.load(file).module()
        answer = lambda x: program(x).numpy()
    numpy.save(f"logits-{k}.npy", numpy.concatenate([answer(x), answer(x[:1])]))
"""


def images() -> Tensor:
    """Of the test split, the first 200."""
    test = load("digits").test
    assert isinstance(test, Arrays)
    return test.x[:200].float() / 255


def asked_alone(files: list[Path], x: Tensor, tmp_path: Path) -> list[npt.NDArray[np.float32]]:
    """Logits by another process, which cannot import this package: of all inputs, and of the first by itself."""
    np.save(tmp_path / "x.npy", x.numpy())
    subprocess.run([sys.executable, "-W", "ignore", "-c", ALONE, *files], check=True, cwd=tmp_path)
    return [np.load(tmp_path / f"logits-{k}.npy") for k in range(len(files))]


def predicted(path: Path) -> npt.NDArray[np.float64]:
    """Probabilities of the run's own predictions for the same images, at its temperature."""
    folders = sorted(path.glob("teacher-*")) or [path]
    stored = [RunFolder(folder).predictions("test") for folder in folders]
    log_p = np.stack([found[1][:200].astype(np.float64) for found in stored if found is not None])
    return softmax(np.log(np.exp(log_p).mean(0)) / fitted(path))


def fitted(path: Path) -> float:
    return evaluate_run(path)["temperature"]


def softmax(logits: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    return torch.from_numpy(logits).double().softmax(-1).numpy()


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
def test_others_predict_the_same(run: Copied, format: str, tmp_path: Path) -> None:
    paths = [run(name) for name in RUNS]
    written = [export(path, format) for path in paths]
    assert [one.path.parent for one in written] == [path / "export" for path in paths]
    assert all("calibrated with the temperature" in one.notes[0] for one in written)
    answers = asked_alone([one.path for one in written], images(), tmp_path)
    for path, logits in zip(paths, answers, strict=True):
        expected = predicted(path)
        assert fitted(path) != pytest.approx(1, abs=0.01)  # else a forgotten temperature would pass
        np.testing.assert_allclose(softmax(logits), np.concatenate([expected, expected[:1]]), atol=2e-5)


@pytest.mark.parametrize("name", ["kd", "latentbe", "conv"])
def test_weights_go_into_the_network_they_are_of(run: Copied, name: str) -> None:
    path = run(name)
    written = export(path, "safetensors")
    network = build_network("wrn10x1" if name == "conv" else "mlp", 10, load("digits").statistics, (8, 8)).eval()
    network.load_state_dict(safetensors.torch.load_file(written.path), strict=True)
    with torch.no_grad():
        logits = network(images()).numpy()
    np.testing.assert_allclose(softmax(logits), predicted(path), atol=2e-5)
    with safetensors.safe_open(written.path, "pt") as file:
        facts = json.loads(file.metadata()["onefold"])
    assert facts["calibrated"]
    assert facts["temperature"] == pytest.approx(fitted(path))
    expected = {"shape": [1, 8, 8], "dtype": "float32", "range": [0.0, 1.0], "layout": "[B, C, H, W]"}
    assert {key: value for key, value in facts["input"].items() if key != "preprocessing"} == expected
    assert facts["class_names"] == [str(k) for k in range(10)]


@pytest.mark.parametrize(
    ("name", "words"), [("be", "weights of 2 networks"), ("teachers", "of 2 networks"), ("proxy-end2", "Dirichlet")]
)
def test_weights_that_are_not_the_whole_answer_say_what_is_missing(run: Copied, name: str, words: str) -> None:
    path = run(name)
    written = export(path, "safetensors")
    (told,) = (note for note in written.notes if words in note)
    assert f"divide by the temperature {fitted(path):.6g}" in told
    assert written.notes[0].startswith("not calibrated: weights alone cannot hold the temperature")
    assert not any(note.startswith("calibrated") for note in written.notes)
    with safetensors.safe_open(written.path, "pt") as file:
        facts = json.loads(file.metadata()["onefold"])
    assert not facts["calibrated"]
    assert facts["temperature"] == pytest.approx(fitted(path))
    assert words in facts["output"]


@pytest.mark.parametrize("name", ["be", "latentbe"])
def test_a_hub_folder_says_what_is_calibrated_in_it(
    run: Copied, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = run(name)
    written = export(path, "hub")
    config = json.loads((written.path / "config.json").read_text())
    alone = "" if name == "latentbe" else ", as a program; the weights alone are not"
    assert written.notes[0].endswith(f"of the validation split{alone}")
    assert config["calibrated"]
    assert ("weights" in config) == (name == "be")
    assert "calibrated with the temperature" in (written.path / "README.md").read_text()
    with safetensors.safe_open(written.path / "model.safetensors", "pt") as file:
        assert json.loads(file.metadata()["onefold"])["calibrated"] == (name == "latentbe")
    if name == "latentbe":
        return
    assert not config["weights"]["calibrated"]

    def fail(*_: object) -> None:
        raise ValueError("cannot be traced")

    monkeypatch.setattr("onefold.export.hub.traced", fail)
    folder = export(path, "hub", tmp_path / "without").path
    assert not json.loads((folder / "config.json").read_text())["calibrated"]
    assert "it is not calibrated" in (folder / "README.md").read_text()


@pytest.mark.parametrize("format", FORMATS)
def test_without_temperature_it_has_another_name(run: Copied, format: str) -> None:
    path = run("kd")
    first = export(path, format).path
    content = {file: file.read_bytes() for file in (first.rglob("*") if first.is_dir() else [first])}
    second = export(path, format, calibrated=False).path
    assert (second.parent, second.suffix) == (first.parent, first.suffix)
    assert second.stem == f"{first.stem}-uncalibrated"
    assert {file: file.read_bytes() for file in content} == content


def test_as_it_was_trained(run: Copied, tmp_path: Path) -> None:
    path = run("kd")
    written = export(path, "torch-export", tmp_path / "plain.pt2", calibrated=False)
    with torch.no_grad():
        logits = torch.export.load(written.path).module()(images()).numpy()
    stored = RunFolder(path).predictions("test")
    assert stored is not None
    np.testing.assert_allclose(softmax(logits), np.exp(stored[1][:200].astype(np.float64)), atol=2e-5)
    assert "not calibrated, as asked" in written.notes[0]


def test_a_temperature_that_does_harm_is_noted(run: Copied, tmp_path: Path) -> None:
    path = run("kd")
    labels, _ = RunFolder(path).predictions("val") or pytest.fail("no predictions")
    right = np.eye(10, dtype=np.float32)[labels]
    right[0] = np.roll(right[0], 1)
    RunFolder(path).write_predictions("val", labels, 0.1 * right)  # unsure and right, so that it is made too sure
    harm = "the temperature makes the NLL of the test split worse by more than a tenth"
    for calibrated in (True, False):
        written = export(path, "safetensors", tmp_path / f"{calibrated}.safetensors", calibrated=calibrated)
        assert any(note.startswith(harm) for note in written.notes) == calibrated


def test_a_fixed_batch(run: Copied) -> None:
    path = run("kd")
    program = torch.export.load(export(path, "torch-export", batch=3).path).module()
    assert program(images()[:3]).shape == (3, 10)
    with pytest.raises((AssertionError, RuntimeError)):
        program(images()[:4])


class Picky(nn.Module):
    """Takes one example, or five."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1) * 2 if x.shape[0] in (1, 5) else x.flatten(1)


def test_a_network_that_is_another_for_each_batch_takes_one_example_at_a_time() -> None:
    found = traced(Picky(), torch.rand(5, 3))
    assert len(found.x) == 1
    assert "one example at a time" in found.notes[0]


def test_answers_need_no_gradients_and_the_network_keeps_its_own() -> None:
    net, x = nn.Linear(3, 2), torch.rand(5, 3)
    assert not traced(net, x).program.module()(x).requires_grad
    assert net(x).requires_grad


class Moody(nn.Module):
    """Goes another way by what it sees, which a program cannot hold."""

    def forward(self, x: Tensor) -> Tensor:
        return x if float(x.sum()) > 0 else -x


def test_a_network_that_cannot_be_traced_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cannot be traced: .*safetensors"):
        traced(Moody(), torch.rand(5, 3))


@pytest.mark.parametrize("format", ["onnx", "torch-export", "safetensors"])
def test_what_answers_otherwise_is_not_kept(run: Copied, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("kd")
    monkeypatch.setattr(agree, "CLOSE", -1.0)
    with pytest.raises(ValueError, match="nothing was written, choose another format"):
        export(path, format)
    assert not (path / "export").exists()


def test_a_folder_for_a_hub(run: Copied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("latentbe")
    folder = export(path, "hub", tmp_path / "mine").path
    assert {file.name for file in folder.iterdir()} == {"README.md", "config.json", "model.safetensors", "model.pt2"}
    config = json.loads((folder / "config.json").read_text())
    assert config["id2label"]["3"] == "3"
    assert config["architectures"] == ["Sequential"]
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: onefold\npipeline_tag: image-classification\n")
    assert f"| accuracy | {config['metrics']['acc']:.4f} |" in card
    expected, x = predicted(path), images()
    monkeypatch.chdir(folder)
    codes = [part.split("```")[0] for part in card.split("```python\n")[1:]]
    assert len(codes) == 3
    pixels = (255 * x[:, 0]).round().byte().numpy()
    first: dict[str, object] = {"images": [Image.fromarray(image) for image in pixels]}
    exec(compile(codes[0], "card", "exec"), first)
    torch.testing.assert_close(first["x"], x)
    for code in codes[1:]:  # as it stands on the card
        names: dict[str, object] = {"x": x}
        exec(compile(code, "card", "exec"), names)
        with torch.no_grad():
            logits = names["net"](x).numpy()  # type: ignore[operator]
        np.testing.assert_allclose(softmax(logits), expected, atol=2e-5)


def test_a_card_that_was_edited_stays(run: Copied) -> None:
    path = run("kd")
    folder = export(path, "hub").path
    (folder / "README.md").write_text("mine")
    notes = export(path, "hub").notes
    assert (folder / "README.md").read_text() == "mine"
    assert (folder / "README.md.new").read_text().startswith("---")
    assert any("README.md was edited and was kept" in note for note in notes)


def test_a_card_that_nobody_edited_is_that_of_what_was_written_last(run: Copied) -> None:
    path = run("kd")
    folder = export(path, "hub").path
    first = (folder / "README.md").read_text()
    export(path, "hub", folder, calibrated=False)
    assert (folder / "README.md").read_text() != first
    assert "edited" not in str(export(path, "hub").notes)
    assert (folder / "README.md").read_text() == first  # with its temperature again
    (folder / "README.md").write_text("mine")
    export(path, "hub")
    (folder / "README.md").write_text(first)
    export(path, "hub")
    assert not (folder / "README.md.new").exists()
    (folder / "config.json").write_text("[]")
    export(path, "hub", folder, calibrated=False)
    assert (folder / "README.md.new").exists()


def test_a_card_of_an_older_version_is_not_called_edited(run: Copied) -> None:
    path = run("kd")
    folder = export(path, "hub").path
    config, text = folder / "config.json", (folder / "README.md").read_text()
    (folder / "README.md").write_text("of an older version")
    older = json.loads(config.read_text())
    del older["model_card_sha256"]
    config.write_text(json.dumps(older))
    for _ in range(2):
        (note,) = (note for note in export(path, "hub").notes if "README" in note)
        assert note.startswith(
            "README.md may have been edited, or be of an older version, and was kept; the model card"
        )
    (folder / "README.md.new").replace(folder / "README.md")
    assert not any("README" in note for note in export(path, "hub").notes)
    assert (folder / "README.md").read_text() == text
    assert "model_card_sha256" in json.loads(config.read_text())


NET = """
import torch
from exported_layers import Doubled


class Net(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), Doubled(), torch.nn.Linear(64, num_classes))

    def forward(self, x):
        return self.layers(x)
"""
LAYERS = """
import torch


class Doubled(torch.nn.Module):
    def forward(self, x):
        return 2 * x
"""


def test_a_network_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nets = tmp_path / "nets"
    nets.mkdir()
    (nets / "exported_net.py").write_text(NET)
    (nets / "exported_layers.py").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)
    short = ["--network", "nets/exported_net.py:Net", "--epochs", "1", "--optim.warmup-epochs", "0"]
    assert main(["train", "digits", *short, "--recipe.members", "1", "--out", "t"]) == 0
    capsys.readouterr()
    assert main(["export", "t/teacher-0", "--format", "hub"]) == 0
    told = capsys.readouterr()
    assert "exported_net.py, exported_layers.py" in told.err.replace("\n", " ")
    folder = tmp_path / "t/teacher-0/export/hub"
    assert told.out.strip() == "t/teacher-0/export/hub"
    assert (folder / "exported_layers.py").read_text() == LAYERS
    assert "from exported_net import Net" in (folder / "README.md").read_text()
    assert "nets/" not in (folder / "README.md").read_text() + (folder / "config.json").read_text()


def test_a_network_whose_file_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "moving_net.py").write_text(NET.replace("from exported_layers import Doubled", LAYERS))
    monkeypatch.chdir(tmp_path)
    short = ["--network", "moving_net.py:Net", "--epochs", "1", "--optim.warmup-epochs", "0"]
    assert main(["train", "digits", *short, "--recipe.members", "1", "--out", "t"]) == 0
    (tmp_path / "moving_net.py").rename(tmp_path / "moved_net.py")
    assert main(["export", "t/teacher-0", "--format", "safetensors"]) == 2
    assert "put it back" in capsys.readouterr().err
    assert main(["export", "t/teacher-0", "--format", "safetensors", "--network", "moved_net.py:Net"]) == 0


def test_a_run_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = torch.rand(60, 6), torch.arange(60) % 3
    net = nn.Sequential(nn.Linear(6, 3))
    supervised: dict[str, Any] = {"method": "supervised", "perturbation": "none", "progress": False}
    result = onefold.distill(None, net, (x, y), val=(x, y), epochs=2, out=tmp_path / "run", **supervised)
    assert main(["export", str(tmp_path / "run"), "--format", "onnx"]) == 2
    assert "export(run, format, net=Net(), example=x)" in capsys.readouterr().err
    with pytest.raises(ValueError, match="expected both"):
        export(tmp_path / "run", "onnx", net=net)
    written = export(tmp_path / "run", "torch-export", net=net, example=x[:2])
    served = onefold.calibrated(result.model, result.temperature)
    with torch.no_grad():
        found = torch.export.load(io.BytesIO(written.path.read_bytes())).module()(x)
        torch.testing.assert_close(found, served(x), rtol=1e-5, atol=1e-6)
    card = export(tmp_path / "run", "hub", net=net, example=x[:2]).path / "README.md"
    assert "net = Sequential(...)" in card.read_text()


class Recording(nn.Module):
    """Answers as the classifiers of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return Output(logits=self.body(x))


class Output(OrderedDict[str, Tensor]):
    @property
    def logits(self) -> Tensor:
        return self["logits"]


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("format", ["safetensors", "torch-export"])
def test_a_network_that_returns_an_output_object(format: str, calibrated: bool, tmp_path: Path) -> None:
    x, y = torch.rand(60, 6), torch.arange(60) % 3
    supervised: dict[str, Any] = {"method": "supervised", "perturbation": "none", "progress": False}
    result = onefold.distill(None, Recording(), (x, y), val=(x, y), epochs=2, out=tmp_path, **supervised)
    written = export(tmp_path, format, calibrated=calibrated, net=Recording(), example=x[:2])
    with torch.no_grad():
        wanted = onefold.calibrated(result, example=x)(x).logits if calibrated else result.model(x).logits
        if format == "safetensors":
            again = Recording()
            again.load_state_dict(safetensors.torch.load_file(written.path))
            found = again(x).logits
        else:
            found = torch.export.load(io.BytesIO(written.path.read_bytes())).module()(x)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_without_validation_there_is_no_temperature(tmp_path: Path) -> None:
    x, y = torch.rand(60, 6), torch.arange(60) % 3
    net = nn.Sequential(nn.Linear(6, 3))
    onefold.distill(
        None, net, (x, y), test=(x, y), epochs=1, out=tmp_path, progress=False, method="supervised", perturbation="none"
    )
    written = export(tmp_path, "safetensors", net=net, example=x)
    assert "no validation split" in written.notes[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere", "--format", "onnx"], "nowhere: there is no such folder"),
        (["RUN", "--format", "onnx", "--batch", "0"], "batch: expected at least 1, got 0"),
        (["RUN", "--format", "safetensors", "--batch", "4"], "batch: expected none with safetensors"),
        ([".", "--format", "onnx"], ". is not a run folder, but holds some; give one of them: kd, teachers"),
        (["empty", "--format", "onnx"], "empty is not a run folder; give a run folder, or a folder of teachers"),
        (["RUN", "--format", "onnx", "--out", "."], "is a folder; name a file in it, such as model.onnx"),
        (["RUN", "--format", "hub", "--out", "file"], "file is a file; name a folder"),
        (["RUN", "--format", "tflite"], "expected safetensors, onnx, torch-export or hub, got 'tflite'"),
        (["RUN"], "export needs --format; for example: onefold export"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Copied, words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run("kd")
    run("teachers")
    monkeypatch.chdir(path.parent)
    Path("file").write_text("")
    Path("empty").mkdir()
    assert main(["export", *(word.replace("RUN", "kd") for word in words)]) == 2
    assert told in capsys.readouterr().err
    assert not (path / "export").exists()


def test_a_run_that_is_not_finished_is_refused(run: Copied) -> None:
    path = run("kd")
    (path / "result.json").unlink()
    with pytest.raises(ValueError, match="not a finished run"):
        export(path, "safetensors")


def test_onnx_that_is_not_installed_is_told_first(run: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("kd")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"pip install .*onnx onnxscript onnxruntime$"):
        export(path, "onnx")


def test_every_format_is_offered() -> None:
    assert FORMATS == ("safetensors", "onnx", "torch-export", "hub")


class Marked(nn.Module):
    """Its source has a word of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.xylophone = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        zeppelin: Tensor = self.xylophone(x).relu()
        return zeppelin + 1


@pytest.mark.parametrize("batch", [None, 2])
def test_nobodys_data_and_no_source_is_in_a_program(batch: int | None) -> None:
    found = traced(Marked().eval(), torch.rand(5, 6), batch)
    content, _ = program_bytes(found, {})
    assert torch.export.load(io.BytesIO(content)).example_inputs is None
    for file in (content, onnx_bytes(found, {})[0]):
        assert b"xylophone" in file  # the name of a parameter is no secret
        assert b"zeppelin:" not in file
        assert str(Path(__file__).parent).encode() not in file
        assert b"site-packages" not in file


def test_data_are_published_by_their_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("cifar10", "npz:/home/me/mine.npz", "folder:.", "hf:/home/me/set", "hf:owner/set")
    assert [*map(published_data, names)] == ["cifar10", "mine.npz", tmp_path.name, "set", "hf:owner/set"]


def test_teachers_without_a_test_split_are_calibrated(tmp_path: Path) -> None:
    x, y = torch.rand(60, 6), torch.arange(60) % 3
    net = nn.Sequential(nn.Linear(6, 3))
    for m in range(2):
        folder = tmp_path / f"teacher-{m}"
        onefold.distill(
            None, net, (x, y), val=(x, y), method="supervised", epochs=1, seed=m, out=folder, progress=False
        )
    assert "calibrated with the temperature" in about_temperature(deployed(tmp_path, own=Own(net, x)), "onnx")
