"""Runs every kernel beside its description in torch. With TRITON_INTERPRET=1 on the CPU, else on a GPU."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from onefold.data.augment import CropFlip, as_input, crop_and_flip, draw
from onefold.fast import few_channels, passes, rows
from onefold.fast.across import World
from onefold.fast.crop import cropped
from onefold.fast.interior_point import interior_point
from onefold.fast.kernels import grid, launch_rows
from onefold.fast.kernels.counters import Counters, own_counters
from onefold.fast.layout import innermost_channels
from onefold.fast.norm import Learned, Moments, Norm, Sum
from onefold.objectives import capped_simplex, capped_simplex_weights

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
FULL, HALF = torch.float32, torch.bfloat16
APART = {FULL: 3e-5, HALF: 2e-2}  # of the largest: the order of sums, and a rounding or two


def compare(what: str, compute: Callable[[], Any], kind: torch.dtype = FULL) -> Any:
    """By both ways; gives what the description says. `kind` is the precision of what is read and written."""
    found = []
    for on_gpu in (False, True):
        with mock.patch.object(passes, "on_gpu", return_value=on_gpu):
            found.append(compute())
    for expected, mine in zip(*map(flat, found), strict=True):
        assert mine.dtype == expected.dtype, f"{what}: {mine.dtype}"
        error = float((mine - expected).abs().max() / expected.abs().max())
        assert error < APART[kind], f"{what}, {kind}: {error}"
    return found[0]


def flat(values: Any) -> list[Tensor]:
    return [v for v in values if v is not None] if isinstance(values, tuple) else [values]


class Several:
    """This process and three others, of which one has nothing that counts."""

    def __init__(self, members: int, channels: int, counted: bool) -> None:
        self.counted = counted
        moments = torch.rand(3, 2 * members, channels, device=DEVICE)
        counts = torch.tensor([40.0, 0.0, 7.0], device=DEVICE)
        self.others = torch.cat([moments, counts[:, None, None].expand(-1, 1, channels)], 1)

    def rows_of_all(self, row: Tensor) -> Tensor:
        return torch.cat([row[None], self.others])

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            tensor += torch.linspace(-3, 3, tensor.numel(), device=DEVICE).view_as(tensor)


def check_passes() -> None:
    for has_s, has_r, affine, relu in itertools.product((True, False), repeat=4):
        check_case(3, 5, has_s, has_r, affine, relu)
    check_case(1, 5, has_s=False, has_r=False, affine=True, relu=True)
    check_case(2, 70, has_s=True, has_r=True, affine=True, relu=True)  # more channels than a tile
    height = 8 if DEVICE == "cpu" else 256  # more programs than a reduction takes at once
    check_case(1, 64, has_s=False, has_r=False, affine=True, relu=True, height=height)
    height = 3 if DEVICE == "cpu" else 96  # some tiles for each program
    for channels in (48, 70):  # in tiles that are copied ahead, with some of them empty; and as they come
        check_case(3, channels, has_s=True, has_r=True, affine=True, relu=True, height=height, kind=HALF)


def check_case(
    members: int,
    channels: int,
    has_s: bool,
    has_r: bool,
    affine: bool,
    relu: bool,
    height: int = 3,
    kind: torch.dtype = FULL,
) -> None:
    what = f"M {members}, C {channels}, s {has_s}, r {has_r}, affine {affine}, relu {relu}"
    y = innermost_channels(torch.randn(2 * members, channels, height, height + 2, device=DEVICE) + 2).to(kind)

    def alike(compute: Callable[[], Any]) -> Any:
        return compare(what, compute, kind)

    def vector(*size: int) -> Tensor:
        return torch.randn(size, device=DEVICE) / 3

    # Factors of picked members are columns of a larger tensor.
    q, s, r = vector(members, 3 * channels + 1)[:, 1:].split(channels, dim=1)
    s, r = s if has_s else None, r if has_r else None
    weight, bias = (vector(channels), vector(channels)) if affine else (None, None)
    learned, norm = Learned(s, weight, bias, r), Norm(members, 1e-5, 0.1, relu, shared=False)
    x, dz, also = torch.randn_like(y), torch.randn_like(y), torch.randn_like(y)

    def moments(add: Sum, world: World | None = None) -> tuple[Tensor, ...]:
        running = torch.full((channels,), 0.5, device=DEVICE), torch.full((channels,), 2.0, device=DEVICE)
        return *passes.moments(y, add, learned, running, norm, world), *running

    def gradients(table: Tensor, world: World | None, z: Tensor | None = None) -> tuple[Tensor | None, ...]:
        coefficients, of_learned, passed = passes.gradient_table(dz, y, table, learned, norm, world, z)
        return coefficients, *of_learned, passed

    running = vector(channels), vector(channels).abs() + 0.1
    for add in (Sum(None, None), Sum(q, x), Sum(None, x)):
        alike(partial(moments, add))
        for onto in (None, x):
            alike(partial(passes.rest, y, add, learned, running, norm, onto))
    table = passes.moments(y, Sum(None, None), learned, None, norm, None)[1]
    a, _, _, b, *_ = Moments.of(table, members)
    for onto in (None, x):
        alike(partial(passes.affine, y, a, b, r, relu, onto))
    gate = x.relu()  # what an activation has let through
    for counted in (True, False):
        world = Several(members, channels, counted)
        common = alike(partial(moments, Sum(q, x), world))[1]
        alike(partial(gradients, common, world))
    coefficients = alike(partial(gradients, table, None))[0]
    alike(lambda: passes.gradient(dz, y, a, b, coefficients, also, relu))
    alike(partial(gradients, table, None, gate))
    for z in (None, gate):
        alike(partial(passes.rest_gradient, dz, y if relu else None, learned, running, norm, also, z))
    if s is not None:
        alike(lambda: passes.scaled_sum(y, s, x))
        alike(lambda: passes.scaled_gradient(dz, y, s))


@mock.patch.object(passes, "on_gpu", mock.Mock(return_value=True))
def check_arrivals() -> None:
    """Whoever comes last, and whatever runs beside: the same bits each time, and counters back at zero."""
    members, channels = 4, 64
    size = (2 * members, channels, 8, 8) if DEVICE == "cpu" else (32 * members, channels, 32, 32)
    y, dz = (innermost_channels(torch.randn(size, device=DEVICE)) for _ in range(2))
    s, gamma, beta = torch.randn(members, channels, device=DEVICE), *torch.randn(2, channels, device=DEVICE)
    learned = Learned(s, gamma, beta, None)
    norm = Norm(members, 1e-5, 0.1, relu=True, shared=False)

    def both() -> tuple[Tensor, Tensor]:
        table = passes.moments(y, Sum(None, None), learned, None, norm, None)[1]
        return table, passes.gradient_table(dz, y, table, learned, norm, None, None)[0]

    expected = both()
    streams = [torch.cuda.Stream() for _ in range(4)] if DEVICE == "cuda" else [None]
    sheet = Counters(torch.device(DEVICE), 1 << 12)
    with own_counters(sheet):
        for k in range(2 if DEVICE == "cpu" else 400):
            with torch.cuda.stream(streams[k % len(streams)]):
                found = both()
            if DEVICE == "cpu" or k % 50 == 49:
                torch.cuda.synchronize() if DEVICE == "cuda" else None
                assert all(map(torch.equal, found, expected)), "arrivals"
    assert sheet.next > 0
    assert not sheet.zeros.any(), "counters"


def check_rows() -> None:
    count = 37 if DEVICE == "cpu" else 12_288  # some tiles for each program
    sizes = ((5, FULL), (70, FULL), (48, HALF), (70, HALF))
    for (channels, kind), affine, added in itertools.product(sizes, (True, False), (None, FULL, HALF)):
        what = f"rows of {channels}, affine {affine}, sum with {added}"
        y, dz, also = (torch.randn(count, channels, device=DEVICE).to(kind) for _ in range(3))
        x = None if added is None else torch.randn_like(y, dtype=added)
        weight, bias = torch.randn(2, channels, device=DEVICE) if affine else (None, None)
        found = compare(what, partial(rows.normalized, y, x, weight, bias, 1e-3, kind), kind)
        total, _, mean, rstd = found
        lower = next((other for other in (kind, added) if other not in (None, total.dtype)), None)
        for passed, learns in itertools.product((also.to(total.dtype), None), (affine, False)):
            given = (dz, total, weight, mean, rstd, passed, lower, learns)
            compare(what, partial(rows.normalized_gradient, *given), kind if lower is None else HALF)


@mock.patch.object(passes, "on_gpu", mock.Mock(return_value=True))
def check_no_rows() -> None:
    """Empty in, empty out; nothing to learn from."""
    nothing, weight = torch.zeros(0, 5, device=DEVICE), torch.ones(5, device=DEVICE)
    total, z, mean, rstd = rows.normalized(nothing, nothing, weight, weight, 1e-3, torch.float32)
    dt, _, dgamma, dbeta = rows.normalized_gradient(z, total, weight, mean, rstd, None, None, True)
    assert z.shape == dt.shape == (0, 5)
    for found in (dgamma, dbeta):
        assert found is not None
        assert torch.equal(found, torch.zeros_like(weight)), "no rows"


def check_convolutions() -> None:
    few_channels.PIXELS, few_channels.SUMMED, few_channels.PROGRAMS = (16, 16, 3) if DEVICE == "cpu" else (128, 64, 132)
    kind = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    for c, k, height, width in ((16, 16, 4, 6), (16, 32, 5, 3), (32, 16, 6, 4), (16, 64, 3, 5)):
        x = innermost_channels(torch.randn(2, c, height, width, device=DEVICE).to(kind))
        w = innermost_channels(torch.randn(k, c, 3, 3, device=DEVICE).to(kind))
        g = innermost_channels(torch.randn(2, k, height, width, device=DEVICE).to(kind))
        settings = few_channels.SAME_SIZE
        exact = [t.double() for t in (g, x, w)]
        dx, dw, _ = torch.ops.aten.convolution_backward(*exact, None, *settings, [True, True, False])
        y = torch.convolution(x.double(), w.double(), None, *settings)
        bias = torch.randn(k, device=DEVICE)
        pairs = [
            (few_channels.few_channels(x, w), y),
            (few_channels.few_channels(x, w, bias, relu=True), (y + bias.double()[:, None, None]).relu()),
            (few_channels.few_channels(g, w, transposed=True), dx),
            (few_channels.few_channels_weight_gradient(g, x), dw),
        ]
        for mine, expected in pairs:
            error = float((mine.double() - expected).norm() / expected.norm())
            assert error < (1e-5 if DEVICE == "cpu" else 1e-2), f"convolution {c} to {k}: {error}"


def check_crops() -> None:
    images = torch.randint(0, 256, (20, 3, 8, 10), dtype=torch.uint8)
    draws = draw(7, CropFlip(2), torch.Generator().manual_seed(0))
    chosen = torch.randint(0, 20, (7,))
    expected = as_input(crop_and_flip(images[chosen], draws, 2))
    found = cropped(images.to(DEVICE), chosen.to(DEVICE), *draws.to(torch.device(DEVICE)), 2)
    assert torch.equal(found.cpu(), expected), "crops"


def check_interior_point() -> None:
    """Weights of AE-KD: three steps of each programme, and where it ends; teachers of the second half have a twin."""
    count = 4 if DEVICE == "cpu" else 1000
    for members, cap in ((2, 0.55), (2, 1.0), (3, 0.334), (3, 0.6), (4, 0.6), (7, 1.0), (16, 0.1)):
        teachers = (2 * torch.randn(count, members, 10, dtype=torch.float64, device=DEVICE)).softmax(-1)
        teachers[count // 2 :, -1] = teachers[count // 2 :, 0]
        student = (2 * torch.randn(2, count, 10, dtype=torch.float64, device=DEVICE)).softmax(-1)  # of two members
        gram, linear = teachers @ teachers.mT, (student[:, :, None] * teachers).sum(-1)
        what = f"M {members}, C {cap}"
        with mock.patch.object(capped_simplex, "slacks_in_the_end", wraps=capped_simplex.slacks_in_the_end) as asked:
            expected = capped_simplex_weights(gram, linear, cap)
        slack, dual, curve, slope, eye = asked.call_args.args
        found = interior_point(slack, dual, curve, slope, iterations=3, back_off=capped_simplex.BACK_OFF)
        for _ in range(3):
            slack, dual = capped_simplex.step(slack, dual, curve, slope, eye)
        assert float(((found - slack) / slack).abs().max()) < 1e-11, f"three steps, {what}"
        with mock.patch.object(capped_simplex, "on_gpu", return_value=True):
            mine = capped_simplex_weights(gram, linear, cap)
        if members < 10:  # each has one solution, but where two teachers are alike
            assert float((mine - expected)[:, : count // 2].abs().max()) < 1e-7, f"weights, {what}"
        values = [
            (w[..., None, :] @ gram @ w[..., None])[..., 0, 0] / 2 - (linear * w).sum(-1) for w in (mine, expected)
        ]
        assert float((values[0] - values[1]).abs().max()) < 1e-14, f"values, {what}"


if __name__ == "__main__":
    torch.manual_seed(0)
    if DEVICE == "cpu":
        launch_rows.PROGRAMS = 3
        launch_rows.TILE = launch_rows.SUMMED = grid.TILE = grid.SUMMED = grid.REDUCED = (
            256  # the interpreter takes its time for every element of a tile
        )
    check_passes()
    check_rows()
    check_no_rows()
    check_arrivals()
    check_convolutions()
    check_crops()
    check_interior_point()
    print("kernels agree")
