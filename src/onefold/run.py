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
import errno
import fcntl
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePath
from typing import IO, Any

from onefold.predictions import Labels, Logits, whole, write_plain

ASIDE = ".writing"
# Fields that may differ when a run is resumed, because they change no result: where it runs, how its data get there.
FREE = {"name", "device", "data.root", "data.download", "data.workers", "minutes", "run.teachers"}
FREE |= {"parallel.mode", "parallel.teachers", "diversity_every", "run.taught_by"}
FREE |= {"run.network_file", "run.data_place"}
NETWORKS = ("network", "run.network")
ADDED = {"eval_last": 1}  # fields that older recipes lack, with the value that describes what was done then
CONTENT, EXAMPLES, STANDARDIZED = "run.network_content", "run.data_content.", "run.standardized"
GLANCES, GIVEN = "run.glances.", "run.given."  # from Python: samples of the data, and fingerprints of user objects
APART = 0.02  # tolerance for the mean of an example, in its deviations: libraries decode images slightly differently
TAUGHT = "run.teachers_trained."  # only for reports; teachers are compared by their weights
DATA, PLACE = ("data.source", "run.data"), "run.data_place"
RATES = "run.optimizer.groups"
PROBE = 1 << 16  # bytes
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
MISSING = object()
OTHER = {
    "network": "the network has other layers, or layers with other settings",
    "scheduler": "the scheduler has other settings",
}


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

    def begin(self, recipe: dict[str, Any], run: dict[str, Any], env: dict[str, Any], needed: int = 0) -> None:
        """Creates the folder, or checks that the run in it has the same recipe; refuses runs that would fail later.

        `needed` is how many bytes the run will write. Half-written files of a killed run are deleted, unless another
        process is still writing them.
        """
        self.check_same(recipe, run)
        with self.held():
            self.check_same(recipe, run)  # another process may have started one in the meantime
            self._probe(needed)
            for leftover in (*self.path.glob(f"*{ASIDE}"), *self.path.glob(f"*/*{ASIDE}")):
                leftover.unlink()
            fresh = not self.started  # without a recipe.json, other files are leftovers of a failed start: overwrite
            for name, content in (("env.json", env), ("run.json", run), ("recipe.json", recipe)):
                if fresh or not (self.path / name).exists():
                    self.write_json(name, content)

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

    def check_same(self, recipe: dict[str, Any], run: dict[str, Any]) -> None:
        """Refuses a recipe other than the one the run was started with; fields that change no result may differ."""
        if not self.started:
            kept = os.path.isdir(self.checkpoints) and any(self.checkpoints.glob("*.safetensors"))
            if kept or os.path.exists(self.model):
                raise ValueError(f"out: {self.path} holds other files and no recipe.json; choose another folder")
            return
        before = ADDED | leaves(self.recipe) | leaves(self.about, "run.")
        now = ADDED | leaves(as_json(recipe)) | leaves(as_json(run), "run.")
        different = differences(before, now)
        if different:
            listed = "\n".join(f"  {line}" for line in different)
            raise ValueError(
                f"{self.path} was begun with another recipe; choose another folder with --out (out= in Python), or "
                f"undo what differs:\n{listed}"
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
            raise ValueError(f"{self.path} is not a finished run; run its command again to go on with it")
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


def check_room(path: Path, needed: int, why: str) -> None:
    """Refuses a folder, which need not exist yet, whose disk has too few bytes left."""
    there = nearest_there(path)
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        raise unwritable(path, error) from None
    if free < needed:
        raise ValueError(
            f"out: {path} has {megabytes(free)} MB free and {why} {megabytes(needed)} MB; "
            "make room or choose another folder"
        )


def check_places(runs: Iterable[RunFolder]) -> None:
    """Refuses unfinished runs whose folder cannot be written."""
    for run in runs:
        if not run.finished:
            check_folder(run.path)


def check_folder(path: Path, name: str = "out") -> None:
    """Refuses a folder that cannot be written or created, before any time is spent on it."""
    check_made(path, path, name, "folder")


def check_file(path: Path, name: str = "out") -> None:
    """The same for a file, whose folder need not exist yet."""
    check_made(path, path.parent, name, "file")


def check_made(path: Path, folder: Path, name: str, kind: str) -> None:
    there = nearest_there(folder)
    try:  # by trying: permissions do not tell everything, and do not apply to root
        with tempfile.TemporaryDirectory(prefix=".onefold-", dir=there, ignore_cleanup_errors=True):
            pass
    except OSError as error:
        remedy = "make room or choose" if error.errno in FULL else "choose"
        raise ValueError(
            f"{name}: cannot write to {path}, because nothing can be made in {there} ({error.strerror}); "
            f"{remedy} another {kind}"
        ) from None


def nearest_there(path: Path) -> Path:
    """The folder itself, or its nearest parent that exists."""
    return next((place for place in (path, *path.absolute().parents) if os.path.exists(place)), path)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f}" if count < 10e6 else f"{count / 1e6:,.0f}"


