"""A network of the user's own, found by its place, asked for what it needs and asked once."""

from __future__ import annotations

import copy
import inspect
import pickle
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from onefold.engine.networks import own_network as module
from onefold.engine.networks.named import build_network, check_network, identity, network_of, shown
from onefold.models import ChannelStatistics

STATISTICS = ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
SHAPE = (3, STATISTICS, (8, 8))  # classes, statistics, pixels
FILE = """
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=7, *, channels, width=WIDTH, statistics=None):
        super().__init__()
        self.given = classes, channels, width, statistics
        self.layers = nn.Sequential(nn.Conv2d(channels, width, 3), nn.BatchNorm2d(width), nn.Dropout(), nn.Flatten())
        self.last = nn.Linear(36 * width, classes)

    def forward(self, x):
        return self.last(self.layers(x))


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 3))


def frozen():
    net = Net(3, channels=3)
    net.layers.eval()
    return net


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(3))


def usual(in_channels, num_classes=10):
    return nn.Sequential(nn.Conv2d(in_channels, 4, 8), nn.Flatten(), nn.Linear(4, num_classes))


def any_(**options):
    assert not options
    return plain()


ONE, number = plain(), 3


def same():
    return ONE


def needy(classes, depth, width):
    return plain()


def only(classes, /):
    return plain()


def nothing():
    return None


def fails():
    raise KeyError("depth")


class Answer(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


def ten():
    return Answer(lambda x: x.new_zeros(len(x), 10))


def pair():
    return Answer(lambda x: (x, x))


def flat():
    return Answer(lambda x: x.new_zeros(len(x)))


def passes_on(**options):
    return usual(3, **options)


def ten_alone(**options):
    return Answer(lambda x: x.new_zeros(len(x), 10), **options)


def breaks():
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 3))
"""


