"""Teachers: frozen, in evaluation mode, picked by index without a second set of weights."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from onefold import Teachers


def network(hidden: int = 8, classes: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.Dropout(0.5), nn.ReLU(), nn.Linear(hidden, classes)
    )


def trained(net: nn.Sequential) -> nn.Sequential:
    """With running statistics that are not the ones at the start."""
    net(torch.randn(32, 4) * 3 + 1)
    return net


def test_answers_of_all_members_frozen_and_in_evaluation_mode() -> None:
    nets = [trained(network()) for _ in range(3)]
    teachers = Teachers(nets)
    teachers.train()
    x = torch.randn(5, 4)
    logits = teachers(x)
    assert logits.shape == (3, 5, 3)
    assert teachers.members == 3
    assert not logits.requires_grad
    for net, answer in zip(nets, logits, strict=True):
        assert net.training
        assert all(p.requires_grad for p in net.parameters())
        torch.testing.assert_close(answer, copy.deepcopy(net).eval()(x))


def test_the_networks_given_are_not_changed_later() -> None:
    net = trained(network())
    teachers = Teachers([net, trained(network())])
    x = torch.randn(5, 4)
    before = teachers(x)
    nn.init.zeros_(net[4].weight)  # type: ignore[arg-type]
    assert torch.equal(teachers(x), before)


@pytest.mark.parametrize("alike", [True, False])
def test_picking_by_index(alike: bool) -> None:
    teachers = Teachers([trained(network(8 if alike else 8 + m)) for m in range(4)])
    assert teachers.alike == alike
    x = torch.randn(5, 4)
    index = torch.tensor([3, 0, 3])
    torch.testing.assert_close(teachers(x, index), teachers(x)[index])
    compiled = torch.compile(teachers, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, index), teachers(x)[index])
    torch.testing.assert_close(compiled(x, index.flip(0)), teachers(x)[index.flip(0)])
    torch._dynamo.reset()


def test_only_the_picked_members_run() -> None:
    teachers = Teachers([trained(network()) for _ in range(4)])
    ran: list[int] = []
    for m, net in enumerate(teachers.networks):
        net.register_forward_hook(lambda *_, m=m: ran.append(m))
    teachers(torch.randn(2, 4), torch.tensor([2, 1]))
    assert ran == [2, 1]


def test_gradients_reach_the_input_alone() -> None:
    teachers = Teachers([trained(network()) for _ in range(2)])
    x = torch.randn(5, 4, requires_grad=True)
    teachers(x, torch.tensor([1])).square().sum().backward()
    assert x.grad is not None
    assert bool((x.grad != 0).any())
    assert all(p.grad is None for p in teachers.parameters())


def test_members_hold_views_of_one_row_each_through_moves() -> None:
    teachers = Teachers([trained(network()) for _ in range(3)]).double()

    def check() -> None:
        storages = {row.untyped_storage().data_ptr() for row in teachers.__dict__["rows"]}
        for m, net in enumerate(teachers.networks):
            picked = teachers.weights(torch.tensor([m]))
            for name, p in [*net.named_parameters(), *net.named_buffers()]:
                assert torch.equal(p, picked[name])
                assert p.untyped_storage().data_ptr() in storages

    assert teachers.__dict__["rows"][0].dtype == torch.float64
    check()
    teachers.load_state_dict({k: v + 1 for k, v in teachers.state_dict().items()})
    check()


def test_rows_keep_the_layout_of_the_weights() -> None:
    nets = [nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)) for _ in range(2)]
    for net in nets:
        net.to(memory_format=torch.channels_last)
    teachers = Teachers(nets)
    weight = teachers.weights(torch.tensor([1]))["0.weight"]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(weight, nets[1].get_parameter("0.weight"))


class Scaled(nn.Module):
    """Two of these differ in an attribute alone."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(x)) * self.scale


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        (Scaled(1.0), Scaled(1.0), True),
        (Scaled(1.0), Scaled(2.0), False),
        (nn.Sequential(nn.Linear(4, 3), nn.ReLU()), nn.Sequential(nn.Linear(4, 3), nn.Tanh()), False),
        (nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=2), False),
        (nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 3, bias=False)), False),
        (nn.Sequential(nn.Linear(4, 3)), nn.Sequential(nn.Linear(4, 3)).double(), False),
    ],
)
def test_what_counts_as_the_same_architecture(a: nn.Module, b: nn.Module, alike: bool) -> None:
    assert Teachers([a, b]).alike == alike


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
def test_torchscript_is_refused_and_what_torch_export_makes_is_not() -> None:
    net, x = trained(network()).eval(), torch.randn(8, 4)
    traced = torch.jit.trace(net, x)
    for teacher in (traced, torch.jit.script(net), nn.Sequential(nn.Identity(), traced)):
        with pytest.raises(ValueError, match=r"TorchScript for teacher 1, .* torch\.export\.load\(FILE\)\.module\(\)"):
            Teachers([net, teacher])
    batch = torch.export.Dim("batch")
    programs = [torch.export.export(net, (x,), dynamic_shapes=({0: batch},)).module() for _ in range(2)]
    torch.testing.assert_close(Teachers(programs)(x[:5])[1], net(x[:5]))


def test_errors() -> None:
    x = torch.randn(2, 4)
    with pytest.raises(ValueError, match="networks: expected at least one teacher"):
        Teachers([])
    with pytest.raises(ValueError, match="got str for teacher 1"):
        Teachers([network(), "net"])  # type: ignore[list-item]
    message = r"teacher 1 \(Sequential\) answers 5 classes and teacher 0 \(Sequential\) 3"
    with pytest.raises(ValueError, match=message):
        Teachers([network(), network(classes=5)])(x)
    with pytest.raises(ValueError, match=message):
        Teachers([network(), network(classes=5)], example=x)
    with pytest.raises(ValueError, match="divide images by 255"):
        Teachers([network()])(torch.zeros(2, 4, dtype=torch.uint8))
    with pytest.raises(ValueError, match=r"expected a network that answers logits \[B, K\]"):
        Teachers([nn.Flatten(0)])(x)


@settings(deadline=None, max_examples=15)
@given(members=st.integers(1, 5), batch=st.integers(1, 3), classes=st.sampled_from([2, 1000]), data=st.data())
def test_shapes(members: int, batch: int, classes: int, data: Any) -> None:
    teachers = Teachers([nn.Sequential(nn.Linear(4, classes)) for _ in range(members)])
    picks = data.draw(st.lists(st.integers(0, members - 1), min_size=1, max_size=4))
    x = torch.randn(batch, 4)
    assert teachers(x).shape == (members, batch, classes)
    assert teachers(x, torch.tensor(picks)).shape == (len(picks), batch, classes)
