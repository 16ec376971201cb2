"""The full averaging health check: on the test split, with statistics of many training images."""

from __future__ import annotations

from typing import Any

from onefold.engine.averaging import averaging_health, warning_of
from onefold.engine.measure.inputs import RunData
from onefold.engine.measure.progress import Counting
from onefold.engine.measure.subject import Subject

NAME = "health"
SPLIT = "test"
IMAGES = 50_000  # training images for BatchNorm statistics


def health(subject: Subject, data: RunData, progress: Counting) -> str | None:
    """Runs and stores the check, which replaces the one on the validation split from the end of training."""
    if subject.student is None:
        return f"health: {subject.no_members}, so there is nothing to average"
    store = subject.main.store
    stored = store.stored(NAME)
    if stored is not None and stored.get("split") == SPLIT:
        progress.message(f"health: already stored for {subject.path}")
        return None
    train, test = data.sampled("train", IMAGES, train=True), data.test()
    done, total = 0, len(train)

    def inputs() -> Any:
        nonlocal done
        for x, _ in train.batches():
            yield x
            done += 1
            progress.count(done, total)

    found = averaging_health(subject.student, test, inputs(), subject.classes)
    averaged = subject.served.members == 1  # a BE student is served member by member, so no warning is needed
    python = subject.about.get("kind") == "python"
    warning = warning_of(found, SPLIT, python=python) if averaged else None
    found |= {"split": SPLIT, "images": train.examples, "warning": warning}
    store.write(NAME, found)
    if found["warning"] is not None:
        progress.message(f"{subject.path}: {found['warning']}")
    return None
