"""Networks and uses that would go silently wrong if nobody looked: each is handled, or refused in a sentence."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from onefold import Teachers, batch_ensemble, collapse, subnetwork
from onefold.ensemble import BatchEnsemble, Plain
from onefold.ensemble.copied import shares
from onefold.perturb import tdiv, tdiv_sdiv

X = torch.rand(4, 4, dtype=torch.float64)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()


class Checkpointed(nn.Module):
    """Recomputes its activations in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.double()

    def first(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.inner(x)).tanh()

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(checkpoint(self.first, x, use_reentrant=False)))


class Remembered(Checkpointed):
    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.first(x)))


def test_recomputed_activations_use_the_picked_members() -> None:
    torch.manual_seed(0)
    nets = [Checkpointed() for _ in range(3)]
    student = batch_ensemble(Checkpointed(), 3, "normal")
    twins = [Remembered() for _ in range(3)]
    for twin, net in zip(twins, nets, strict=True):
        twin.load_state_dict(net.state_dict())
    plain = batch_ensemble(Remembered(), 3)
    plain.load_state_dict(student.state_dict())
    moved = []
    for teachers, own in ((Teachers(nets), student), (Teachers(twins), plain)):
        torch.manual_seed(1)
        moved.append(tdiv_sdiv(X, teachers, own))
    torch.testing.assert_close(moved[0], moved[1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_recomputed_activations_of_teachers_picked_on_a_device() -> None:
    teachers = Teachers([Checkpointed() for _ in range(2)]).cuda()
    x = X.cuda().requires_grad_()
    with teachers.picking(torch.tensor([1], device="cuda")) as teacher:
        (gradient,) = torch.autograd.grad(teacher(x).square().sum(), x)
    (expected,) = torch.autograd.grad(teachers.networks[1](x).square().sum(), x)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("change", ["deepcopy", "load", "assign", "exchange", "convert"])
def test_the_stack_of_teachers_never_goes_stale(change: str) -> None:
    teachers, others = Teachers([network(), network()]), Teachers([network(), network()])
    x = X
    if change == "deepcopy":
        teachers = copy.deepcopy(teachers)
        teachers.load_state_dict(others.state_dict())
    elif change == "exchange":
        teachers.networks[1] = network()
    elif change == "convert":
        teachers.networks.float()
        x = X.float()
    else:
        teachers.load_state_dict(others.state_dict(), assign=change == "assign")
    index = torch.tensor([1])
    by_weights = torch.func.functional_call(teachers.networks[0], teachers.weights(index), (x,))
    torch.testing.assert_close(by_weights, teachers(x)[1])


class Experts(nn.Module):
    """Which layer sees which example depends on its values."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 2)
        self.experts = nn.ModuleList([nn.Linear(4, 8) for _ in range(2)])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        route, hidden = self.gate(x).argmax(1), x.new_zeros(len(x), 8)
        for e, expert in enumerate(self.experts):
            hidden = hidden.index_put(((route == e).nonzero()[:, 0],), expert(x[route == e]))
        return torch.as_tensor(self.head(hidden))


def test_routing_by_value() -> None:
    for seed in range(8):
        torch.manual_seed(seed)
        net, x = Experts().double(), torch.randn(64, 4, dtype=torch.float64)
        student = batch_ensemble(net, 2, "normal", example=x[:8]).eval()
        assert {layer.name for layer in student.report.converted} <= {"gate", "head"}
        torch.testing.assert_close(student(x)[1], subnetwork(student, 1)(x))
        unchecked = batch_ensemble(net, 2, "normal")
        with pytest.raises(ValueError, match=r"layer|path|answer"):
            unchecked(x)


class ClosesOver(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.function: Any = lambda z: self.inner(z)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.function(x)))


def test_a_network_that_holds_on_to_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="its attribute 'function' is a function that closes over a module"):
        batch_ensemble(ClosesOver(), 2)
    with pytest.raises(ValueError, match="closes over a module"):
        Teachers([ClosesOver()])


class Shared(nn.Linear):
    """One module for all copies of a network, to save memory."""

    def __deepcopy__(self, memo: Any) -> Shared:
        return self


@pytest.mark.parametrize("example", [None, X])
def test_a_network_whose_copies_share_a_part_is_refused_and_stays_as_it_is(example: Tensor | None) -> None:
    shared = Shared(4, 8).double().requires_grad_(False)
    net, before = nn.Sequential(shared, nn.ReLU(), nn.Linear(8, 3)).double(), shared.weight.clone()
    with pytest.raises(ValueError, match="copies share weights with it"):
        batch_ensemble(net, 2, example=example)
    assert type(net[0]) is Shared
    assert torch.equal(shared.weight, before)
    assert not shares(copy.deepcopy(network()), network())


class KeepsActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.last = torch.as_tensor(self.head(x))
        return self.last


def test_a_network_that_keeps_an_activation() -> None:
    net = KeepsActivation().double()
    net(X)
    student = batch_ensemble(net, 2, example=X)
    student(X).sum().backward()
    assert torch.allclose(collapse(student)(X), net(X))
    Teachers([net])


class ZeroBranch(nn.Module):
    """Reads a weight past the factors, in a branch that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.as_tensor(self.inner(x)).tanh()
        (matrix, *_) = self.inner.parameters()
        return torch.as_tensor(self.head(h + self.scale * (h @ matrix)))


class FlipNoise(nn.Module):
    """Sequence first, with noise on the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.as_tensor(self.inner(x.transpose(0, 1))).tanh().mean(0)
        return torch.as_tensor(self.head(h)) + 1e-9 * torch.randn(3)


def test_what_shows_only_later_or_under_noise_is_found() -> None:
    with pytest.raises(ValueError, match="expected the answer"):
        batch_ensemble(ZeroBranch(), 2, example=X.float())
    with pytest.raises(ValueError, match="layer 'inner'"):
        batch_ensemble(FlipNoise(), 2)(torch.randn(3, 6, 5))
    with pytest.raises(ValueError, match="layer 'inner'"):
        batch_ensemble(FlipNoise(), 2)(nn.Parameter(torch.randn(3, 6, 5)))


class Tied(nn.Module):
    def __init__(self, pairs: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))
        for one, other in pairs:
            getattr(self, other).weight = getattr(self, one).weight

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.a, self.b, self.c, self.d):
            x = layer(x).tanh()
        return x


def test_networks_with_other_ties_are_not_alike() -> None:
    one, other = Tied((("a", "c"), ("b", "d"))), Tied((("a", "d"), ("b", "c")))
    assert not Teachers([one, other]).alike
    assert Teachers([one, copy.deepcopy(one)]).alike


class Cached(nn.Module):
    """Fills a cache from its weights at the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))
        self.cache: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.cache is None:
            self.cache = F.normalize(self.weight).detach()
        return F.linear(x, self.cache)


