"""Networks that do unusual things with their layers are converted rightly, or found out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from onefold import batch_ensemble, collapse, subnetwork
from onefold.ensemble import BatchEnsemble


def check_members(student: BatchEnsemble, x: Tensor) -> None:
    """Member m equals its subnetwork for random factors, in training data type and evaluation mode."""
    student = student.double().eval()
    x = x.double() if x.is_floating_point() else x
    for factor in student.factors().values():
        nn.init.normal_(factor, 0, 0.4)
    for m in range(student.members):
        torch.testing.assert_close(student(x)[m], subnetwork(student, m)(x), rtol=1e-9, atol=1e-10)


def names(layers: Any) -> set[str]:
    return {layer.name for layer in layers}


class Twice(nn.Module):
    """One layer called twice and registered under two names; another tied by its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.first.weight
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.tied(self.again(self.first(x).tanh()).tanh()).tanh()))


def test_modules_used_twice_and_tied_weights() -> None:
    net = Twice()
    student = batch_ensemble(net, 3)
    assert student.net.first.weight_r_minus_one is student.net.tied.weight_r_minus_one  # type: ignore[union-attr]
    assert len(student.factors()) == 4
    check_members(student, torch.randn(2, 4))
    averaged = collapse(student)
    assert averaged.first is averaged.again
    assert averaged.first.weight is averaged.tied.weight  # type: ignore[union-attr]
    assert averaged.state_dict().keys() == net.state_dict().keys()


class TiedToEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.inner(self.embedding(x)).tanh().mean(1)))


def test_a_weight_tied_to_what_cannot_be_converted_stays_shared() -> None:
    student = batch_ensemble(TiedToEmbedding(), 2)
    assert names(student.report.converted) == {"inner"}
    assert "tied to 'embedding.weight'" in student.report.skipped[0].reason
    check_members(student, torch.randint(7, (3, 5)))
    averaged = collapse(student)
    assert averaged.head.weight is averaged.embedding.weight  # type: ignore[union-attr]


class ReadsWeight(nn.Module):
    """`F.linear` with a child's weight, as attention blocks in the wild do."""

    def __init__(self) -> None:
        super().__init__()
        self.called = nn.Linear(4, 4)
        self.qkv = nn.Linear(4, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4)])
        self.head = nn.Linear(4, 3)

    def mixed(self, x: Tensor) -> Tensor:
        return F.linear(x, self.qkv.weight, self.qkv.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.called(x.to(self.called.weight.dtype)).tanh()
        x = self.mixed(x).tanh()
        x = self.layers[0](x).tanh()
        return torch.as_tensor(self.head(x))


class ReadsInLoop(ReadsWeight):
    def mixed(self, x: Tensor) -> Tensor:
        for layer in (self.qkv,):
            x = helper(layer, x)
        return x


def helper(layer: nn.Linear, x: Tensor) -> Tensor:
    return F.linear(x, layer.weight)


@pytest.mark.parametrize("example", [False, True])
def test_a_weight_that_is_read_stays_shared(example: bool) -> None:
    x = torch.randn(3, 4)
    student = batch_ensemble(ReadsWeight(), 2, example=x if example else None)
    assert names(student.report.skipped) == {"qkv"}
    assert names(student.report.converted) == {"called", "layers.0", "head"}
    check_members(student, x)


def test_a_read_that_cannot_be_traced_to_a_name() -> None:
    with pytest.raises(ValueError, match=r"no layer that can carry factors.*reads its weight.*example=x"):
        batch_ensemble(ReadsInLoop(), 2)
    x = torch.randn(3, 4)
    student = batch_ensemble(ReadsInLoop(), 2, example=x)
    assert names(student.report.skipped) == {"qkv"}
    check_members(student, x)


class HiddenRead(nn.Module):
    """Reads a weight in a way that no search of the code can see."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x).tanh()
        (matrix, *_) = self.inner.parameters()
        return torch.as_tensor(self.head(x @ matrix))


def test_a_read_that_only_running_shows() -> None:
    x = torch.randn(3, 4)
    student = batch_ensemble(HiddenRead(), 2)
    with pytest.raises(ValueError, match=r"expected the answer|members are not"):
        student(x)


class StandardisedConv(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        weight = (self.weight - self.weight.mean((1, 2, 3), keepdim=True)) / self.weight.std((1, 2, 3), keepdim=True)
        return torch.as_tensor(self._conv_forward(x, weight, self.bias))


class PlainSubclass(nn.Linear):
    """Changes nothing about the weight."""


def test_subclasses() -> None:
    net = nn.Sequential(StandardisedConv(3, 4, 3), nn.Flatten(), PlainSubclass(16, 3))
    student = batch_ensemble(net, 2)
    assert names(student.report.skipped) == {"0"}
    assert "StandardisedConv changes Conv2d.forward" in student.report.skipped[0].reason
    check_members(student, torch.randn(2, 3, 4, 4))
    assert [type(m) for m in collapse(student).children()] == [StandardisedConv, nn.Flatten, PlainSubclass]


@pytest.mark.parametrize(
    "wrap", [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_computed_weights_stay_shared(wrap: Any) -> None:
    student = batch_ensemble(nn.Sequential(wrap(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3)), 2)
    assert names(student.report.converted) == {"2"}
    check_members(student, torch.randn(2, 4))


def test_frozen_layers_stay_shared() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    net[0].requires_grad_(False)
    assert names(batch_ensemble(net, 2).report.skipped) == {"0"}


class SequenceFirst(nn.Module):
    def __init__(self, shuffle: bool) -> None:
        super().__init__()
        self.shuffle = shuffle
        self.inner = nn.Linear(5, 8)
        self.flat = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(x.transpose(0, 1)).tanh()  # [S, B, 8]
        h = self.flat(h.flatten(0, 1) if self.shuffle else h).tanh().reshape(h.shape)  # flattened, positions come first
        return torch.as_tensor(self.head(h.mean(0)))


def test_an_example_shows_where_the_batch_lies() -> None:
    x = torch.randn(3, 6, 5)
    student = batch_ensemble(SequenceFirst(shuffle=False), 2, example=x)
    assert not student.report.skipped
    check_members(student, x)
    student = batch_ensemble(SequenceFirst(shuffle=True), 2, example=x)
    assert names(student.report.skipped) == {"flat"}
    assert "one after another" in student.report.skipped[0].reason
    check_members(student, x)


def test_without_an_example_the_first_call_finds_out() -> None:
    student = batch_ensemble(SequenceFirst(shuffle=False), 2)
    with pytest.raises(ValueError, match=r"layer 'inner'.*example=x"):
        student(torch.randn(3, 6, 5))
    student = batch_ensemble(SequenceFirst(shuffle=False), 4)  # six positions do not divide by four members
    with pytest.raises(ValueError, match="layer 'inner'"):
        student(torch.randn(3, 6, 5))
    student = batch_ensemble(SequenceFirst(shuffle=True), 2, keep=["inner", "flat"])
    assert student(torch.randn(3, 6, 5)).shape == (2, 3, 3)


class NoBatch(nn.Module):
    """A layer on a table that has no batch, as relative position biases are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.linspace(-1, 1, 8).reshape(4, 2))
        self.position = nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(x + self.position(self.table).sum(0)))


