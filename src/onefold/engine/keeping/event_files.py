"""TensorBoard event files with the contents of metrics.jsonl."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onefold.install import install

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER = "tensorboard"
FLUSH = 10  # seconds
TRAIN = ("loss", "lr")
NOT_METRICS = ("kind", "step", "epoch")


def check_log(log: str | None, out: Path | str | None) -> None:
    """Refuses a log that could not be written, before any training."""
    if log is None:
        return
    if log != "tensorboard":
        raise ValueError(f"log: expected 'tensorboard' or None, got {log!r}")
    if out is None:
        raise ValueError("log: event files are written into the run folder, got none; give out='runs/mine', too")
    if importlib.util.find_spec("tensorboard") is None:
        raise ValueError(f"log: the package tensorboard is not installed; run: {install('tensorboard')}")


@contextlib.contextmanager
def event_files(log: str | None, run: Path, examples_a_step: float) -> Iterator[EventFiles | None]:
    """The event files of a run folder, or None if none are requested."""
    if log is None:
        yield None
        return
    events = EventFiles(run / FOLDER, examples_a_step)
    try:
        yield events
    finally:
        events.close()


def is_number(value: object) -> bool:
    return isinstance(value, int | float)


class EventFiles:
    """Scalars by step, rewritten from the log whenever a run resumes, so that no point is duplicated or missing."""

    def __init__(self, folder: Path, examples_a_step: float) -> None:
        self.folder, self.examples_a_step = folder, examples_a_step
        self.writer: SummaryWriter | None = None
        self.last = (0, 0.0)  # step and seconds of training at the last record
        self.start = time.time()  # when training would have started if it had never been interrupted

    def begin(self, records: Sequence[dict[str, Any]]) -> None:
        """Starts over with what has been logged so far."""
        from torch.utils.tensorboard import SummaryWriter  # needs the extra "tensorboard"

        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.writer = SummaryWriter(str(self.folder), flush_secs=FLUSH)
        self.last = 0, 0.0
        self.start = time.time() - max((record.get("seconds", 0.0) for record in records), default=0.0)
        for record in records:
            self.add(record)

    def add(self, record: dict[str, Any]) -> None:
        assert self.writer is not None, "begun before the first step"
        step, kind = record["step"], record["kind"]
        before, then = self.last
        if kind == "train":
            values = {name: record[name] for name in TRAIN}
            seconds = record["seconds"]
            if seconds > then:
                values["examples_per_second"] = (step - before) * self.examples_a_step / (seconds - then)
            self.last = step, seconds
        else:
            values = {name: value for name, value in record.items() if name not in NOT_METRICS and is_number(value)}
        for name, value in values.items():
            self.writer.add_scalar(f"{kind}/{name}", value, step, walltime=self.start + self.last[1])

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None
