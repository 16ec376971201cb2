"""The temperature folded into networks, or put around those that do not end in a linear layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from onefold.metrics import Calibrated, calibrated

T = 2.5


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def check(model: nn.Module, x: Tensor, folds: bool, example: Tensor | None = None) -> nn.Module:
    model.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model(x) / T
        result = calibrated(model, T, example)
        torch.testing.assert_close(result(x), expected, rtol=1e-4, atol=1e-5)
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    if folds:
        assert type(result) is type(model)
        assert list(result.state_dict()) == list(before)
    else:
        assert isinstance(result, Calibrated)
        assert result.state_dict()["temperature"] == T
    return result


class LogSoftmax(nn.Module):
    """Ends in a function."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.net(x), dim=-1)


class RegisteredLate(nn.Module):
    """The linear layer registered last is not the one that answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answer = nn.Linear(8, 4)
        self.first = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.answer(self.first(x).relu())
        return logits


class Scaled(nn.Module):
    """Something comes after the linear layer, though only in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x)
        return logits if self.training else logits + 1


class InPlace(nn.Module):
    """Returns the layer's tensor, but changed."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(x)
        logits.add_(1)
        return logits


class Twice(nn.Module):
    """Calls its last layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.fc(x).relu())
        return logits


class Tied(nn.Module):
    """Two layers, one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 6)
        self.last.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first(x).relu())
        return logits


class ReadsWeight(nn.Module):
    """Uses the last layer's weight in a function too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(torch.nn.functional.linear(x, self.fc.weight.t()))
        return logits


class ByArgument(nn.Module):
    """Ends otherwise when called with the inputs alone."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor, raw: Any = None) -> Tensor:
        logits: Tensor = self.fc(x)
        return torch.log_softmax(logits, dim=-1) if raw is None else logits


class Branching(nn.Module):
    """Cannot be traced: looks at the values."""

    def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.fc = nn.Linear(6, 8), nn.Linear(8, 4)
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.after(self.fc(h.relu() if h.sum() > 0 else h.tanh()))


@dataclass
class Record:
    logits: Tensor


class Recording(nn.Module):
    """Answers as the classifiers of transformers do."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Record:
        return Record(self.net(x))


class BranchingReadsWeight(Branching):
    """Cannot be traced, and uses the last layer's weight in a function too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x + self.fc.weight[0, :6])


class Loud(nn.Linear):
    """A linear layer with a forward pass of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def same(logits: Tensor) -> Tensor:
    return logits


@pytest.mark.parametrize(
    "model",
    [
        mlp(),
        RegisteredLate(),
        nn.Linear(6, 4),
        nn.Linear(6, 4, bias=False),
        nn.Sequential(nn.Linear(6, 4), nn.Dropout(), nn.Identity()),
        nn.Sequential(mlp(), nn.ReLU(), nn.Sequential(nn.Linear(4, 3))),
    ],
    ids=lambda m: type(m).__name__,
)
def test_networks_that_end_in_a_linear_layer_are_folded(model: nn.Module) -> None:
    x = torch.randn(5, 6)
    check(model, x, folds=True)
    check(model, x, folds=True, example=torch.randn(2, 6))


@pytest.mark.parametrize(
    "model",
    [
        LogSoftmax(),
        Scaled(),
        InPlace(),
        Twice(),
        Tied(),
        ReadsWeight(),
        ByArgument(),
        nn.Sequential(nn.Linear(6, 4), nn.ReLU()),
        nn.Sequential(Loud(6, 4)),
        nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 4))),
        nn.Sequential(nn.Flatten()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_all_others_are_wrapped(model: nn.Module) -> None:
    x = torch.randn(5, 6)
    check(model, x, folds=False)
    check(model, x, folds=False, example=torch.randn(2, 6))


def test_what_cannot_be_traced_is_folded_on_the_evidence_of_an_example_alone() -> None:
    x = torch.randn(5, 6)
    check(Branching(same), x, folds=False)
    check(Branching(same), x, folds=True, example=x)
    check(Branching(lambda logits: logits + 1), x, folds=False, example=x)
    check(Branching(lambda logits: logits.add_(1)), x, folds=False, example=x)
    check(Branching(torch.sigmoid), x, folds=False, example=x)
    check(BranchingReadsWeight(same), x, folds=False, example=x)
    check(Branching(lambda logits: logits.clamp_(max=1e6)), x, folds=False, example=x)  # equal here only


def test_an_output_object_is_looked_into() -> None:
    x = torch.randn(5, 6)
    for body, folds in ((mlp(), True), (Branching(same), True), (LogSoftmax(), False)):
        model = Recording(body).eval()
        wrapped, found = calibrated(model, T), calibrated(model, T, x)
        assert isinstance(wrapped, Calibrated)
        assert isinstance(found, Recording if folds else Calibrated)
        torch.testing.assert_close(getattr(found(x), "logits", found(x)), wrapped(x))


def test_the_network_is_judged_as_it_is_evaluated() -> None:
    assert isinstance(calibrated(Scaled().train(), T), Calibrated)


def test_hooks_and_patched_forward_passes_are_wrapped() -> None:
    x = torch.randn(5, 6)
    on_layer, on_model, patched = mlp(), mlp(), mlp()
    on_layer[2].register_forward_hook(lambda _module, _inputs, output: output + 1)
    on_model.register_forward_hook(lambda _module, _inputs, output: output + 1)
    patched[2].forward = patched[0].forward
    patched[0] = nn.Identity()
    for model in (on_layer, on_model):
        check(model, x, folds=False)
        check(model, x, folds=False, example=x)
    check(patched, x, folds=False)


class Shared(nn.Linear):
    """One layer for all copies of a network."""

    def __deepcopy__(self, memo: object) -> Shared:
        return self


def test_a_layer_that_copies_share_is_not_divided() -> None:
    check(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Shared(8, 4)), torch.randn(5, 6), folds=False)


