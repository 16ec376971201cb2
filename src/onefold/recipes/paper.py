"""The settings of the paper's experiments (its appendix on training details and on KD).

Evaluated are the end of every tenth of the training and each epoch of the last tenth; the one with the best validation
accuracy is served. The paper does not specify this, but its authors' code does so. Before the last tenth, the learning
rate is still high, and a lucky epoch may be slightly more accurate but far less calibrated.
"""

from __future__ import annotations

from onefold.recipe import DataRecipe, DistillRecipe, OptimRecipe, Recipe


def cifar10() -> Recipe:
    """WRN28x1 on CIFAR-10; in the paper with 4 and with 8 teachers."""
    return cifar("cifar10", "wrn28x1")


def cifar100() -> Recipe:
    """WRN28x4 on CIFAR-100; in the paper with 4 and with 2 teachers."""
    return cifar("cifar100", "wrn28x4")


def tiny_imagenet_r18() -> Recipe:
    """ResNet-18 on TinyImageNet, 4 teachers."""
    return tiny_imagenet("tiny-imagenet-r18", "resnet18-small")


def tiny_imagenet_wrn() -> Recipe:
    """WRN28x4 on TinyImageNet, 4 teachers."""
    return tiny_imagenet("tiny-imagenet-wrn", "wrn28x4")


def imagenet() -> Recipe:
    """ResNet-50 on ImageNet-1k, 2 teachers."""
    return Recipe(
        name="imagenet",
        network="resnet50",
        members=2,
        epochs=100,
        data=DataRecipe(source="imagenet"),
        optim=OptimRecipe(lr=0.1, momentum=0.9, weight_decay=1e-4, batch_size=256, warmup_epochs=5, warmup_start=0.01),
        distill=DistillRecipe(alpha=1.0, temperature=1.0),
        eval_every=10,
        eval_last=10,
    )


def cifar(source: str, network: str) -> Recipe:
    return Recipe(
        name=source,
        network=network,
        members=4,
        epochs=200,
        data=DataRecipe(source=source),
        optim=OptimRecipe(lr=0.1, momentum=0.9, weight_decay=5e-4, batch_size=128, warmup_epochs=5, warmup_start=0.01),
        distill=DistillRecipe(alpha=1.0, temperature=4.0),
        eval_every=20,
        eval_last=20,
    )


def tiny_imagenet(name: str, network: str) -> Recipe:
    return Recipe(
        name=name,
        network=network,
        members=4,
        epochs=80,
        data=DataRecipe(source="tiny-imagenet"),
        optim=OptimRecipe(lr=0.1, momentum=0.9, weight_decay=5e-4, batch_size=128, warmup_epochs=5, warmup_start=0.01),
        distill=DistillRecipe(alpha=0.9, temperature=20.0),
        eval_every=8,
        eval_last=8,
    )
