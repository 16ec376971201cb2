"""Random numbers that depend only on the seed and the image, drawn for a whole block at once on any device.

Draw number i of an image is the i-th output of SplitMix64 (Steele, Lea and Flood, 2014), started at a key made from the
seed, the purpose and the image's index. No state is carried from one image to the next, so an image gets the same draws
whatever it is batched with. The integers are the same on every device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15
ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
WORD = 2**64


def signed(word: int) -> int:
    """The int64 that has these 64 bits."""
    word %= WORD
    return word - WORD if word >= WORD // 2 else word


def mixed(words: Tensor) -> Tensor:
    """Applies SplitMix64's finaliser to int64 `words`, in place; the products wrap around."""
    for shift, factor in ROUNDS:
        high = words >> shift
        words ^= high.bitwise_and_((1 << (64 - shift)) - 1)  # >> extends the sign, the algorithm needs zeros
        words *= signed(factor)
    return words


def absorbed(text: str, seed: int) -> int:
    """A 64-bit word from a name and a seed of any size: FNV-1a over their bytes."""
    state = 0xCBF29CE484222325
    for byte in f"{seed} {text}".encode():
        state = (state ^ byte) * 0x100000001B3 % WORD
    return state


class Draws:
    """Independent draws for the images at `indices` `[B]`; each call continues where the last one ended."""

    def __init__(self, seed: int, purpose: str, indices: Tensor) -> None:
        start = mixed(torch.tensor(signed(absorbed(purpose, seed)), device=indices.device))
        self.keys = mixed(start + (indices.long() + 1) * signed(GOLDEN))  # [B]
        self.used = 0

    def words(self, count: int) -> Tensor:
        """int64 `[B, count]`, all 64 bits random."""
        places = torch.arange(self.used + 1, self.used + count + 1, device=self.keys.device) * signed(GOLDEN)
        self.used += count
        return mixed(self.keys[:, None] + places)

    def halves(self, *shape: int) -> tuple[Tensor, Tensor]:
        """Two int64 `[B, n]` with 32 random bits each, where 2n is the number of elements of `shape`, rounded up."""
        words = self.words((math.prod(shape) + 1) // 2)
        return words & 0xFFFFFFFF, (words >> 32).bitwise_and_(0xFFFFFFFF)

    def bits(self, *shape: int) -> Tensor:
        """int64 `[B, *shape]` with 32 random bits."""
        return self.joined(*self.halves(*shape), shape)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """float32 `[B, *shape]`, uniform between `low` and `high` in steps of 2^-24 of the range."""
        unit = (self.bits(*shape) >> 8).float().add_(0.5).mul_(2.0**-24)
        return unit.mul_(high - low).add_(low)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 `[B, *shape]`, uniform over low, ..., high - 1."""
        return (self.bits(*shape) * (high - low) >> 32).add_(low)

    def normal(self, *shape: int) -> Tensor:
        """float32 `[B, *shape]`, standard normal, by Box-Muller; both values of each pair are used."""
        first, second = self.halves(*shape)
        radius = first.float().add_(0.5).mul_(2.0**-32).clamp_(max=1.0).log_().mul_(-2).sqrt_()
        angle = second.float().mul_(2.0**-32 * 2 * math.pi)
        return self.joined(radius * angle.cos(), radius * angle.sin(), shape)

    def joined(self, first: Tensor, second: Tensor, shape: tuple[int, ...]) -> Tensor:
        return torch.cat([first, second], dim=1)[:, : math.prod(shape)].reshape(len(self.keys), *shape)
