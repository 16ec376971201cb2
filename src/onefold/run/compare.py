"""Whether two run folders, or a folder and a call, are of the same run: what may differ, and what differs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

# Fields that may differ when a run is resumed, because they change no result: where it runs, how its data get there.
FREE = {"name", "device", "data.root", "data.download", "data.workers", "minutes", "run.teachers"}
FREE |= {"parallel.mode", "parallel.teachers", "diversity_every", "run.taught_by"}
FREE |= {"run.network_file", "run.data_place"}
NETWORKS = ("network", "run.network")
ADDED = {"eval_last": 1}  # fields that older recipes lack, with the value that describes what was done then
CONTENT, EXAMPLES, STANDARDIZED = "run.network_content", "run.data_content.", "run.standardized"
PREPROCESSING = "run.preprocessing."
GLANCES, GIVEN = "run.glances.", "run.given."  # from Python: samples of the data, and fingerprints of user objects
APART = 0.02  # tolerance for the mean of an example, in its deviations: libraries decode images slightly differently
TAUGHT = "run.teachers_trained."  # only for reports; teachers are compared by their weights
DATA, PLACE = ("data.source", "run.data"), "run.data_place"
RATES = "run.optimizer.groups"
MISSING = object()
OTHER = {
    "network": "the network has other layers, or layers with other settings",
    "scheduler": "the scheduler has other settings",
}


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
    since = (EXAMPLES, PREPROCESSING, STANDARDIZED, GLANCES, GIVEN)  # older folders lack these
    different = [n for n in different if not n.startswith(since) or (n in before and n in now)]
    teacher = before.get("run.kind") == now.get("run.kind") == "teacher"
    if before.get(PLACE) is not None and before[PLACE] == now.get(PLACE):
        different = [n for n in different if n not in DATA]  # the same file under another path
    if before.get(CONTENT) is not None and before[CONTENT] == now.get(CONTENT):  # a network's file, renamed
        different = [n for n in different if n not in NETWORKS or made_by(before.get(n)) != made_by(now.get(n))]
    return [f"{n}: {told(n)}" for n in different if not free(n, teacher)]


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


def same_example(before: list[float], now: list[float]) -> bool:
    """Whether two rows of label, mean and deviation can be of the same example; random examples have only a label."""
    if before[0] != now[0] or len(before) == 1 or len(now) == 1:
        return before[0] == now[0]
    return all(abs(a - b) <= APART * max(before[2], now[2]) for a, b in zip(before[1:], now[1:], strict=True))


def free(name: str, teacher: bool) -> bool:
    """Whether a field changes no result. A teacher learns from labels, with its own seed, so neither the number of
    other teachers nor the settings of distillation affect it."""
    return name in FREE or name.startswith(TAUGHT) or (teacher and (name == "members" or name.startswith("distill.")))


def made_by(network: object) -> str:
    """The name of a user's network class or function, without the file or module it is in."""
    return str(network).rpartition(":")[2]


def leaves(record: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Every field by its dotted name."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        found |= leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def as_json(content: dict[str, Any]) -> dict[str, Any]:
    """The content as it will be read back from JSON, where tuples become lists."""
    read: dict[str, Any] = json.loads(json.dumps(content))
    return read


def teachers_hash(weights: Iterable[str]) -> str:
    """Identifies a list of teachers: a hash over the hashes of their weights, in order."""
    return hashlib.blake2b("".join(weights).encode(), digest_size=16).hexdigest()
