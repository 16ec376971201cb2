"""What is loaded from a run folder predicts what the run predicted."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import onefold
from onefold.data import Arrays, load
from onefold.engine import distill_run, train_teachers
from onefold.export import export
from onefold.methods import METHODS, Method, plain
from onefold.models import ChannelStatistics, Standardize, wide_resnet
from onefold.objectives import cross_entropy
from onefold.recipe import DistillRecipe, Recipe
from onefold.recipes import recipe_named
from onefold.run import RunFolder

SUPERVISED: dict[str, Any] = {"method": "supervised", "perturbation": "none", "progress": False, "workers": 0}
OWN = """
import torch


class Net(torch.nn.Sequential):
    def __init__(self, num_classes):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))
"""


def tiny(method: str, network: str = "mlp") -> Recipe:
    recipe = recipe_named("digits")
    optim = dataclasses.replace(recipe.optim, warmup_epochs=0, batch_size=100)
    distill = DistillRecipe(method=method, perturbation="none")
    return dataclasses.replace(recipe, network=network, members=2, epochs=1, optim=optim, distill=distill)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders: teachers, a student of each kind of answer, and a convolutional one."""
    folder = tmp_path_factory.mktemp("runs")
    train_teachers(tiny("kd"), folder / "teachers")
    for method in ("kd", "proxy-end2", "be"):
        distill_run(tiny(method), folder / method, folder / "teachers")
    distill_run(tiny("latentbe", "wrn10x1"), folder / "conv", folder / "teachers")
    return folder


def images() -> Tensor:
    test = load("digits").test
    assert isinstance(test, Arrays)
    return test.x.float() / 255


@torch.no_grad()
def predicted(network: nn.Module, x: Tensor) -> Tensor:
    probabilities: Tensor = network(x).double().softmax(-1)
    return probabilities


def stored(path: Path, temperature: float) -> Tensor:
    """Probabilities that were written down for the test split, the mean of a folder's teachers."""
    folders = sorted(path.glob("teacher-*")) or [path]
    found = [RunFolder(folder).predictions("test") for folder in folders]
    log_p = torch.stack([torch.from_numpy(logits).double() for _, logits in filter(None, found)])
    return (log_p.softmax(-1).mean(0).log() / temperature).softmax(-1)


@pytest.mark.parametrize("name", ["kd", "proxy-end2", "be", "conv", "teachers"])
def test_the_prediction_is_the_run_s(trained: Path, name: str) -> None:
    path, x = trained / name, images()
    network = onefold.load(path)
    assert not any(module.training for module in network.modules())
    temperature = onefold.evaluate(
        onefold.load(path, calibrated=False), load("digits").test, calibrate_on=load("digits").val
    )["temperature"]
    assert abs(temperature - 1) > 0.01  # else a forgotten one would pass
    torch.testing.assert_close(predicted(network, x), stored(path, temperature), atol=3e-5, rtol=0)
    as_trained = onefold.load(path, calibrated=False)
    torch.testing.assert_close(predicted(as_trained, x), stored(path, 1.0), atol=3e-5, rtol=0)


def test_what_is_not_among_the_weights_is_there(trained: Path) -> None:
    path, x = trained / "conv", images()
    by_hand = wide_resnet(10, 1, 10, ChannelStatistics((0.5,), (0.25,)), channels=1).eval()
    by_hand.load_state_dict(load_file(path / "model.safetensors"))  # without a word
    found = onefold.load(path, calibrated=False)
    assert type(found) is type(by_hand)
    assert found.state_dict().keys() == by_hand.state_dict().keys()
    expected = stored(path, 1.0)
    assert float((predicted(by_hand, x) - expected).abs().max()) > 0.01
    torch.testing.assert_close(predicted(found, x), expected, atol=3e-5, rtol=0)


def test_a_network_that_the_folder_describes_is_not_taken(trained: Path) -> None:
    for name in ("conv", "teachers"):
        with pytest.raises(ValueError, match=r"^net: expected none for .*, got a Linear; its (wrn10x1|mlp) is built"):
            onefold.load(trained / name, net=nn.Linear(64, 10))


def data() -> tuple[Tensor, Tensor]:
    x = torch.rand(60, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0.5).long()


def test_a_run_from_python(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(6, 2))
    result = onefold.distill(None, net, data(), val=data(), epochs=2, out=tmp_path, **SUPERVISED)
    with pytest.raises(ValueError, match=r"was trained from Python, .* onefold\.load\(run, net=Net\(\)\)"):
        onefold.load(tmp_path)
    before, x = net.state_dict()["0.weight"].clone(), data()[0]
    expected = onefold.calibrated(result.model, result.temperature)
    for example in (None, x[:1]):
        found = onefold.load(tmp_path, net=net, example=example)
        torch.testing.assert_close(predicted(found, x), predicted(expected, x))
        assert type(found) is nn.Sequential
    assert torch.equal(net.state_dict()["0.weight"], before)
    with pytest.raises(ValueError, match=r"expected the weights of a Sequential; .*size mismatch"):
        onefold.load(tmp_path, net=nn.Sequential(nn.Linear(6, 3)))


def test_teachers_from_python(tmp_path: Path) -> None:
    net, x = nn.Sequential(nn.Linear(6, 2)), data()[0]
    given: dict[str, Any] = {"val": data(), "epochs": 2} | SUPERVISED
    made = [onefold.distill(None, net, data(), seed=m, out=tmp_path / f"teacher-{m}", **given).model for m in range(2)]
    found = onefold.load(tmp_path, calibrated=False, net=net)
    mean = torch.stack([predicted(each, x) for each in made]).mean(0)
    torch.testing.assert_close(predicted(found, x), mean, atol=1e-6, rtol=0)


