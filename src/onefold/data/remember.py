"""Caches the scan of a large set, so that a million files are opened once instead of at every start."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import Counter
from pathlib import Path

import torch

from onefold.data.options import Progress
from onefold.data.pictures import ImageFiles, Pictures
from onefold.data.scan import Scan, scan

LEAST = 10_000  # files from which caching pays off


def remembered_scan(pictures: Pictures, pixels: bool = False, progress: Progress | None = None) -> Scan:
    """`scan`, from the cache if the same files in unchanged folders had no problems before.

    Only a result without problems is cached, so that repaired files are scanned again. A file that breaks later is
    reported by the worker that reads it.
    """
    if pixels or not isinstance(pictures, ImageFiles) or len(pictures) < LEAST:
        return scan(pictures, pixels, progress)
    file = cache_folder() / f"{fingerprint(pictures)}.json"
    try:
        kept = json.loads(file.read_text())
        sizes = Counter({(h, w): count for h, w, count in kept["sizes"]})
        return Scan(readable=torch.arange(len(pictures)), sizes=sizes, converted=kept["converted"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache, or a damaged one: scan again
    found = scan(pictures, False, progress)
    if not found.problems:
        keep(file, {"sizes": [[*size, count] for size, count in found.sizes.items()], "converted": found.converted})
    return found


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "onefold" / "scans"


def fingerprint(pictures: ImageFiles) -> str:
    """A hash of the names of the files and the modification times of their folders."""
    digest = hashlib.blake2b(pictures.paths.tobytes(), digest_size=16)
    for folder in sorted({os.path.dirname(bytes(path)) for path in pictures.paths}):
        digest.update(folder + str(os.stat(folder).st_mtime_ns).encode())
    return digest.hexdigest()


def keep(file: Path, result: dict[str, object]) -> None:
    """Writes to a temporary file and renames it, since several processes may scan at once; failures are ignored."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as aside:
            json.dump(result, aside)
        os.replace(aside.name, file)
    except OSError:
        pass