def test_an_example_shows_teachers_that_cannot_be_picked_by_weight() -> None:
    teachers = Teachers([Cached(), Cached()], example=X.float())
    assert not teachers.alike


def test_the_twin_follows_exchanged_modules() -> None:
    student = batch_ensemble(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), 2)
    x = X.float()
    student.net[2] = nn.Linear(8, 3)  # type: ignore[operator]
    assert torch.equal(student.at_rest(x), student.eval()(x))
    student = nn.SyncBatchNorm.convert_sync_batchnorm(student)
    student.double()
    assert torch.equal(student.at_rest(X), student.eval()(X))


@pytest.mark.parametrize(
    "make", [lambda: batch_ensemble(network(), 3), lambda: Teachers([network() for _ in range(3)])]
)
@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.tensor([3]), r"members: expected indices from 0 to 2, got \[3\]"),
        (torch.tensor([-1]), "members: expected indices from 0 to 2"),
        (torch.tensor(1), r"members: expected at least one index \[n\], got shape \[\]"),
        (torch.tensor([], dtype=torch.int64), "at least one index"),
        (torch.tensor([True, False]), r"members: expected a tensor of int64 indices, got torch\.bool"),
        ([0, 1], "members: expected a tensor of int64 indices, got list"),
    ],
)
def test_indices_that_pick_nothing(make: Any, index: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()(X, index)


def test_a_traced_graph_converts() -> None:
    traced = torch.fx.symbolic_trace(network())
    student = batch_ensemble(traced, 2, "normal", example=X)
    assert len(student.report.converted) == 2
    torch.testing.assert_close(student(X)[1], subnetwork(student, 1)(X))


class Masked(nn.Module):
    """A text classifier: padding differs from example to example."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(9, 8, padding_idx=0)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        padding = tokens == 0
        h = self.encoder(self.token(tokens), src_key_padding_mask=padding)
        return torch.as_tensor(self.head(h[:, 0]))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("example", [False, True])
def test_padded_sequences(example: bool) -> None:
    tokens = torch.randint(1, 9, (4, 6))
    tokens[0, 4:] = 0
    tokens[2, 2:] = 0
    net = Masked()
    student = batch_ensemble(net, 2, "normal", example=tokens if example else None).eval()
    assert not student.report.skipped
    with torch.no_grad():
        for m in range(2):
            torch.testing.assert_close(student(tokens)[m], subnetwork(student, m)(tokens), rtol=1e-4, atol=1e-5)


def test_an_output_projection_of_another_kind() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.attention.out_proj = nn.Identity()  # type: ignore[assignment]
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.head(x))

    student = batch_ensemble(Odd(), 2)
    assert student.report.skipped[0].reason == "its output projection is a Identity"


def test_inputs_and_teachers_without_a_gradient() -> None:
    constant = nn.Sequential(nn.Linear(4, 3)).double()
    student = batch_ensemble(network(), 2)
    teachers = Teachers([network(), network()])
    with torch.inference_mode(), pytest.raises(ValueError, match="needs gradients, which inference mode rules out"):
        tdiv(X, teachers, student)
    with torch.no_grad():
        assert not torch.equal(tdiv(X, teachers, student), X)

    class NoGradient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = constant

        @torch.no_grad()
        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.net(x))

    assert torch.equal(tdiv(X, Teachers([NoGradient(), NoGradient()]), student), X)


def test_half_precision_inputs_get_exact_steps() -> None:
    teachers = Teachers([nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).bfloat16() for _ in range(2)])
    x = torch.full((2, 3, 8, 8), 0.5, dtype=torch.bfloat16)
    moved = tdiv(x, teachers, Plain(nn.Linear(2, 2)))
    assert moved.dtype == torch.bfloat16


def test_autocast_keeps_the_type_of_a_plain_layer() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
    student = batch_ensemble(net, 2, example=X.float())
    with torch.autocast("cpu", torch.bfloat16):
        assert student(X.float()).dtype == net(X.float()).dtype == torch.bfloat16


def test_more_that_is_refused() -> None:
    with pytest.raises(ValueError, match=r"wrapped in DataParallel; give net\.module"):
        batch_ensemble(nn.DataParallel(network()), 2)
    with pytest.raises(ValueError, match="expected a list of networks, got one Sequential"):
        Teachers(network())
    with pytest.raises(ValueError, match="example: expected a tensor of inputs, got list"):
        batch_ensemble(network(), 2, example=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="divide images by 255"):
        batch_ensemble(network(), 2, example=torch.zeros(2, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"net: expected a torch\.nn\.Module, got int"):
        Plain(3)  # type: ignore[arg-type]


def test_names_that_only_look_like_factors() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.own_s_minus_one = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.head(x)) + self.own_s_minus_one

    student: BatchEnsemble = batch_ensemble(Named(), 2)
    assert set(student.factors()) == {"head.weight_r_minus_one", "head.weight_s_minus_one"}