def unwritable(path: Path, error: OSError) -> ValueError:
    remedy = "make room" if error.errno in FULL else "make it writable"
    return ValueError(f"out: cannot write to {path} ({error.strerror}); {remedy} or choose another folder")


def logged_by(line: bytes, step: int) -> bool:
    """Whether a line of the log is valid, from no later than a step, and not a result."""
    try:
        record = json.loads(line)
        return bool(record["step"] <= step and record["kind"] != "result")
    except (ValueError, TypeError, LookupError):
        return False


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the path to an OSError: by itself, a write that fails does not say which file it was."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def write_aside(path: Path, content: bytes | Callable[[IO[bytes]], object]) -> None:
    """Writes a file atomically: at every moment there is either the complete old file or the complete new one.

    Content that does not fit into memory is given as a function that writes it.
    """
    aside = path.with_name(path.name + ASIDE)
    try:
        with naming(path):
            with aside.open("wb") as file:
                file.write(content) if isinstance(content, bytes) else content(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
            sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Makes a rename survive a crash: file names are stored in the folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def teachers_hash(weights: Iterable[str]) -> str:
    """Identifies a list of teachers: a hash over the hashes of their weights, in order."""
    return hashlib.blake2b("".join(weights).encode(), digest_size=16).hexdigest()


def as_json(content: dict[str, Any]) -> dict[str, Any]:
    """The content as it will be read back from JSON, where tuples become lists."""
    read: dict[str, Any] = json.loads(json.dumps(content))
    return read


def leaves(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every field by its dotted name."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What differs between two sets of leaves, one line per field."""

    def shown(fields: dict[str, Any], name: str) -> str:
        return repr(fields[name]) if name in fields else "(not there)"

    def told(name: str) -> str:
        if name == CONTENT and name in before and name in now:
            return "the file of the network, or one that it imports, has changed"  # hashes would not help the user
        if name.startswith((EXAMPLES, GLANCES)):
            return "these are other examples, or other labels"
        if name.startswith(GIVEN):
            return OTHER.get(name.removeprefix(GIVEN), "its code, or a value that it uses, has changed")
        return f"{shown(before, name)} -> {shown(now, name)}"

    different = [n for n in {**before, **now} if not same(n, before.get(n, MISSING), now.get(n, MISSING))]
    since = (EXAMPLES, STANDARDIZED, GLANCES, GIVEN)  # older folders lack these
    different = [n for n in different if not n.startswith(since) or (n in before and n in now)]
    teacher = before.get("run.kind") == now.get("run.kind") == "teacher"
    if before.get(PLACE) is not None and before[PLACE] == now.get(PLACE):
        different = [n for n in different if n not in DATA]  # the same file under another path
    if before.get(CONTENT) is not None and before[CONTENT] == now.get(CONTENT):  # a network's file, renamed
        different = [n for n in different if n not in NETWORKS or made_by(before.get(n)) != made_by(now.get(n))]
    return [f"{n}: {told(n)}" for n in different if not free(n, teacher)]


def same_example(before: list[float], now: list[float]) -> bool:
    """Whether two rows of label, mean and deviation can be of the same example; random examples have only a label."""
    if before[0] != now[0] or len(before) == 1 or len(now) == 1:
        return before[0] == now[0]
    return all(abs(a - b) <= APART * max(before[2], now[2]) for a, b in zip(before[1:], now[1:], strict=True))


def made_by(network: object) -> str:
    """The name of a user's network class or function, without the file or module it is in."""
    return str(network).rpartition(":")[2]


def free(name: str, teacher: bool) -> bool:
    """Whether a field changes no result. A teacher learns from labels, with its own seed, so neither the number of
    other teachers nor the settings of distillation affect it."""
    return name in FREE or name.startswith(TAUGHT) or (teacher and (name == "members" or name.startswith("distill.")))


def same(name: str, before: Any, now: Any) -> bool:
    """Whether two values are equal: settings of an optimizer up to float32 precision, in which some devices hold rates;
    a network's file by its name alone, because its content is compared separately; fingerprints only if they are of the
    same version; samples of data approximately."""
    if name in NETWORKS and isinstance(before, str) and isinstance(now, str):
        return PurePath(before).name == PurePath(now).name
    if name.startswith(GIVEN) and isinstance(before, str) and isinstance(now, str):
        version, _, content = before.partition(":")
        return version != now.partition(":")[0] or content == now.partition(":")[2]
    if name.startswith(GLANCES) and isinstance(before, list) and isinstance(now, list):
        return len(before) == len(now) and all(map(same_example, before, now))
    if before == now or name != RATES:
        return bool(before == now)
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return all(same(name, a, b) for a, b in zip(before, now, strict=True))
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        return all(same(name, before[key], now[key]) for key in before)
    try:
        return math.isclose(float(before), float(now), rel_tol=1e-6)
    except (TypeError, ValueError):
        return False
