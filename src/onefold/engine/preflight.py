"""Checks of everything a training run is given, before its first step."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from onefold.data import Arrays, Augmentation, Split, loader_for, targets_of
from onefold.data.compare import FEW, check_scale, class_notes, looked_at, range_notes, scale_notes
from onefold.data.given import batching, examples_of, samplers_of, steps_of
from onefold.data.sample import sample
from onefold.data.split import check_range, first_few
from onefold.engine.blame import blaming, of_one_type, told
from onefold.engine.differentiable import check_differentiable
from onefold.methods import AnyStudent
from onefold.perturb import none
from onefold.perturb.direction import check_inputs
from onefold.signatures import taken
from onefold.types import check_classes, check_labels, check_two

if TYPE_CHECKING:
    from onefold.engine.step import Loss
    from onefold.engine.training import Job

EXAMPLES = 8


def example_of(
    split: Split, augment: Augmentation | None, device: torch.device, name: str = "train"
) -> tuple[Tensor, Tensor]:
    """The first examples of a split, as evaluation sees them."""
    check_finite_inputs(name, split)
    loader = loader_for(split, EXAMPLES, train=False, augment=augment, device=device, workers=0)
    for x, labels in loader.batches():
        if x.is_floating_point() and not bool(x[:EXAMPLES].isfinite().all()):
            raise ValueError(f"{name}: expected finite inputs, got NaN or infinite values in the first examples")
        return x[:EXAMPLES], labels[:EXAMPLES]
    raise ValueError(f"{name}: expected at least one batch, got none")


def check_finite_inputs(name: str, split: Split) -> None:
    """Refuses arrays with non-finite values, listing the indices of the examples."""
    if not isinstance(split, Arrays) or not split.x.is_floating_point():
        return
    odd = (~split.x.isfinite().flatten(1).all(dim=1)).nonzero().flatten().tolist()
    if odd:
        raise ValueError(
            f"{name}: expected finite inputs, got NaN or infinite values in {len(odd):,} examples: {first_few(odd)}; "
            "fix or remove them"
        )


def check_loaders(job: Job) -> None:
    """Refuses a user's `DataLoader` that gives every process the same training batches, or only part of a split for
    evaluation; and one for training whose epochs have no known length."""
    if isinstance(job.train, DataLoader):
        steps_of(job.train)
        examples_of(job.train)
    if job.world.size == 1:
        return
    size, rank = job.world.size, job.world.rank
    for name, split in {"train": job.train, "val": job.val, "test": job.test}.items():
        if not isinstance(split, DataLoader):
            continue
        samplers = [sampler for sampler in samplers_of(split) if hasattr(sampler, "num_replicas")]
        share = (getattr(samplers[0], "rank", 0), samplers[0].num_replicas) if samplers else (0, 1)
        if name == "train" and share != (rank, size):
            raise ValueError(
                f"train: expected a DataLoader with a DistributedSampler(num_replicas={size}, rank={rank}), so that "
                f"each of the {size} processes has its part, got one without; or give its Dataset, which is shared out"
            )
        if name != "train" and share != (0, 1):
            raise ValueError(
                f"{name}: expected a DataLoader over the whole split, which every process evaluates, got one with a "
                "DistributedSampler; or give its Dataset, which is shared out"
            )


def check_job(job: Job, student: AnyStudent, loss: Loss, x: Tensor, labels: Tensor) -> int:
    """Runs student, teachers and loss once without side effects, checks what they return, and returns the number of
    classes."""
    if not any(parameter.requires_grad for parameter in student.parameters()):
        raise ValueError("net: expected weights to train, got none that require a gradient; do not freeze all of them")
    with torch.no_grad():
        with blaming("net", x, student):
            answers = student.at_rest(x)
        check_two("net", int(answers.shape[-1]))
        if job.teachers is not None:
            check_weights(job.teachers)
            with blaming("teachers", x, job.teachers):
                targets = job.teachers(x)
            check_two("teachers", int(targets.shape[-1]))
            check_classes(answers, targets)
            check_are_logits("teachers", targets)
    check_are_logits("net", answers)
    classes = int(answers.shape[-1])
    for name, split in {"train": job.train, "val": job.val, "test": job.test}.items():
        if split is not None:
            check_labels_of(name, split, classes)
    check_differentiable(job, x)
    with torch.no_grad():
        value = loss(x, labels)
    if not bool(value.isfinite()):
        raise ValueError(f"train: expected a finite loss before the first step, got {float(value)}; check the inputs")
    check_evaluated(job, student, classes)
    check_smallest_batch(job, student, x)
    return classes


def check_weights(teachers: nn.Module) -> None:
    """Refuses teachers with state that is not ordinary tensors, because a run identifies them by a hash of it."""
    for name, value in teachers.state_dict().items():
        if not isinstance(value, Tensor) or value.is_quantized:
            kind = "a quantised tensor" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise ValueError(
                f"teachers: expected weights that are tensors of numbers, got {kind} as {name}; give the "
                "networks before quantisation"
            )


def check_are_logits(name: str, answers: Tensor) -> None:
    """Refuses probabilities, which another softmax would flatten."""
    rows = answers.float().flatten(0, -2)
    if rows.shape[-1] > 1 and bool((rows >= 0).all()) and bool(((rows.sum(-1) - 1).abs() < 1e-3).all()):
        raise ValueError(
            f"{name}: expected logits, got probabilities: no output is negative, and those of an example sum to one; "
            "give the network without its softmax"
        )


def check_evaluated(job: Job, student: AnyStudent, classes: int) -> None:
    """Runs the network on the first examples of val and test now, rather than failing after the first epoch."""
    for name, split in {"val": job.val, "test": job.test}.items():
        if split is None:
            continue
        x, labels = example_of(split, job.augment, job.device, name)
        try:
            check_labels(labels, classes, x.shape[0])
            with torch.no_grad():
                student.at_rest(x)
        except (RuntimeError, ValueError, IndexError) as error:
            advice = f"; {remedy}" if (remedy := of_one_type(x, student)) else ""
            raise ValueError(
                f"{name}: expected inputs and labels like those of train, got {x.dtype} {list(x.shape)} and "
                f"{labels.dtype} {list(labels.shape)}: {told(error)}{advice}"
            ) from error


def check_alike(job: Job, classes: int) -> None:
    """Warns of likely mistakes in splits given from Python; refuses float arrays that are certainly preprocessed
    differently from those of train."""

    def look() -> list[str]:
        given = {"train": job.train, "val": job.val, "test": job.test}
        splits = {name: split for name, split in given.items() if split is not None}
        seen = {name: x for name, split in splits.items() if (x := examples(split, job.augment)) is not None}
        seen = {name: x for name, x in seen.items() if x.is_floating_point()}  # token indices have no scale
        labels = {name: found for name, split in splits.items() if (found := targets_of(split)) is not None}
        notes = []
        if "train" in seen and not all(images(split) for split in splits.values()):
            arrays = {name: x for name, x in seen.items() if isinstance(splits[name], Arrays)}
            if "train" in arrays:
                check_scale(arrays)
            notes += scale_notes(seen) + range_notes(seen)
        return notes + (class_notes(labels, [str(label) for label in range(classes)]) if "train" in labels else [])

    for note in job.world.first(look):
        job.say(note)


def images(split: Split) -> bool:
    """Whether it holds uint8 images, whose scale is the same in all splits."""
    return isinstance(split, Arrays) and split.images


def examples(split: Split, augment: Augmentation | None) -> Tensor | None:
    """Some examples from all over a split, on the CPU; None for a `DataLoader`, whose first may all be of one kind."""
    if isinstance(split, Arrays):
        return looked_at(split)
    some = sample(split, FEW)
    if some is None:
        return None
    return next(loader_for(some, FEW, train=False, augment=augment, workers=0).batches())[0]


def check_labels_of(name: str, split: Split, classes: int) -> None:
    """Refuses labels outside the classes, if the labels can be had without reading every example."""
    labels = targets_of(split)
    if labels is not None:
        try:
            check_range(labels, range(classes), (name + "[{}]").format)
        except ValueError as error:
            raise ValueError(f"{name}: {error}; the network has {classes} classes") from None


def check_space(job: Job, x: Tensor) -> None:
    """Refuses inputs that a perturbation cannot move or would clip, such as normalised images outside [0, 1].

    A perturbation of the user's own that takes no `space` knows by itself what it does, to tokens for example.
    """
    perturb = job.perturbation.perturb
    if perturb is none or not taken(perturb, ["space"]):
        return
    check_inputs(x, job.space)
    job.space.check(x)  # also on a GPU, because this runs only once
    if isinstance(job.train, Arrays) and job.train.x.is_floating_point():
        job.space.check(torch.stack([job.train.x.amin(0), job.train.x.amax(0)]))  # the extremes of all examples


def check_smallest_batch(job: Job, student: AnyStudent, x: Tensor) -> None:
    """Refuses batch sizes that leave a batch of one example, if BatchNorm could not normalise it."""
    optim, (count, batch, drop_last) = job.settings.optim, planned(job)
    if not batch:
        return
    sizes = [min(batch, count), *([count % batch] if count % batch and not drop_last else [])]
    smallest = min(job.world.smallest_piece(size, optim.accumulate) for size in sizes)
    if smallest > 1:
        return
    try:
        with torch.no_grad():
            copy.deepcopy(student).train()(x[:1])
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise ValueError(
            f"batch_size: {count} examples in batches of {batch} (processed in "
            f"{optim.accumulate} parts) leave a single one for BatchNorm, which needs two; choose another batch_size"
        ) from None


def planned(job: Job) -> tuple[int, int, bool]:
    """The number of examples, the batch size, and whether a partial batch is dropped; zeros if unknown."""
    if not isinstance(job.train, DataLoader):
        known = len(job.train) if hasattr(job.train, "__len__") else 0
        return known, job.settings.optim.batch_size if known else 0, job.settings.optim.drop_last
    return batching(job.train)