@pytest.fixture(autouse=True)
def _clean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Imports of a test are not for the next one."""
    paths, modules, folders = list(sys.path), set(sys.modules), set(module.FOLDERS)
    yield
    sys.path[:] = paths
    module.FOLDERS.intersection_update(folders)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path_factory.getbasetemp())):
            del sys.modules[name]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mynet.py").write_text(FILE.replace("WIDTH", "4"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_parameters_are_filled_in_by_name_and_no_others(here: Path) -> None:
    net = build_network("mynet.py:Net", *SHAPE)
    assert net.given == (3, 3, 4, ChannelStatistics(*STATISTICS))
    assert net(torch.rand(5, 3, 8, 8)).shape == (5, 3)
    assert isinstance(build_network(f"{here}/mynet.py:plain", *SHAPE), nn.Sequential)
    assert isinstance(build_network("mynet.py:any_", *SHAPE), nn.Sequential)
    assert shown("mynet.py:usual", 3, STATISTICS) == "mynet.py:usual(num_classes=3, in_channels=3)"
    assert build_network("mynet.py:usual", *SHAPE)(torch.rand(5, 3, 8, 8)).shape == (5, 3)
    assert shown("mynet.py:Net", 3, STATISTICS) == "mynet.py:Net(classes=3, channels=3, statistics=...)"
    assert (shown("mynet.py:plain", 3, STATISTICS), shown("mlp", 3, STATISTICS)) == ("mynet.py:plain()", "mlp")


@pytest.mark.usefixtures("here")
def test_one_that_passes_keywords_on_gets_the_number_of_classes_if_it_needs_it() -> None:
    check_network("mynet.py:passes_on")  # the file itself draws random numbers when it is imported
    drawn, weights = random.getstate(), []
    for _ in range(2):  # whether it was tried before
        torch.manual_seed(1)
        net = build_network("mynet.py:passes_on", *SHAPE)
        assert net(torch.rand(5, 3, 8, 8)).shape == (5, 3)
        weights.append(torch.cat([w.flatten() for w in net.parameters()]))
    assert torch.equal(*weights)
    assert random.getstate() == drawn
    assert shown("mynet.py:passes_on", *SHAPE) == "mynet.py:passes_on(num_classes=3)"
    assert shown("mynet.py:any_", *SHAPE) == "mynet.py:any_()"
    assert build_network("torchvision.models:resnet18", *SHAPE)(torch.rand(5, 3, 64, 64)).shape == (5, 3)


def test_models_of_timm_are_found_by_their_names() -> None:
    pytest.importorskip("timm")
    one_channel = (3, ((0.5,), (0.2,)), (32, 32))
    for name in ("timm:resnet10t", "timm.models.resnet:resnet10t"):
        check_network(name)
        assert build_network(name, *one_channel)(torch.rand(5, 1, 32, 32)).shape == (5, 3)
        assert shown(name, *one_channel) == f"{name}(num_classes=3, in_chans=1)"
        net, x = network_of(described(name, one_channel))
        assert net(x).shape == (2, 3)
    for name, offer in (("resnet10x", "did you mean 'resnet10t'?"), ("zzzzqq", "timm.list_models() has all")):
        with pytest.raises(ValueError, match=rf"has no '{name}'; {re.escape(offer)}"):
            check_network(f"timm:{name}")


def described(name: str, shape: tuple[int, tuple[tuple[float, ...], ...], tuple[int, ...]]) -> dict[str, Any]:
    """What a run folder records."""
    return {"network": name, "classes": shape[0], "statistics": shape[1], "image_size": shape[2]} | identity(name)


@pytest.mark.usefixtures("here")
def test_asking_once_leaves_no_trace_but_weights_of_lazy_layers() -> None:
    net, frozen = build_network("mynet.py:Net", *SHAPE), build_network("mynet.py:frozen", *SHAPE)
    assert int(net.get_buffer("layers.1.num_batches_tracked")) == 0
    assert all(part.training for part in net.modules())
    assert frozen.training
    assert not any(part.training for part in frozen.get_submodule("layers").modules())
    torch.manual_seed(1)
    lazy = build_network("mynet.py:lazy", *SHAPE)
    torch.manual_seed(1)
    assert [p.shape for p in lazy.parameters()] == [(3, 192), (3,)]
    assert torch.equal(build_network("mynet.py:lazy", *SHAPE)[1].weight, lazy[1].weight)  # type: ignore[index]


@pytest.mark.usefixtures("here")
def test_what_was_made_can_be_copied_and_pickled() -> None:
    net = build_network("mynet.py:Net", *SHAPE).eval()
    x = torch.rand(2, 3, 8, 8)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other) is type(net) is type(build_network("mynet.py:Net", *SHAPE))
        assert torch.equal(other(x), net(x))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none.py:Net", "network: there is no file {}/none.py; give the path of a Python file, FILE.py:NAME"),
        ("mynet.py:", "network: expected FILE.py:NAME or package.module:NAME, NAME being a class or a function"),
        (":Net", "network: expected FILE.py:NAME or package.module:NAME, "),
        ("mynet.py:Nett", "network: {}/mynet.py has no 'Nett'; did you mean 'Net'?"),
        ("mynet.py:number", "network: expected a class or a function in {}/mynet.py that returns a new network, got"),
        (
            "mynet.py:ONE",
            "network: expected a class or a function in {}/mynet.py that returns a new network, got 'ONE', ",
        ),
        ("mynet.py:needy", "network: 'mynet.py:needy' needs depth, width, but only classes, num_classes, channels, "),
        ("mynet.py:only", "network: 'mynet.py:only' needs classes, but only "),
        ("nomodule:Net", "network: there is no module nomodule in {} or among the installed ones"),
        ("nopackage.mynet:Net", "network: there is no module nopackage.mynet in {} or among the installed ones"),
        ("broken.py:Net", "network: {}/broken.py cannot be imported: ZeroDivisionError: division by zero ({0}/other"),
        ("syntax.py:Net", "network: {}/syntax.py cannot be imported: SyntaxError: '(' was never closed ({0}/syntax.py"),
        ("absent.py:Net", "network: {}/absent.py cannot be imported: ModuleNotFoundError: No module named 'nosuch' "),
        ("absent:Net", "network: absent cannot be imported: ModuleNotFoundError: No module named 'nosuch' ({}/absent"),
        ("script.py:Net", "network: {}/script.py cannot be imported: SystemExit: 2 ({0}/script.py, line 2); put code "),
        (
            "nulls.py:Net",
            "network: {}/nulls.py cannot be imported: SyntaxError: source code string cannot contain null ",
        ),
        ("glob:Net", "network: {stdlib}/glob.py has no 'Net'; write glob.py:Net"),
        ("empty.py:Net", "network: {}/empty.py has no 'Net'; name the module or file that defines it"),
        ("package.py:Nat", "network: {}/package.py has no 'Nat'; did you mean 'Net'?"),
        ("inside.py:Net", "network: {}/inside.py cannot be imported: ImportError: attempted relative import with no "),
    ],
)
def test_refused_before_anything_is_read(name: str, sentence: str, here: Path) -> None:
    (here / "broken.py").write_text("import other\n")
    (here / "other.py").write_text("\n\nhalf = 1 / 0\n")
    (here / "syntax.py").write_text("x = (\n")
    (here / "absent.py").write_text("import nosuch\n")
    (here / "script.py").write_text("import sys\nsys.exit(2)\n")
    (here / "nulls.py").write_bytes(b"\0")
    (here / "glob.py").write_text(FILE)
    (here / "empty.py").write_text("_hidden = print\n")
    (here / "package.py").write_text("from mynet import Net, plain\n")
    (here / "inside.py").write_text("from .other import Net\n")
    with pytest.raises(ValueError) as caught:
        check_network(name)
    stdlib = Path(inspect.getfile(inspect)).parent
    assert str(caught.value).startswith(sentence.replace("{}", "{0}").format(here, stdlib=stdlib))
    assert "None" not in str(caught.value)
    before = {"broken": "other.py, line 3); fix it", "inside": "name it as a module of its package"}
    assert before.get(name.partition(".")[0], "") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nothing", "network: expected 'mynet.py:nothing' to return a torch.nn.Module, got NoneType"),
        ("fails", "network: 'mynet.py:fails' cannot be created: KeyError: 'depth' ({}/mynet.py, line 59); fix it"),
        ("ten", "network: expected 'mynet.py:ten' to return [2, 3] for inputs [2, 3, 8, 8], a logit for each "),
        ("ten_alone", "network: expected 'mynet.py:ten_alone' to return [2, 3] for inputs [2, 3, 8, 8], a logit for "),
        ("pair", "network: expected 'mynet.py:pair' to return [2, 3] for inputs [2, 3, 8, 8], a logit for each "),
        ("flat", "network: expected 'mynet.py:flat' to return [2, 3] for inputs [2, 3, 8, 8], a logit for each "),
        ("breaks", "network: 'mynet.py:breaks' fails on inputs [2, 3, 8, 8]: RuntimeError: "),
    ],
)
def test_refused_when_it_is_made(name: str, sentence: str, here: Path) -> None:
    check_network(f"mynet.py:{name}")
    with pytest.raises(ValueError) as caught:
        build_network(f"mynet.py:{name}", *SHAPE)
    assert str(caught.value).startswith(sentence.format(here))
    ends = {
        "ten": "got [2, 10]; give it a parameter 'classes' or 'num_classes', which is",
        "flat": "got [2]; let it return only logits",
    }
    ends["pair"] = "got a tuple; let it return only logits [B, K]"
    assert ends.get(name, "") in str(caught.value)


def test_a_file_is_compiled_as_it_would_be_by_itself(here: Path) -> None:
    """With annotations that are types, where it does not ask for others."""
    (here / "typed.py").write_text("def net(classes: int): pass\nassert net.__annotations__ == {'classes': int}\n")
    check_network("typed.py:net")


@pytest.mark.usefixtures("here")
def test_one_network_for_all_teachers_is_refused() -> None:
    first = build_network("mynet.py:same", *SHAPE)
    with pytest.raises(ValueError, match="to return a new network each time, got the same one twice"):
        build_network("mynet.py:same", *SHAPE)
    assert isinstance(first, nn.Module)


def test_a_file_that_changes_is_read_anew_whatever_its_time_and_size(here: Path) -> None:
    before, old = identity("mynet.py:Net"), build_network("mynet.py:Net", *SHAPE)
    (here / "mynet.py").write_text(FILE.replace("WIDTH", "5"))
    after, new = identity("mynet.py:Net"), build_network("mynet.py:Net", *SHAPE)
    assert (old.given[2], new.given[2]) == (4, 5)  # type: ignore[index]
    assert before["network_file"] == after["network_file"] == str(here / "mynet.py")
    assert before["network_content"] != after["network_content"]
    assert identity("wrn28x1") == {}


def test_neighbours_are_imported_first_and_not_confused(here: Path) -> None:
    for name, width in (("a", 2), ("b", 3)):
        (here / name).mkdir()
        (here / name / "part.py").write_text(f"from torch import nn\nclass Part(nn.Linear):\n    width = {width}\n")
        (here / name / "net.py").write_text("from part import Part\ndef net(): return Part(3, 3)\n")
        (here / name / "free.py").write_text("from torch import nn\ndef net(): return nn.Linear(3, 3)\n")
    (here / "part.py").write_text("raise AssertionError('the one beside the file is meant')\n")
    shape = (3, STATISTICS, (3,))
    assert build_network("a/net.py:net", *shape).width == 2
    with pytest.raises(ValueError, match=r"b/net.py imports .*b/part.py, got .*a/part.py, which another network"):
        build_network("b/net.py:net", *shape)
    assert isinstance(build_network("b/free.py:net", *shape), nn.Linear)


def about(name: str) -> dict[str, object]:
    return {"network": name, "classes": 3, "statistics": STATISTICS, "image_size": (8, 8)} | identity(name)


@pytest.mark.parametrize("name", ["mynet.py:Net", "package.inner.net:Net", "package:Net"])
def test_found_again_from_elsewhere_and_with_all_that_was_moved(
    name: str, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = here / "package" / "inner"
    inner.mkdir(parents=True)
    (inner.parent / "__init__.py").write_text("from package.inner.net import Net\n")
    (inner / "net.py").write_text(FILE.replace("WIDTH", "4"))
    recorded = about(name)
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert type(network_of(recorded)[0]).__name__ == "Net"
    moved = tmp_path_factory.mktemp("parent") / "moved"
    here.rename(moved)
    for held in [n for n in sys.modules if n.split(".")[0] == "package"]:
        del sys.modules[held]
    with pytest.raises(ValueError, match="has the run's Net, no longer exists; put it back, run the command in"):
        network_of(recorded)
    monkeypatch.chdir(moved)
    net, example = network_of(recorded)
    assert net(example).shape == (2, 3)


def test_a_module_of_the_same_name_from_elsewhere_is_not_taken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "samename.py").write_text(FILE.replace("WIDTH", "4"))
    monkeypatch.chdir(here / "a")
    recorded = about("samename:Net")
    del sys.modules["samename"]
    monkeypatch.chdir(here / "b")
    check_network("samename:Net")
    with pytest.raises(ValueError, match=r"expected samename from .*/a/samename.py, got the one from .*/b/samename.py"):
        network_of(recorded)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("given/net.py:Net", None),
        ("given/net.py:Net", "given/net.py"),
        ("given/net.py:Net", "/no/where/net.py"),
        ("given/net.py:Net", "{here}/given/net.py"),
        ("elsewhere.py:Net", "{here}/given/net.py"),
    ],
)
def test_a_run_folder_brings_no_code(name: str, file: str | None, here: Path) -> None:
    """One that somebody else has written may name a file in it."""
    recorded = about("mynet.py:Net") | {"network": name, "network_file": file and file.format(here=here)}
    (here / "given").mkdir()
    (here / "given" / "net.py").write_text("raise AssertionError('executed')")
    (here / "given" / "run.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no longer exists; .*a file in a run's folder is not executed"):
        network_of(recorded)


def test_an_installed_module() -> None:
    assert build_network("onefold.models:resnet18_small", *SHAPE)(torch.rand(2, 3, 8, 8)).shape == (2, 3)
