from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onefold.engine.networks.own_sources import content_of, sources

FILES = {
    "net.py": "import math\nimport layers as l\nfrom pack import part\ndef later(): import last\n",
    "layers.py": "import net\nfrom settings import WIDTH\n",
    "settings.py": "WIDTH = 3\n",
    "last.py": "x = (  # not Python\n",
    "pack/__init__.py": "from .inner.deep import *\n",
    "pack/part.py": "from . import other\nfrom ..settings import WIDTH\n",
    "pack/other.py": "",
    "pack/inner/__init__.py": "",
    "pack/inner/deep.py": "from ..other import x\n",
    "pack/alone.py": "",
    "alone.py": "import torch\n",
}
USED = [name for name in FILES if "alone" not in name]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_all_that_is_imported_from_beside_it(here: Path) -> None:
    first, *others = sources(here / "net.py", here)
    assert first == here / "net.py"
    assert others == sorted(here / name for name in USED if name != "net.py")
    assert sources(here / "alone.py", here) == [here / "alone.py"]


def test_any_of_them_changes_the_content_and_no_other(here: Path) -> None:
    before = content_of(here / "net.py", here)
    for name in FILES:
        (here / name).write_text(FILES[name] + "# changed\n")
        assert (content_of(here / "net.py", here) != before) == (name in USED), name
        (here / name).write_text(FILES[name])
    moved = here.rename(here.with_name("moved"))
    assert content_of(moved / "net.py", moved) == before
    alone = (moved / "alone.py").read_bytes()
    assert content_of(moved / "alone.py", moved) == hashlib.blake2b(alone, digest_size=8).hexdigest()


def test_what_is_installed_is_not_read_with_all_it_imports(here: Path) -> None:
    installed = here.rename(here.with_name("site-packages"))
    assert sources(installed / "pack" / "part.py", installed) == [installed / "pack" / "part.py"]
