"""What a training run saves as it goes: in a folder, or in memory if there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from onefold.engine.distributed.world import ALONE, World
from onefold.engine.keeping import checkpoint
from onefold.engine.keeping.event_files import EventFiles
from onefold.engine.keeping.writer import Writer
from onefold.run import RunFolder


class Keeper:
    """Keeps the last checkpoint, the best weights and the log; `events` may mirror the log as event files.

    The file of the best weights has its step in its name, and the last checkpoint records which one counts: if the
    process dies between the two writes, they still match. With several processes, only the first writes, and it reads
    for all.

    Both are written by a thread, from copies, while training goes on. Anything that reports a checkpoint as saved waits
    for the writes first, and so does leaving the context.
    """

    def __init__(self, run: RunFolder | None, world: World = ALONE, events: EventFiles | None = None) -> None:
        self.run, self.world, self.events = run, world, events
        self.memory: dict[str, Tensor] = {}
        self.writer = Writer()

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, kind: object, failure: BaseException | None, trace: object) -> None:
        try:
            self.writer.wait()
        except Exception as error:
            if failure is None:
                raise
            if error is not failure:
                failure.add_note(str(error))

    def wait(self) -> None:
        """Waits, in all processes, until everything saved so far is on disk."""
        self.world.first(self.writer.wait)

    def last(self) -> Path | None:
        """The path of the last checkpoint, once it is completely on disk; None if there is none."""
        self.writer.wait()
        path = None if self.run is None else self.run.checkpoints / "last.safetensors"
        return path if path is not None and path.exists() else None

    def save_last(self, state: dict[str, Any], best: int | None) -> None:
        """Replaces the last checkpoint, which refers to the best weights of step `best`; others are deleted."""
        if self.run is None or self.world.rank:
            return
        self.writer.make_room()
        write = checkpoint.written_later(self.run.checkpoints / "last.safetensors", state)
        self.writer.later(partial(self._replace_last, self.run, write, None if best is None else self._best(best)))

    def _replace_last(self, run: RunFolder, write: Callable[[], None], best: Path | None) -> None:
        run.sync_metrics()  # a resumed run does not log what came before this checkpoint again
        write()
        for path in run.checkpoints.glob("best-*.safetensors"):
            if path != best:
                path.unlink()

    def load_last(self) -> dict[str, Any] | None:
        """The state to resume from, or None; the log is truncated to match it."""
        return None if self.run is None else self.world.first(self._load_last)

    def _load_last(self) -> dict[str, Any] | None:
        assert self.run is not None
        last = self.last()
        state = None if last is None else checkpoint.load(last)
        best = None if state is None or state["best"] is None else self._best(state["best"]["step"])
        if best is not None and not best.exists():
            # The folder was copied while its files were being replaced. Fail now, not at the end of training.
            raise ValueError(
                f"{best} does not exist, although last.safetensors refers to it; copy the folder again, or remove "
                f"{best.parent} to start over"
            )
        self.run.rewind(0 if state is None else state["step"])
        if self.events is not None:
            self.events.begin(self.run.metrics())
        return state

    def save_best(self, step: int, student: nn.Module) -> None:
        if self.run is None:
            self.memory = {name: value.detach().clone() for name, value in student.state_dict().items()}
        elif self.world.rank == 0:
            self.writer.make_room()
            state = {"step": step, "student": dict(student.state_dict())}
            self.writer.later(checkpoint.written_later(self._best(step), state))

    def load_best(self, step: int, student: nn.Module) -> None:
        if self.run is None:
            student.load_state_dict(self.memory)
        else:
            student.load_state_dict(self.world.first(lambda: checkpoint.load(self._best(step))["student"]))

    def log(self, record: dict[str, Any]) -> None:
        self.writer.look()
        if self.run is not None and self.world.rank == 0:
            self.run.log(record)
        if self.events is not None:
            self.events.add(record)

    def _best(self, step: int) -> Path:
        assert self.run is not None
        return self.run.checkpoints / f"best-{step:08d}.safetensors"
