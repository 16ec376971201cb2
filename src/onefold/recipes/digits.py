"""The demo's setting: hand-written digits of 8 x 8 pixels, 400 to learn from, on a CPU."""

from __future__ import annotations

from onefold.recipe import DataRecipe, DistillRecipe, OptimRecipe, Recipe


def digits() -> Recipe:
    """A thin WideResNet on the digits inside the package."""
    return Recipe(
        name="digits",
        network="wrn10x1",
        members=4,
        epochs=40,
        data=DataRecipe(source="digits"),
        optim=OptimRecipe(lr=0.1, weight_decay=5e-4, batch_size=64, warmup_epochs=5),
        distill=DistillRecipe(alpha=1.0, temperature=4.0),
        device="cpu",
        eval_every=40,  # 200 validation images do not tell epochs apart: the last network is kept
    )
