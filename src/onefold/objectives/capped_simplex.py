"""Quadratic programmes on the simplex with capped weights, solved in batches on the device."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor

from onefold.fast.ahead import only_asked
from onefold.fast.convolve import in_fast_step
from onefold.objectives.precision import widest

ITERATIONS = 20  # the hardest of 42,400 random programmes reached 1e-10 after 15; converged ones no longer move
BACK_OFF = 0.995  # the fraction of the way to the nearest bound that a step may go
MOST = 16  # members the kernel can handle: it keeps a programme's matrix in registers
ROUNDED = 1e-6  # a cap of 1/M that was rounded to single precision is still 1/M


@torch.no_grad()
def capped_simplex_weights(gram: Tensor, linear: Tensor, cap: float) -> Tensor:
    """The weights w `[..., M]` on the capped simplex that minimise 1/2 w'Gw - b'w, computed in float64.

        min_w 1/2 w'Gw - b'w   subject to   sum_m w_m = 1,  0 <= w_m <= C

    `gram` is G `[..., M, M]` (positive semi-definite, possibly singular) and `linear` is b `[..., M]`, both of order
    one (products of probability vectors); `cap` is C in [1/M, 1]. With M = 1 the weight is one, whatever C. If the
    objective is flat up to rounding (teachers that agree), the weights are equal.

    Mehrotra's predictor-corrector interior-point method, from a point that is feasible in the primal and the dual. It
    takes a fixed number of steps and never inspects values, so there is no device sync.
    """
    members = linear.shape[-1]
    cap = check_cap(cap, members)
    gram, linear = widest(gram), widest(linear)
    linear = linear.expand(torch.broadcast_shapes(linear.shape, gram.shape[:-1]))
    if members == 1:
        return torch.ones_like(linear)

    # w = 1/M + room v with sum v = 0 and v <= 1: well scaled however close C is to 1/M, where only w = 1/M is left.
    # This implies v >= -(M - 1), so a lower bound beyond M never binds and is set to M.
    room = cap - 1 / members
    below = members if room * members**2 <= 1 else 1 / (room * members)
    # The weights' sum is fixed, so only differences between them matter: rows and columns are centred.
    slope = gram.mean(-1) - linear
    slope = slope - slope.mean(-1, keepdim=True)
    curve = gram - gram.mean(-1, keepdim=True)
    curve = room * (curve - curve.mean(-2, keepdim=True))
    scale = torch.maximum(curve.abs().amax((-2, -1)), slope.abs().amax(-1)).unsqueeze(-1)
    eps = torch.finfo(gram.dtype).eps
    flat = scale <= 8 * eps
    scale = torch.where(flat, 1.0, scale)

    # G is semi-definite only up to rounding, and centring does not fix that: add as much to the diagonal.
    eye = torch.eye(members, dtype=gram.dtype, device=gram.device)
    curve = curve + eye * (4 * members * eps * room * gram.abs().amax((-2, -1), keepdim=True))

    v = minimise(curve / scale.unsqueeze(-1), slope / scale, below, eye)
    return feasible(torch.where(flat, 1 / members, 1 / members + room * v), cap)


def check_cap(cap: float, members: int) -> float:
    """C, or a ValueError if M weights of at most C cannot sum to one. A single member has weight one, whatever C."""
    if not 0 < cap <= 1 or (members > 1 and cap < 1 / members - ROUNDED):
        raise ValueError(f"cap: expected a largest weight C from 1/M = {1 / members:.6g} to 1, got {cap}")
    return max(cap, 1 / members)


def minimise(curve: Tensor, slope: Tensor, below: float, eye: Tensor) -> Tensor:
    """v `[..., M]` that minimises 1/2 v'Qv + c'v subject to sum v = 0, -below <= v <= 1."""
    # Q may be singular along the all-ones vector, to which v is orthogonal: give it a curvature of one there.
    curve = curve + 1 / slope.shape[-1]

    # In every [..., 2, M] the upper bound comes first: slacks 1 - v and v + below, here for v = 0.
    slack = torch.stack((torch.ones_like(slope), torch.full_like(slope, below)), -2)
    dual = signed(slope).clamp(min=0) + 1  # c = dual_below - dual_above, so the start is feasible
    return slacks_in_the_end(slack, dual, curve, slope, eye)[..., 1, :] - below


def on_gpu(slope: Tensor) -> bool:
    """Whether to use the kernel: in a fast-path step on a GPU, with Triton installed."""
    return slope.is_cuda and in_fast_step() and importlib.util.find_spec("triton") is not None


def slacks_in_the_end(slack: Tensor, dual: Tensor, curve: Tensor, slope: Tensor, eye: Tensor) -> Tensor:
    """Runs all iterations and returns the slacks; in a fast-path step on a GPU, with one equivalent kernel."""
    if on_gpu(slope) and slope.shape[-1] <= MOST:
        from onefold.fast.interior_point import interior_point

        reached = interior_point(slack, dual, curve, slope, iterations=ITERATIONS, back_off=BACK_OFF)
        if not only_asked():
            return reached
    for _ in range(ITERATIONS):
        slack, dual = step(slack, dual, curve, slope, eye)
    return slack


@torch.compiler.nested_compile_region  # traced and compiled once, not once for each iteration
def step(slack: Tensor, dual: Tensor, curve: Tensor, slope: Tensor, eye: Tensor) -> tuple[Tensor, Tensor]:
    """One iteration of Mehrotra's predictor-corrector: the next slacks and duals."""
    v = slack[..., 1, :] - slack[..., 1, :].mean(-1, keepdim=True)
    residual = matvec(curve, v) + slope - difference(dual)
    stiffness = dual / slack
    root = root_on_plane(curve + eye * stiffness.sum(-2).unsqueeze(-1), eye)
    distance = slack * dual
    gap = distance.mean((-2, -1), keepdim=True)
    dslack, ddual = newton(-distance, slack, stiffness, residual, root)
    length = longest(slack, dual, dslack, ddual)
    reached = ((slack + length * dslack) * (dual + length * ddual)).mean((-2, -1), keepdim=True)
    centre = reached**3 / gap**2  # Mehrotra's sigma = (reached / gap)^3 of the gap
    # The second-order term is scaled by the length of the predictor step; in full it can make the iteration cycle.
    dslack, ddual = newton(centre - distance - length * dslack * ddual, slack, stiffness, residual, root)
    # Below this gap a step would only amplify rounding errors, so its length is zero.
    length = BACK_OFF * longest(slack, dual, dslack, ddual) * (gap > torch.finfo(gap.dtype).eps / 64)
    return slack + length * dslack, dual + length * ddual


