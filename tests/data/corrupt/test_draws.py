"""Draws: SplitMix64 to the bit, the distributions, and nothing but seed, purpose and image matters."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.stats
import torch

from onefold.data.corrupt.draws import Draws

stats: Any = scipy.stats  # its names are made when it is imported, so none are known to a type checker

MASK = 2**64 - 1


def splitmix(state: int) -> tuple[int, int]:
    """The next state and the output, in Python's whole numbers."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    word = state
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return state, word ^ (word >> 31)


def test_the_reference_is_splitmix64() -> None:
    """The generator's published first outputs for the seed 1234567."""
    state, outputs = 1234567, []
    for _ in range(3):
        state, output = splitmix(state)
        outputs.append(output)
    assert outputs == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_words_are_splitmix64() -> None:
    draws = Draws(3, "snow 1", torch.tensor([0, 5, 900]))
    words = torch.cat([draws.words(4), draws.words(3)], dim=1)
    for key, row in zip(draws.keys.tolist(), words.tolist(), strict=True):
        state = key & MASK
        for word in row:
            state, expected = splitmix(state)
            assert word & MASK == expected


def test_draws_depend_on_seed_purpose_and_image_alone() -> None:
    def normal(seed: int, purpose: str, indices: list[int]) -> torch.Tensor:
        return Draws(seed, purpose, torch.tensor(indices)).normal(3, 5)

    together = normal(1, "fog 1", [0, 1, 2, 3])
    assert torch.equal(normal(1, "fog 1", [3, 1]), together[[3, 1]])
    others = [normal(2, "fog 1", [0]), normal(1, "fog 2", [0]), normal(1, "fog 1", [1]), normal(-1, "fog 1", [0])]
    for other in [*others, normal(2**70, "fog 1", [0])]:
        assert (other != together[:1]).all()


def test_distributions() -> None:
    draws = Draws(0, "test", torch.arange(64))
    normal = draws.normal(3, 32, 33).numpy()
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(normal[:, 0, 0].mean(axis=1) * np.sqrt(33), "norm").pvalue > 1e-3
    uniform = draws.uniform(-45, 45, 3000).numpy()
    assert stats.kstest((uniform.ravel() + 45) / 90, "uniform").pvalue > 1e-3
    assert uniform.min() >= -45
    assert uniform.max() < 45
    counts = np.bincount(draws.integers(-2, 5, 3000).numpy().ravel() + 2)
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 1e-3


def test_images_and_neighbours_are_independent() -> None:
    normal = Draws(0, "test", torch.arange(200)).normal(400).double()
    between_images = torch.corrcoef(normal)
    between_places = torch.corrcoef(normal.T)
    for matrix, samples in ((between_images, 400), (between_places, 200)):
        off = matrix - torch.eye(len(matrix))
        assert off.abs().max() < 6 / samples**0.5
        assert abs(off.std().item() * samples**0.5 - 1) < 0.1
