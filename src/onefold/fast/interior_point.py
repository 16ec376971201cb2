"""Solves AE-KD's quadratic programmes in one kernel, with one program for each: torch calls would be 2,300 kernels.

`objectives/capped_simplex.py` does the same computation in torch, with explanations; the names are the same.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from onefold.fast.kernels.compiled import jit, wait_for_inputs


@jit
def interior_point_kernel(
    slacks,
    duals,
    curves,
    slopes,
    reached,
    EPS: tl.constexpr,
    BACK_OFF: tl.constexpr,
    ITERATIONS: tl.constexpr,
    M: tl.constexpr,
    SIZE: tl.constexpr,
):
    """reached `[programmes, 2, M]`: the slacks after all steps. Rows and columns from M on are padding."""
    wait_for_inputs()
    at = tl.program_id(0).to(tl.int64) * M
    m = tl.arange(0, SIZE)
    there = m < M
    same = m[:, None] == m[None, :]
    inner = there[:, None] & there[None, :]
    above = tl.load(slacks + 2 * at + m, mask=there, other=1.0)
    below = tl.load(slacks + 2 * at + M + m, mask=there, other=1.0)
    dual_above = tl.load(duals + 2 * at + m, mask=there, other=0.0)
    dual_below = tl.load(duals + 2 * at + M + m, mask=there, other=0.0)
    slope = tl.load(slopes + at + m, mask=there, other=0.0)
    curve = tl.load(curves + at * M + m[:, None] * M + m[None, :], mask=inner, other=0.0)
    for _ in range(ITERATIONS):
        v = tl.where(there, below - tl.sum(tl.where(there, below, 0.0), 0) / M, 0.0)
        residual = tl.sum(curve * v[None, :], 1) + slope - (dual_below - dual_above)
        stiff_above, stiff_below = dual_above / above, dual_below / below
        diagonal = tl.where(there, stiff_above + stiff_below, 1.0)
        root = root_on_plane(curve + tl.where(same, diagonal[:, None], 0.0), same, inner, EPS, M)
        far_above, far_below = above * dual_above, below * dual_below
        gap = tl.sum(far_above + far_below, 0) / (2 * M)

        push_above, push_below = -far_above / above, -far_below / below
        d = on_plane(root, push_below - push_above - residual)
        e_above, e_below = push_above + stiff_above * d, push_below - stiff_below * d
        length = longest(above, below, dual_above, dual_below, d, e_above, e_below, there)
        predicted = (above - length * d) * (dual_above + length * e_above)
        predicted += (below + length * d) * (dual_below + length * e_below)
        left = tl.sum(predicted, 0) / (2 * M)
        centre = left * left * left / (gap * gap)

        push_above = tl.where(there, (centre - far_above + length * d * e_above) / above, 0.0)
        push_below = tl.where(there, (centre - far_below - length * d * e_below) / below, 0.0)
        d = on_plane(root, push_below - push_above - residual)
        e_above, e_below = push_above + stiff_above * d, push_below - stiff_below * d
        length = BACK_OFF * longest(above, below, dual_above, dual_below, d, e_above, e_below, there)
        length = tl.where(gap > EPS / 64, length, 0.0)
        above, below = above - length * d, below + length * d
        dual_above, dual_below = dual_above + length * e_above, dual_below + length * e_below
    tl.store(reached + 2 * at + m, above, mask=there)
    tl.store(reached + 2 * at + M + m, below, mask=there)


@jit
def root_on_plane(matrix, same, inner, EPS: tl.constexpr, M: tl.constexpr):
    """R such that R'Rb minimises 1/2 x'Hx - b'x subject to sum x = 0."""
    scale = 1.0 / tl.sqrt(tl.sum(tl.where(same, matrix, 0.0), 1))
    other = 1.0 / tl.sqrt(tl.sum(tl.where(same, matrix, 0.0), 0))
    rest = matrix * scale[:, None] * other[None, :] + tl.where(same, 512 * EPS, 0.0)
    root = tl.where(same, scale[:, None], 0.0)
    index = tl.arange(0, matrix.shape[0])
    for k in tl.static_range(M):
        here = index == k
        pivot = tl.maximum(tl.sum(tl.sum(tl.where(same & here[:, None], rest, 0.0), 1), 0), EPS)
        row = tl.sum(tl.where(here[:, None], rest, 0.0), 0)
        row_of_root = tl.sum(tl.where(here[:, None], root, 0.0), 0)
        column = tl.sum(tl.where(here[None, :], rest, 0.0), 1)
        factor = tl.where(index > k, column / pivot, 0.0)
        rest -= factor[:, None] * row[None, :]
        root = tl.where(here[:, None], root / tl.sqrt(pivot), root - factor[:, None] * row_of_root[None, :])
    root = tl.where(inner, root, 0.0)
    normal = tl.sum(root, 1)
    along = tl.sum(normal[:, None] * root, 0) / tl.sum(normal * normal, 0)
    return tl.where(inner, root - normal[:, None] * along[None, :], 0.0)


@jit
def on_plane(root, b):
    """R'Rb."""
    return tl.sum(root * tl.sum(root * b[None, :], 1)[:, None], 0)


@jit
def longest(above, below, dual_above, dual_below, d, e_above, e_below, there):
    """The longest step, at most one, that keeps slacks and duals non-negative."""
    worst = tl.maximum(tl.max(d / above, 0), tl.max(-d / below, 0))
    worst = tl.maximum(worst, tl.max(-e_above / tl.where(there, dual_above, 1.0), 0))
    worst = tl.maximum(worst, tl.max(-e_below / tl.where(there, dual_below, 1.0), 0))
    return 1.0 / tl.maximum(worst, 1.0)


def interior_point(
    slack: Tensor, dual: Tensor, curve: Tensor, slope: Tensor, *, iterations: int, back_off: float
) -> Tensor:
    """The slacks `[..., 2, M]` after all steps."""
    members = slope.shape[-1]
    shape = torch.broadcast_shapes(slope.shape[:-1], curve.shape[:-2])
    slack, dual = (values.expand(*shape, 2, members).contiguous() for values in (slack, dual))
    curve, slope = curve.expand(*shape, members, members).contiguous(), slope.expand(*shape, members).contiguous()
    reached = torch.empty_like(slack)
    if shape.numel():
        interior_point_kernel[(shape.numel(),)](
            slack,
            dual,
            curve,
            slope,
            reached,
            EPS=torch.finfo(slack.dtype).eps,
            BACK_OFF=back_off,
            ITERATIONS=iterations,
            M=members,
            SIZE=triton.next_power_of_2(members),
            num_warps=1,
            # With fused multiply-adds, a lane would round its neighbour's product but not its own: lanes would disagree
            # on a sum, Rb would not be one consistent vector, and steps would leave the plane, each a hundred times
            # further than the one before.
            enable_fp_fusion=False,
        )
    return reached
