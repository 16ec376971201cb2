"""Real architectures: convert, train a step, collapse, load strictly into a fresh original, export."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn

from onefold import batch_ensemble, collapse, subnetwork
from onefold.models import mlp, wrn28


class Encoder(nn.Module):
    """A classifier over sequences of feature vectors."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.embed = nn.Linear(6, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        h = self.encoder(h if self.batch_first else h.transpose(0, 1))
        return torch.as_tensor(self.head(h.mean(1 if self.batch_first else 0)))


def small(name: str, size: int) -> tuple[Callable[[], nn.Module], tuple[int, ...]]:
    return lambda: timm.create_model(name, num_classes=5, img_size=size, patch_size=8, depth=2), (3, size, size)


# name: how to build it, the shape of one input, layers that stay shared although they are of a convertible kind
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "torchvision resnet18": (lambda: torchvision.models.resnet18(num_classes=5), (3, 48, 48)),
    "torchvision resnet50": (lambda: torchvision.models.resnet50(num_classes=5), (3, 48, 48)),
    "timm vit": small("vit_tiny_patch16_224", 32),
    "timm convnext": (lambda: timm.create_model("convnext_atto", num_classes=5), (3, 32, 32)),
    "timm efficientnet": (lambda: timm.create_model("efficientnet_b0", num_classes=5), (3, 32, 32)),
    "transformer encoder": (lambda: Encoder(True), (7, 6)),
    "transformer encoder, sequence first": (lambda: Encoder(False), (7, 6)),
    "wrn28x1": (lambda: wrn28(1, 5), (3, 16, 16)),
    "mlp": (lambda: mlp(6, 5), (6,)),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architecture(name: str) -> None:
    build, shape = ARCHITECTURES[name]
    torch.manual_seed(0)
    net, x = build(), torch.rand(3, *shape)
    student = batch_ensemble(net, 2, example=x)  # proves members and subnetworks equal, and members and the original
    assert not student.report.skipped
    assert len(student.report.converted) == sum(isinstance(m, CONVERTIBLE) for m in net.modules())

    before = {k: v.clone() for k, v in student.state_dict().items()}
    optimizer = torch.optim.AdamW(student.parameter_groups(1e-4, 1e-2, adaptive=True))
    targets = torch.randn(2, 3, 5).softmax(-1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = -(targets * student.train()(x).log_softmax(-1)).sum(-1).mean()
        loss.backward()
        optimizer.step()
    still = [n for n, p in student.named_parameters() if torch.equal(p, before[n])]
    assert not still

    student.eval()
    for m in range(2):
        torch.testing.assert_close(student(x)[m], subnetwork(student, m)(x), rtol=1e-3, atol=1e-4)
    averaged = collapse(student)
    assert type(averaged) is type(net)
    fresh = build().eval()
    fresh.load_state_dict(averaged.state_dict(), strict=True)
    torch.testing.assert_close(fresh(x), averaged(x))

    with torch.no_grad():
        exported = torch.export.export(averaged, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
        torch.testing.assert_close(exported.module()(x[:2]), averaged(x[:2]), rtol=1e-4, atol=1e-5)


CONVERTIBLE = (nn.Linear, nn.Conv2d, nn.MultiheadAttention)


def test_members_of_a_transformer_differ_from_its_fast_path() -> None:
    """In evaluation mode without gradients torch's encoder would read the weights past the factors."""
    torch.manual_seed(0)
    student = batch_ensemble(Encoder(True), 2, "normal").eval()
    x = torch.rand(3, 7, 6)
    with torch.no_grad():
        logits = student(x)
        torch.testing.assert_close(logits[1], subnetwork(student, 1)(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, student(x), rtol=1e-4, atol=1e-5)
    encoder = collapse(student).encoder
    assert encoder.use_nested_tensor  # type: ignore[union-attr]
    assert encoder.layers[0].activation_relu_or_gelu == 1  # type: ignore[union-attr, index]


@pytest.mark.parametrize("strict", [True, False])
def test_a_student_exports_for_every_batch_size(strict: bool) -> None:
    torch.manual_seed(0)
    x = torch.rand(9, 7, 6)
    student = batch_ensemble(Tokens(), 2, "normal", example=x).eval()
    few, any_size = x[:2], ({0: torch.export.Dim("batch", min=2, max=512)},)
    with torch.no_grad():
        exported = torch.export.export(student, (few,), dynamic_shapes=any_size, strict=strict).module()
        for rows in (few, x):  # the head has more weights than activations, and fewer
            torch.testing.assert_close(exported(rows), student(rows), rtol=1e-4, atol=1e-5)


class Tokens(nn.Module):
    """A layer that sees every token, and a head that sees an example once."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(6, 6), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.mix(x).relu().mean(1)))


def test_a_student_exports_too() -> None:
    student = batch_ensemble(wrn28(1, 5), 2, "normal").eval()
    x = torch.rand(2, 3, 16, 16)
    answer = student(x)
    exported = torch.export.export(student, (x,))
    torch.testing.assert_close(exported.module()(x), answer, rtol=1e-4, atol=1e-5)
