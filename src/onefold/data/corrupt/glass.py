"""Glass blur: pixels are moved to neighbouring positions, between two Gaussian blurs."""

from __future__ import annotations

import torch
from torch import Tensor

from onefold.data.corrupt.draws import Draws
from onefold.data.corrupt.linear import smoothed, to_bytes


def glass_blur(x: Tensor, draws: Draws, deviation: float, reach: float, rounds: float) -> Tensor:
    """Blurs, `rounds` times moves every pixel by up to `reach`, and blurs again.

    The published script goes from the bottom right to the top left and means to swap each pixel with a neighbour. But
    it assigns through views of one array, so that the neighbour is copied and keeps its own value. The published files
    were made that way, and so are these.
    """
    x = to_bytes(smoothed(x, deviation))
    height, width = x.shape[-2:]
    for _ in range(int(rounds)):
        origin = origins(draws, height, width, int(reach))
        x = x.flatten(2).gather(2, origin[:, None].expand(-1, x.shape[1], -1)).view_as(x)
    return to_bytes(smoothed(x, deviation))


def origins(draws: Draws, height: int, width: int, reach: int) -> Tensor:
    """`[B, H W]`: the pixel whose value each pixel has after a round.

    Each pixel copies from a source. If the source was visited earlier in the round, it has already copied from a source
    of its own; such chains are followed by pointer doubling, for all pixels of all images at once.
    """
    device = draws.keys.device
    moves = draws.integers(-reach, reach, 2, height, width)  # as the script draws: -reach to reach - 1
    rows, columns = torch.arange(height, device=device)[:, None], torch.arange(width, device=device)
    walked = (rows > reach) & (rows <= height - reach) & (columns > reach) & (columns <= width - reach)
    here = rows * width + columns
    source = torch.where(walked, here + moves[:, 1] * width + moves[:, 0], here).flatten(1)
    chained = (source > here.flatten()) & walked.flatten()[source]
    while chained.any():
        beyond = source.gather(1, source)
        goes_on = chained & chained.gather(1, source)
        source = torch.where(chained, beyond, source)
        chained = goes_on
    return source