def test_half_precision_that_cannot_hold_the_quotient_is_wrapped() -> None:
    model = nn.Linear(6, 4, dtype=torch.float16)
    nn.init.constant_(model.weight, 100.0)
    assert isinstance(calibrated(model, 1e-3), Calibrated)
    assert type(calibrated(model, 2.0)) is nn.Linear


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", [mlp, LogSoftmax])
def test_mode_and_gradients_stay(make: Callable[[], nn.Module], training: bool) -> None:
    model = make().train(training)
    result = calibrated(model, T, torch.randn(2, 6))
    assert result.training is training
    assert model.training is training
    assert all(p.requires_grad for p in result.parameters())


def test_wrapper_keeps_its_temperature_in_the_state_dict() -> None:
    source, target = Calibrated(mlp(), T), Calibrated(mlp(), 1.0)
    target.load_state_dict(source.state_dict())
    x = torch.randn(3, 6)
    torch.testing.assert_close(target(x), source(x))
    assert target(x.bfloat16().float()).dtype == torch.float32
    assert source.to(torch.float64)(x.double()).dtype == torch.float64


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_wrong_temperatures_are_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature: expected a positive finite number"):
        calibrated(mlp(), temperature)


@pytest.mark.parametrize("given", [[nn.Linear(2, 2)], (nn.Linear(2, 2),), 3, None])
def test_what_is_no_network_is_refused(given: Any) -> None:
    several = r"; give onefold\.Teachers\(networks\)" if isinstance(given, list | tuple) else ""
    kind = type(given).__name__
    with pytest.raises(ValueError, match=rf"^model: expected a network, Teachers or a result, got {kind}{several}$"):
        calibrated(given, 2.0)


def test_wrapper_refuses_what_is_not_a_tensor() -> None:
    class Pair(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x

    with pytest.raises(ValueError, match="got tuple"):
        calibrated(Pair(), T)(torch.randn(2, 3))


@pytest.mark.parametrize("make", [mlp, LogSoftmax])
def test_both_can_be_exported(make: Callable[[], nn.Module]) -> None:
    model, x = make().eval(), torch.randn(5, 6)
    program = torch.export.export(calibrated(model, T), (x,))
    exported: Any = program.module()
    torch.testing.assert_close(exported(x), model(x) / T)


def test_torchvision_and_timm_networks_are_folded() -> None:
    x = torch.randn(2, 3, 32, 32)
    check(torchvision.models.resnet18(num_classes=10), x, folds=True)
    vit: Any = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, img_size=32, depth=2)
    nn.init.normal_(vit.head.weight)
    check(vit, x, folds=True)
    check(vit, x, folds=True, example=x)
    mobile: Any = timm.create_model("mobilenetv3_small_050", num_classes=10)
    assert type(mobile.classifier) is not nn.Linear
    check(mobile, x, folds=True)


class Cast(nn.Linear):
    """As timm's: a forward pass of its own, which does the same."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def test_a_subclass_that_does_the_same_is_a_linear_layer() -> None:
    x = torch.randn(5, 6)
    for bias in (True, False):
        for model in (Cast(6, 4, bias), nn.Sequential(nn.Linear(6, 8), nn.ReLU(), Cast(8, 4, bias))):
            check(model, x, folds=True)
    odd = Branching(same)
    odd.fc = Cast(8, 4)
    check(odd, x, folds=False)
    check(odd, x, folds=True, example=x)
    odd.fc = Loud(8, 4)
    check(odd, x, folds=False, example=x)


def test_without_a_temperature() -> None:
    with pytest.raises(ValueError, match=r"temperature: expected a number, got None; distill\(\.\.\., val=\.\.\.\)"):
        calibrated(nn.Linear(2, 2), None)
