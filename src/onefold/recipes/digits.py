"""The demo's setting: hand-written digits of 8 x 8 pixels, 400 to learn from, on a CPU."""

from __future__ import annotations

from onefold.recipe import DataRecipe, DistillRecipe, OptimRecipe, Recipe


def digits() -> Recipe:
    """A thin WideResNet on the digits inside the package, with the paper's settings for CIFAR where time allows.

    Epochs, batch size and decay were chosen by the validation split, from some that two cores manage in the demo's
    time. The paper's decay, 0.0005, has tens of thousands of steps to hold LatentBE's factors near one; in these 260
    it hardly acts, and of some seeds the averaged network was poor. The 200 images of the validation split do not
    tell epochs apart, so that only the last network is evaluated, and kept.
    """
    epochs = 20
    return Recipe(
        name="digits",
        network="wrn10x1",
        members=4,
        epochs=epochs,
        data=DataRecipe(source="digits"),
        optim=OptimRecipe(lr=0.1, momentum=0.9, weight_decay=2e-3, batch_size=32, warmup_epochs=5, warmup_start=0.01),
        distill=DistillRecipe(alpha=1.0, temperature=4.0),
        device="cpu",
        eval_every=epochs,
    )
