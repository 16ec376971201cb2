"""The run folder: everything a run leaves behind, and the only thing that reports and comparisons read.

recipe.json         what was asked for
run.json            what this folder is: a teacher or a student, on which data, with which network
env.json            versions, hardware, commit
metrics.jsonl       a line for each logged interval of training steps and each evaluation; the result comes last
checkpoints/        last.safetensors, and best-STEP.safetensors
model.safetensors   the network that is served, as an ordinary state dict
predictions/        NAME.npz: labels [N] and log-probabilities [N, K] of an evaluated split; see onefold.predictions
result.json         written last: a folder that has it is finished
measurements/       NAME.json: what `onefold evaluate` measured in addition to the predictions; in a folder of
                    teachers also first-M/NAME.json, for the ensemble of the first M
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from onefold.predictions import Labels, Logits, whole, write_plain
from onefold.run.compare import ADDED, as_json, differences, leaves
from onefold.run.places import check_folder, check_room, unwritable
from onefold.run.writing import ASIDE, naming, write_aside

PROBE = 1 << 16  # bytes


class RunFolder:
    """A run folder, which need not exist yet."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser()

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def started(self) -> bool:
        return os.path.exists(self.path / "recipe.json")  # unlike pathlib's, False if permission is denied

    @property
    def finished(self) -> bool:
        return os.path.exists(self.path / "result.json")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    def begin(self, recipe: dict[str, Any], run: dict[str, Any], env: dict[str, Any], needed: int = 0) -> str | None:
        """Creates the folder, or checks that the run in it has the same recipe; refuses runs that would fail later.

        A run with another recipe that has saved nothing yet is replaced; the sentence that is returned then says so.
        `needed` is how many bytes the run will write. Half-written files of a killed run are deleted, unless another
        process is still writing them.
        """
        self.check_open(recipe, run)
        with self.held():
            self.check_open(recipe, run)  # another process may have started one in the meantime
            self._probe(needed)
            for leftover in (*self.path.glob(f"*{ASIDE}"), *self.path.glob(f"*/*{ASIDE}")):
                leftover.unlink()
            different = self.changes(recipe, run)
            # Without a recipe.json, other files are leftovers of a failed start: overwrite.
            fresh = not self.started or bool(different)
            for name, content in (("env.json", env), ("run.json", run), ("recipe.json", recipe)):
                if fresh or not (self.path / name).exists():
                    self.write_json(name, content)
        if not different:
            return None
        asked = [line for line in different if not line.startswith("run.")] or different  # the others follow from it
        return f"{self.path} had saved nothing yet and begins anew with what has changed: {'; '.join(asked)}"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Locks the folder against other processes; the system releases the lock however this process ends."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            opened = (self.path / ".lock").open("w")
        except OSError as error:
            raise unwritable(self.path, error) from None
        with opened as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise ValueError(f"{self.path} is in use by another process; wait for it, or stop it") from None
            except OSError:
                pass  # a file system that does not support locks
            yield

    @property
    def saved(self) -> bool:
        """Whether there are weights or a result that another run would overwrite."""
        kept = os.path.isdir(self.checkpoints) and any(self.checkpoints.glob("*.safetensors"))
        return kept or os.path.exists(self.model) or self.finished

    def check_open(self, recipe: dict[str, Any], run: dict[str, Any]) -> None:
        """Refuses a folder in which a run with this recipe can neither begin nor resume."""
        if self.saved:
            self.check_same(recipe, run)

    def changes(self, recipe: dict[str, Any], run: dict[str, Any]) -> list[str]:
        """What differs from the recipe that the run was started with, except for fields that change no result."""
        if not self.started:
            return []
        before = ADDED | leaves(self.recipe) | leaves(self.about, "run.")
        now = ADDED | leaves(as_json(recipe)) | leaves(as_json(run), "run.")
        return differences(before, now)

    def check_same(self, recipe: dict[str, Any], run: dict[str, Any]) -> None:
        """Refuses a recipe other than the one the run was started with; fields that change no result may differ."""
        if not self.started and self.saved and not self.finished:
            raise ValueError(f"out: {self.path} contains other files but no recipe.json; choose another folder")
        if different := self.changes(recipe, run):
            listed = "\n".join(f"  {line}" for line in different)
            raise ValueError(
                f"{self.path} was started with different settings; choose another folder with --out (out= in Python), "
                f"or change these back:\n{listed}"
            )

    @property
    def recipe(self) -> dict[str, Any]:
        """What was asked for."""
        return self.read_json("recipe.json")

    @property
    def about(self) -> dict[str, Any]:
        """What this folder is."""
        return self.read_json("run.json") if os.path.exists(self.path / "run.json") else {}

    @property
    def result(self) -> dict[str, Any]:
        """What came out; raises a ValueError if the run is not finished."""
        if not self.finished:
            raise ValueError(f"{self.path} is not a finished run; run its command again to resume")
        return self.read_json("result.json")

    def log(self, record: dict[str, Any]) -> None:
        """Adds a line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        with naming(path), path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def sync_metrics(self) -> None:
        """Flushes the log to the disk."""
        path = self.path / "metrics.jsonl"
        with naming(path), path.open("a") as file:
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, without a last one that was only partly written."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text().split("\n") if path.exists() else []
        records = []
        for number, line in enumerate(lines[:-1], 1):  # after the last newline there is a partial line or nothing
            try:
                records.append(json.loads(line))
            except ValueError:
                raise ValueError(f"{path}: expected JSON in line {number}, got {line[:80]!r}") from None
        return records

    def rewind(self, step: int) -> None:
        """Deletes what was logged after a step, and any result, so that the run can resume from there.

        Lines that are not valid JSON are deleted too: a power cut leaves gaps in what was not yet flushed to disk.
        """
        path = self.path / "metrics.jsonl"
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        kept = [line for line in lines if logged_by(line, step)]
        write_aside(path, b"".join(line + b"\n" for line in kept))

    def predictions_file(self, split: str) -> Path:
        return self.path / "predictions" / f"{split}.npz"

    def write_predictions(self, split: str, labels: Labels, logits: Logits) -> None:
        """Stores the labels `[N]` and predicted log-probabilities `[N, K]` of a split."""
        (self.path / "predictions").mkdir(exist_ok=True)
        write_aside(self.predictions_file(split), lambda file: write_plain(file, labels, logits))

    def predictions(self, split: str) -> tuple[Labels, Logits] | None:
        """Labels `[N]` and log-probabilities `[N, K]`, or None if the split was not evaluated."""
        return whole(self.predictions_file(split))

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        write_aside(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        if not path.exists():
            raise ValueError(f"{self.path} is not a run folder: expected {name} in it")
        try:
            content = json.loads(path.read_text())
        except ValueError:
            raise ValueError(f"{path}: expected JSON, got something else; was it edited?") from None
        if not isinstance(content, dict):
            raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
        return content

    def _probe(self, needed: int) -> None:
        """Tries to write, before hours are spent on results that could not be saved."""
        try:
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            write_aside(self.path / "probe", bytes(PROBE))
            (self.path / "probe").unlink()
        except OSError as error:
            raise unwritable(self.path, error) from None
        check_room(self.path, needed, "the run needs")


def check_places(runs: Iterable[RunFolder]) -> None:
    """Refuses unfinished runs whose folder cannot be written."""
    for run in runs:
        if not run.finished:
            check_folder(run.path)


def logged_by(line: bytes, step: int) -> bool:
    """Whether a line of the log is valid, from no later than a step, and not a result."""
    try:
        record = json.loads(line)
        return bool(record["step"] <= step and record["kind"] != "result")
    except (ValueError, TypeError, LookupError):
        return False