def test_a_layer_without_a_batch_stays_shared() -> None:
    x = torch.randn(3, 4)
    student = batch_ensemble(NoBatch(), 2, example=x)
    assert names(student.report.skipped) == {"position"}
    assert "does not depend on the batch" in student.report.skipped[0].reason
    check_members(student, x)
    with pytest.raises(ValueError, match="position"):
        batch_ensemble(NoBatch(), 2)(x)


class OneByOne(nn.Module):
    """Calls a layer on one example after the other, without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(torch.stack([self.conv(image) for image in x]).mean((2, 3))))


def test_a_layer_called_on_single_examples_stays_shared() -> None:
    x = torch.randn(3, 2, 5, 5)
    student = batch_ensemble(OneByOne(), 2, example=x)
    assert names(student.report.skipped) == {"conv"}
    check_members(student, x)
    with pytest.raises(ValueError, match=r"layer 'conv': expected a batch with 4 dimensions.*keep=\['conv'\]"):
        batch_ensemble(OneByOne(), 2)(x)


class Table(nn.Module):
    """One column of measurements, and two of categories with an embedding each."""

    def __init__(self) -> None:
        super().__init__()
        self.colour, self.size = nn.Embedding(30, 4), nn.Embedding(3, 4)
        self.head = nn.Linear(9, 3)

    def forward(self, x: Tensor) -> Tensor:
        colour, size = x[:, 1].long(), x[:, 2].long()
        h = torch.cat([x[:, :1].to(self.head.weight.dtype), self.colour(colour), self.size(size)], 1)
        return torch.as_tensor(self.head(h))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_categories_of_a_table_stay_in_their_columns(dtype: torch.dtype) -> None:
    """Any other value would be no index of an embedding: an IndexError, and on a GPU the end of the process."""
    x = torch.tensor([[0, 29, 0], [7, 28, 2], [9, 0, 1], [3, 29, 2]]).to(dtype)
    student = batch_ensemble(Table(), 2, example=x)
    assert names(student.report.converted) == {"head"}
    check_members(student, x)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(9, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.norm = nn.LayerNorm(4)
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.lstm(self.norm(self.token(x) * self.scale))
        return torch.as_tensor(self.head(h[:, -1]))


def test_report_lists_everything_with_counts() -> None:
    net = Recurrent()
    student = batch_ensemble(net, 2, keep=[])
    reasons = {layer.name: layer.reason for layer in student.report.shared}
    assert reasons == {
        "": "parameters of its own",
        "token": "embedding",
        "norm": "normalisation: shared by all members",
        "lstm": "recurrent",
    }
    assert sum(layer.parameters for layer in student.report.layers) == sum(p.numel() for p in net.parameters())
    assert student.report.converted[0].factors == sum(f.numel() for f in student.factors().values()) == 2 * (6 + 3)
    text = str(student.report)
    assert "converted: 1 layers, 21 parameters + 18 factors" in text
    assert "lstm  LSTM  288  (recurrent)" in text
    check_members(student, torch.randint(9, (2, 5)))


def test_the_report_says_which_normalisation_runs_over_all_members() -> None:
    norms = {"layer": nn.LayerNorm(4), "group": nn.GroupNorm(2, 4), "batch": nn.BatchNorm1d(4)}
    net = nn.Sequential()
    for name, norm in norms.items():
        net.add_module(name, norm)
    net.add_module("head", nn.Linear(4, 3))
    reasons = {layer.name: layer.reason for layer in batch_ensemble(net, 2).report.shared}
    each = "normalisation: shared by all members"
    assert reasons == {"layer": each, "group": each, "batch": "normalisation over all members"}


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(F.dropout(x, 0.5, training=True)))


def test_a_network_that_never_answers_twice_the_same_is_let_through() -> None:
    x = torch.randn(3, 4)
    before = torch.random.get_rng_state()
    assert batch_ensemble(Noisy(), 2, example=x)(x).shape == (2, 3, 3)
    torch.random.set_rng_state(before)


class MixesBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.as_tensor(self.head(x))
        return y - y.mean(0)


def test_a_network_that_mixes_examples_is_refused() -> None:
    with pytest.raises(ValueError, match="not to depend on the others"):
        batch_ensemble(MixesBatch(), 2, example=torch.randn(3, 4))


def test_hooks_and_mode_survive() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).eval()
    seen: list[int] = []
    net[0].register_forward_hook(lambda *_: seen.append(1))
    student = batch_ensemble(net, 2)
    student(torch.randn(3, 4))
    assert seen
    assert not student.net.training
    assert not collapse(student).training


def test_batch_norm_is_shared_over_all_members() -> None:
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=1.0), nn.Linear(5, 3)).double()
    student = batch_ensemble(net, 3, "normal")
    x = torch.randn(6, 4, dtype=torch.float64)
    student(x)
    hidden = torch.cat([subnetwork(student, m).get_submodule("0")(x) for m in range(3)])
    torch.testing.assert_close(student.net[1].running_mean, hidden.mean(0))  # type: ignore[index]
    torch.testing.assert_close(student.net[1].running_var, hidden.var(0))  # type: ignore[index]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"members": 0}, "members: expected a whole number of at least 1, got 0"),
        ({"members": 2.0}, "members: expected a whole number of at least 1, got 2.0"),
        ({"members": True}, "members"),
        ({"members": 2, "init": "zeros"}, "init: expected 'ones' or 'normal', got 'zeros'"),
        ({"members": 2, "keep": ["nothing"]}, "keep: the network has no module 'nothing'"),
        ({"members": 2, "keep": "0"}, "keep: expected a list"),
        ({"members": 2, "example": torch.zeros(0, 4)}, "example: expected a batch of at least one"),
    ],
)
def test_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        batch_ensemble(nn.Sequential(nn.Linear(4, 3)), **arguments)


def test_more_errors() -> None:
    with pytest.raises(ValueError, match=r"net: expected a torch.nn.Module, got int"):
        batch_ensemble(3, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no layer that can carry factors"):
        batch_ensemble(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(3)), 2)
    with pytest.raises(ValueError, match="not initialised"):
        batch_ensemble(nn.Sequential(nn.LazyLinear(3)), 2)
    student = batch_ensemble(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), 2)
    with pytest.raises(ValueError, match="student already"):
        batch_ensemble(student, 2)
    with pytest.raises(ValueError, match="got uint8; divide images by 255"):
        student(torch.zeros(2, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match="m: expected a member from 0 to 1, got 2"):
        subnetwork(student, 2)
    with pytest.raises(ValueError, match="collapse: expected a student made by batch_ensemble, got Linear"):
        collapse(nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"expected a network that answers logits \[B, K\]"):
        batch_ensemble(nn.Sequential(nn.Linear(4, 3)), 2)(torch.zeros(2, 5, 4))
