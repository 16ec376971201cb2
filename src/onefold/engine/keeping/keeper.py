"""What is kept of a training while it runs: in a folder, or in memory where there is none."""

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
    """The last checkpoint, the best weights and the log, which `events` may repeat in a form of their own.

    The file of the best weights carries its step in its name, and the last checkpoint says which one counts: whatever
    comes between two writes, the two fit together. Of several processes the first alone writes, and reads for all.

    Both are written by a thread, from copies, while training goes on. Whoever says that something is kept waits for
    it first, and so does whoever leaves.
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
        """Until everything that was to be kept is on the disk, in all processes."""
        self.world.first(self.writer.wait)

    def last(self) -> Path | None:
        """The last checkpoint, if there is one, whole and on the disk."""
        self.writer.wait()
        path = None if self.run is None else self.run.checkpoints / "last.safetensors"
        return path if path is not None and path.exists() else None

    def save_last(self, state: dict[str, Any], best: int | None) -> None:
        """Replaces the last checkpoint; the weights of `best` are the ones it refers to."""
        if self.run is None or self.world.rank:
            return
        self.writer.make_room()
        write = checkpoint.written_later(self.run.checkpoints / "last.safetensors", state)
        self.writer.later(partial(self._replace_last, self.run, write, None if best is None else self._best(best)))

    def _replace_last(self, run: RunFolder, write: Callable[[], None], best: Path | None) -> None:
        run.sync_metrics()  # what was logged up to here is not logged again
        write()
        for path in run.checkpoints.glob("best-*.safetensors"):
            if path != best:
                path.unlink()

    def load_last(self) -> dict[str, Any] | None:
        """The state to go on from; the log is taken back to it."""
        return None if self.run is None else self.world.first(self._load_last)

    def _load_last(self) -> dict[str, Any] | None:
        assert self.run is not None
        last = self.last()
        state = None if last is None else checkpoint.load(last)
        best = None if state is None or state["best"] is None else self._best(state["best"]["step"])
        if best is not None and not best.exists():
            # A folder copied while its files were replaced. Said now, and not when training has ended.
            raise ValueError(
                f"{best} is not there, which last.safetensors beside it refers to; copy the folder again, or remove "
                f"{best.parent} to begin anew"
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
