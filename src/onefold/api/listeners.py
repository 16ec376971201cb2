"""Where the progress of a training run is shown."""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Iterator

from onefold.engine import Progress
from onefold.engine.progress import LOG


def check_progress(progress: object) -> None:
    if not isinstance(progress, bool | None) and not (hasattr(progress, "update") and hasattr(progress, "message")):
        raise ValueError(
            f"progress: expected True, False, None or an object with update and message, got {type(progress).__name__}"
        )


@contextlib.contextmanager
def showing(progress: Progress | bool | None, title: str, rank: int) -> Iterator[Progress | None]:
    """The object that shows the progress of a run; None if only the log does."""
    if not isinstance(progress, bool | None):
        yield progress
        return
    logged = LOG.isEnabledFor(logging.INFO) and LOG.hasHandlers()
    if rank or progress is False or (progress is None and logged):
        yield None
        return
    drawn = random.getstate()
    from onefold.terminal import attended, display

    random.setstate(drawn)  # importing rich draws from `random`, which the user's data may depend on
    if progress is None and not attended():
        yield None
        return
    with display() as shown:
        yield shown.stage(title)