def newton(change: Tensor, slack: Tensor, stiffness: Tensor, residual: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """The Newton step of slacks and duals that changes slack * dual by `change`, to first order."""
    push = change / slack
    dslack = signed(matvec(root.mT, matvec(root, difference(push) - residual)))
    return dslack, push - stiffness * dslack


def signed(values: Tensor) -> Tensor:
    """The change of the two slacks `[..., 2, M]` caused by a change of v."""
    return torch.stack((-values, values), -2)


def difference(values: Tensor) -> Tensor:
    """The lower bound's part minus the upper bound's, `[..., M]`."""
    return values[..., 1, :] - values[..., 0, :]


def longest(slack: Tensor, dual: Tensor, dslack: Tensor, ddual: Tensor) -> Tensor:
    """The longest step, at most one, that keeps slacks and duals non-negative, `[..., 1, 1]`."""
    return 1 / torch.maximum(-dslack / slack, -ddual / dual).amax((-2, -1), keepdim=True).clamp(min=1)


def root_on_plane(matrix: Tensor, eye: Tensor) -> Tensor:
    """R such that R'Rb minimises 1/2 x'Hx - b'x subject to sum x = 0, for H positive definite `[..., M, M]`.

    Gaussian elimination turns [H, I] into [L', L^-1] in M steps of plain arithmetic, without checks or device syncs.
    It returns the root rather than the inverse because H is nearly singular close to the solution, where the errors of
    the inverse would leave the plane.
    """
    members = matrix.shape[-1]
    # The diagonal, which spans twenty orders of magnitude near the solution, is scaled to one. Teachers that agree
    # would give a pivot of zero, so a little is added to the diagonal.
    scale = (matrix * eye).sum(-1, keepdim=True).rsqrt()
    matrix = matrix * scale * scale.mT + 512 * torch.finfo(matrix.dtype).eps * eye
    rest, rows = torch.cat((matrix, eye * scale), -1), []
    for _ in range(members):
        row, rest = rest[..., :1, :], rest[..., 1:, :]
        pivot = row[..., :1].clamp(min=torch.finfo(matrix.dtype).eps)
        rows.append(row[..., -members:] * pivot.rsqrt())
        rest = rest[..., 1:] - rest[..., :1] * (row[..., 1:] / pivot)
    root = torch.cat(rows, -2)
    normal = root.sum(-1, keepdim=True)
    return root - normal * ((normal * root).sum(-2, keepdim=True) / (normal * normal).sum(-2, keepdim=True))


def matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    """Matrix times vector as multiply and sum: small, and unlike matmul not cast to half precision by autocast."""
    return (matrix * vector.unsqueeze(-2)).sum(-1)


def feasible(weights: Tensor, cap: float) -> Tensor:
    """Corrects weights that violate the bounds or the sum by rounding."""
    weights = weights.clamp(0, cap)
    short = 1 - weights.sum(-1, keepdim=True)
    space = torch.where(short > 0, cap - weights, weights)
    return weights + short * space / space.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