def test_a_network_that_standardises_otherwise_is_refused(tmp_path: Path) -> None:
    def net(mean: float) -> nn.Module:
        return nn.Sequential(Standardize([mean] * 6, [0.25] * 6), nn.Linear(6, 2))

    onefold.distill(None, net(0.5), data(), epochs=1, out=tmp_path, **SUPERVISED)
    onefold.load(tmp_path, calibrated=False, net=net(0.5))
    for other, told in ((net(0.4), r"mean \[0\.4"), (nn.Sequential(nn.Identity(), nn.Linear(6, 2)), "no mean and")):
        with pytest.raises(ValueError, match=rf"^net: expected inputs to be standardised .* mean \[0\.5.*, got {told}"):
            onefold.load(tmp_path, net=other)
        with pytest.raises(ValueError, match=r"run\.standardized"):  # nor does the run go on with it
            onefold.distill(None, other, data(), epochs=1, out=tmp_path, **SUPERVISED)


def test_folders_from_before_that_was_recorded_go_on(tmp_path: Path) -> None:
    net = nn.Sequential(Standardize([0.5] * 6, [0.25] * 6), nn.Linear(6, 2))
    onefold.distill(None, net, data(), epochs=1, out=tmp_path, **SUPERVISED)
    run = RunFolder(tmp_path)
    run.write_json("run.json", {name: value for name, value in run.about.items() if name != "standardized"})
    onefold.distill(None, net, data(), epochs=1, out=tmp_path, **SUPERVISED)
    onefold.load(tmp_path, calibrated=False, net=net)


def test_a_method_of_one_s_own_is_given_again(tmp_path: Path) -> None:
    def halved(logits: Tensor) -> Tensor:
        return (logits[0] / 2).log_softmax(-1)

    method = Method("halved", plain, cross_entropy, predict=halved, needs_teachers=False)
    x, y = torch.rand(30, 4), torch.arange(30) % 3
    net = nn.Linear(4, 3)
    result = onefold.distill(None, net, (x, y), test=(x, y), method=method, epochs=1, out=tmp_path / "own")
    with pytest.raises(ValueError, match=r"trained with a method of your own, 'halved', which .* method=\.\.\."):
        onefold.load(tmp_path / "own", net=net)
    with pytest.raises(ValueError, match=r"expected 'halved', .* got 'kd'"):
        onefold.load(tmp_path / "own", net=net, method=METHODS["kd"])
    loaded = onefold.load(tmp_path / "own", net=net, method=method, calibrated=False)
    with torch.no_grad():
        nll = torch.nn.functional.cross_entropy(loaded(x), y)
    assert float(nll) == pytest.approx(result.metrics["nll"], rel=1e-5)
    export(tmp_path / "own", "safetensors", net=net, example=x[:2], method=method, calibrated=False)


def test_a_changed_method_needs_a_name_of_its_own() -> None:
    x, y = torch.rand(30, 4), torch.arange(30) % 3
    changed = dataclasses.replace(METHODS["supervised"], predict=lambda logits: logits[0].log_softmax(-1))
    with pytest.raises(ValueError, match="'supervised' is the name of one that comes with onefold"):
        onefold.distill(None, nn.Linear(4, 3), (x, y), method=changed, epochs=1)


def test_without_validation_data_it_is_as_it_was_trained(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net, x = nn.Sequential(nn.Linear(6, 2)), data()[0]
    result = onefold.distill(None, net, data(), epochs=1, out=tmp_path, **SUPERVISED)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = onefold.load(tmp_path, net=net)
    (told,) = caplog.messages
    assert told.endswith("has no temperature, because there was no validation split: its network is not calibrated")
    assert torch.equal(predicted(found, x), predicted(result.model, x))
    caplog.clear()
    onefold.load(tmp_path, calibrated=False, net=net)
    assert caplog.messages == []


def test_a_network_whose_file_is_gone_can_be_given(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    distill_run(tiny("kd", f"{file}:Net"), tmp_path / "run", trained / "teachers")
    names: dict[str, Any] = {}
    exec(file.read_text(), names)
    expected = predicted(onefold.load(tmp_path / "run"), images())
    file.unlink()
    with pytest.raises(ValueError, match="no longer exists; put it back"):
        onefold.load(tmp_path / "run")
    found = onefold.load(tmp_path / "run", net=names["Net"](10))
    torch.testing.assert_close(predicted(found, images()), expected)


def test_mistakes(tmp_path: Path) -> None:
    wrong: Any = "a network"
    with pytest.raises(ValueError, match=r"nowhere: there is no such folder"):
        onefold.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"^net: expected a torch\.nn\.Module, got str"):
        onefold.load(tmp_path, net=wrong)
    with pytest.raises(ValueError, match=r"^example: expected none without net"):
        onefold.load(tmp_path, example=torch.zeros(2, 6))
    with pytest.raises(ValueError, match=r"^example: expected a batch of at least one input, got shape \[0, 6\]"):
        onefold.load(tmp_path, net=nn.Linear(6, 2), example=torch.zeros(0, 6))
    with pytest.raises(ValueError, match="is not a run folder; give"):
        onefold.load(tmp_path)
