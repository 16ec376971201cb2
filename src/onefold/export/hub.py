"""A folder for a model hub: weights, config.json, a program that runs without the network's source, and a model card
that says how to load the network and how good it is."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onefold.engine.networks.named import recorded
from onefold.engine.networks.own_network import is_own
from onefold.engine.networks.own_sources import INSTALLED, sources
from onefold.export.card import card
from onefold.export.deployed import Deployed
from onefold.export.program import program_bytes, traced
from onefold.export.weights import header_of, still_to_do, weights_bytes
from onefold.run import check_own_folder, holds_runs, in_export, write_aside

WEIGHTS, PROGRAM, CONFIG, CARD = "model.safetensors", "model.pt2", "config.json", "README.md"
NEW, MARK = f"{CARD}.new", "model_card_sha256"  # new card next to an edited one; hash of our card, in config.json
MAYBE = "may have been edited, or be of an older version,"  # which wrote no hash


def check_hub(folder: Path) -> None:
    """Refuses a folder of runs, and one whose files would be replaced although they are not ours."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out: {folder} is a file; name a folder")
    check_own_folder(folder)
    if holds_runs(folder):
        raise ValueError(f"out: {folder} holds runs; choose a folder for the export alone")
    check_replaced(folder, [Path(name) for name in (WEIGHTS, PROGRAM, CONFIG)])


def check_replaced(folder: Path, places: Iterable[Path]) -> None:
    """Refuses to replace files in a folder that was not written by an earlier export."""
    there = [str(place) for place in places if (folder / place).exists()]
    if there and not in_export(folder) and written_config(folder).get("library_name") != "onefold":
        raise ValueError(
            f"out: {folder} already has {', '.join(there)}, not written by an earlier export; move what is there or "
            "choose another folder"
        )


def write_hub(found: Deployed, folder: Path, batch: int | None = None) -> list[str]:
    """Fills the folder and returns notes for the user; a model card that was edited is kept."""
    weights, notes = weights_bytes(found)
    files: dict[str, bytes] = {WEIGHTS: weights}
    try:
        files[PROGRAM], told = program_bytes(traced(found.answer, found.example, batch), found.facts)
        notes += told
    except ValueError as error:  # some networks cannot be traced; the folder is useful without a program
        notes.append(f"there is no {PROGRAM}: {error}")
    code = own_code(found)
    facts = found.facts if PROGRAM in files else header_of(found)
    text = card(found, facts, still_to_do(found), PROGRAM in files, [str(name) for name in code]).encode()
    copied = {place: file for place, file in code.items() if not is_copy(folder / place, file)}
    check_replaced(folder, copied)
    folder.mkdir(parents=True, exist_ok=True)
    edited = edits(folder)
    stays = bool(edited) and (folder / CARD).read_bytes() != text
    mark = {} if stays and edited == MAYBE else {MARK: of_card(text)}  # without one, nothing is claimed next time
    files[CONFIG] = (json.dumps(config(found, facts) | mark, indent=2) + "\n").encode()
    for name, content in files.items():
        write_aside(folder / name, content)
    for place, file in copied.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / place)
    if code:
        notes.append(f"copied into the folder, to be checked before publishing: {', '.join(map(str, code))}")
    if stays:
        write_aside(folder / NEW, text)
        notes.append(f"{CARD} {edited} and was kept; the model card for the new export is {NEW}: merge the two")
    else:
        write_aside(folder / CARD, text)
        (folder / NEW).unlink(missing_ok=True)
    return list(dict.fromkeys(notes))


def is_copy(place: Path, file: Path) -> bool:
    return place.is_file() and place.read_bytes() == file.read_bytes()


def of_card(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def edits(folder: Path) -> str:
    """What is known of edits of the folder's model card since it was exported; empty if there were none."""
    if not (folder / CARD).exists():
        return ""
    written = written_config(folder).get(MARK)
    if written is None:
        return MAYBE
    return "" if written == of_card((folder / CARD).read_bytes()) else "was edited"


def written_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json; empty if there is none, or none that can be read."""
    try:
        found = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def config(found: Deployed, facts: dict[str, Any]) -> dict[str, Any]:
    """config.json: the facts, and the classes in the form that hubs expect; `weights` has what differs for the weights
    alone from what holds for the program."""
    names = facts["class_names"] or [str(k) for k in range(facts["classes"])]
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: k for k, name in enumerate(names)}}
    alone = {name: value for name, value in header_of(found).items() if value != facts[name]}
    known = {"library_name": "onefold", "architectures": [type(found.weights).__name__]} | labels | facts
    return known | ({"weights": alone} if alone else {})


def own_code(found: Deployed) -> dict[Path, Path]:
    """The source files of a user's own network, by their paths in the folder; none if it is in an installed package."""
    if not is_own(found.about.get("network", "")):
        return {}
    own = recorded(found.about)
    if INSTALLED & {*own.folder.parts}:
        return {}
    return {file.relative_to(own.folder): file for file in sources(own.file, own.folder)}
