from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from onefold.models import CIFAR10, CIFAR100, TINY_IMAGENET, ChannelStatistics, WideResNet, wide_resnet, wrn28


def parameters(depth: int, k: int, classes: int, channels: int = 3) -> int:
    """The count on paper: convolutions, BatchNorm's two vectors, projections, head."""
    blocks = (depth - 4) // 6
    total = 9 * channels * 16
    inputs = 16
    for outputs in (16 * k, 32 * k, 64 * k):
        total += 2 * inputs + 9 * inputs * outputs + 2 * outputs + 9 * outputs * outputs
        total += inputs * outputs if inputs != outputs else 0
        total += (blocks - 1) * (4 * outputs + 18 * outputs * outputs)
        inputs = outputs
    return total + 2 * inputs + inputs * classes + classes


def functional(state: dict[str, Tensor], x: Tensor, blocks: int, statistics: ChannelStatistics) -> Tensor:
    """The network once more, written against the bare tensors of its state, with running statistics."""

    def activate(name: str, h: Tensor) -> Tensor:
        moments = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        return F.batch_norm(h, *moments, state[f"{name}.weight"], state[f"{name}.bias"]).clamp(min=0)

    mean, std = (torch.tensor(v, dtype=torch.float32).to(x.dtype) for v in (statistics.mean, statistics.std))
    h = F.conv2d((x - mean[:, None, None]) / std[:, None, None], state["conv.weight"], padding=1)
    for stage in (1, 2, 3):
        for block in range(blocks):
            at, stride = f"stage{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            first = activate(f"{at}.norm1", h)
            second = F.conv2d(first, state[f"{at}.conv1.weight"], stride=stride, padding=1)
            residual = F.conv2d(activate(f"{at}.norm2", second), state[f"{at}.conv2.weight"], padding=1)
            projection = state.get(f"{at}.shortcut.weight")
            h = residual + (h if projection is None else F.conv2d(h, projection, stride=stride))
    pooled = activate("norm", h).flatten(2).sum(dim=2) / (h.shape[2] * h.shape[3])
    return pooled @ state["head.weight"].T + state["head.bias"]


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("width", "classes", "known"),
    [(1, 10, 369_498), (4, 10, 5_849_050), (4, 100, 5_872_180), (4, 200, 5_897_880), (10, 10, 36_479_194)],
)
def test_parameter_counts(width: int, classes: int, known: int) -> None:
    with torch.device("meta"):
        net = wrn28(width, classes)
    assert count(net) == known == parameters(28, width, classes)


@pytest.mark.parametrize(("depth", "width", "classes", "channels"), [(10, 1, 2, 1), (16, 3, 7, 3), (40, 2, 10, 4)])
def test_parameter_count_of_any_shape(depth: int, width: int, classes: int, channels: int) -> None:
    statistics = ChannelStatistics((0.5,) * channels, (0.25,) * channels)
    with torch.device("meta"):
        net = wide_resnet(depth, width, classes, statistics, channels)
    assert count(net) == parameters(depth, width, classes, channels)


@pytest.mark.parametrize(("depth", "width", "size"), [(10, 1, 32), (10, 2, 64), (16, 2, 32)])
def test_agrees_with_the_functional_form(depth: int, width: int, size: int) -> None:
    torch.manual_seed(0)
    net = wide_resnet(depth, width, 5, CIFAR100).double()
    net.train()(torch.rand(8, 3, size, size, dtype=torch.float64))  # running statistics away from 0 and 1
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)  # BatchNorm's parameters away from 1 and 0
    net.eval()
    x = torch.rand(3, 3, size, size, dtype=torch.float64)
    expected = functional(net.state_dict(), x, (depth - 4) // 6, CIFAR100)
    torch.testing.assert_close(net(x), expected)


@pytest.mark.parametrize("size", [32, 64])
def test_one_network_takes_both_sizes(size: int) -> None:
    net = wrn28(1, 7, TINY_IMAGENET)
    assert net(torch.rand(2, 3, size, size)).shape == (2, 7)


def test_the_first_layer_standardises() -> None:
    net = wrn28(1, 10, CIFAR100)
    assert next(net.named_children()) == ("standardize", net.standardize)
    x, seen = torch.rand(2, 3, 8, 8), []
    net.conv.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    net(x)
    mean, std = (torch.tensor(v)[:, None, None] for v in (CIFAR100.mean, CIFAR100.std))
    torch.testing.assert_close(seen[0], (x - mean) / std)


def test_projections_stand_only_where_the_shape_changes() -> None:
    def projected(net: WideResNet) -> set[str]:
        return {name.removesuffix(".shortcut") for name, _ in net.named_modules() if name.endswith("shortcut")}

    with torch.device("meta"):
        assert projected(wrn28(1)) == {"stage2.0", "stage3.0"}
        assert projected(wrn28(4)) == {"stage1.0", "stage2.0", "stage3.0"}


def test_weights_start_with_the_deviation_of_their_inputs() -> None:
    torch.manual_seed(0)
    for module in wrn28(4).modules():
        if isinstance(module, (torch.nn.Conv2d, torch.nn.Linear)):
            weight, deviation = module.weight.detach(), (2 / module.weight[0].numel()) ** 0.5
            assert module.bias is None or not module.bias.any()
            # Five standard errors of the two moments.
            assert abs(float(weight.std()) / deviation - 1) < 5 / (2 * weight.numel()) ** 0.5
            assert abs(float(weight.mean())) < 5 * deviation / weight.numel() ** 0.5


def test_gradients_reach_the_input_and_every_parameter() -> None:
    torch.manual_seed(0)
    net = wide_resnet(10, 2, 4)
    x = torch.rand(3, 3, 16, 16, requires_grad=True)
    net(x).square().sum().backward()
    assert x.grad is not None
    assert bool((x.grad.flatten(1).norm(dim=1) > 0).all())
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert float(parameter.grad.norm()) > 0, name


def test_a_seed_decides_the_weights() -> None:
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in wrn28(1).parameters()])

    assert torch.equal(weights(3), weights(3))
    assert not torch.equal(weights(3), weights(4))


def test_exports_with_a_free_batch_size() -> None:
    net = wrn28(1).eval()
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(net, (torch.rand(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    x = torch.rand(5, 3, 32, 32)
    torch.testing.assert_close(program.module()(x), net(x))


def test_traces_whole() -> None:
    torch.compiler.reset()
    net = wide_resnet(10, 1, 3).eval()
    x = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="eager")(x), net(x))


@pytest.mark.parametrize("depth", [4, 9, 27, 28.0])
def test_bad_depths_are_refused(depth: int) -> None:
    with pytest.raises(ValueError, match="depth"):
        wide_resnet(depth)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="width"):
        wrn28(0)
    with pytest.raises(ValueError, match="classes: expected an integer of at least 2, got 1"):
        wrn28(1, 1)
    with pytest.raises(ValueError, match="channels"):
        wrn28(1, channels=0)
    with pytest.raises(ValueError, match="statistics: expected those of 1 channels, got 3"):
        wrn28(1, 10, CIFAR10, channels=1)
