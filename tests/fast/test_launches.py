"""A kernel may be there before the one it follows has ended: each begins by waiting for it."""

from __future__ import annotations

import ast
import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import onefold.fast

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")


def kernels() -> Iterator[ast.FunctionDef]:
    for path in Path(onefold.fast.__path__[0]).rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_kernel"):
                assert [ast.unparse(each) for each in node.decorator_list] == ["jit"], node.name
                yield node


def test_every_kernel_waits_before_anything_else() -> None:
    found = list(kernels())
    assert len(found) > 15
    for kernel in found:
        assert ast.get_docstring(kernel), kernel.name
        assert ast.unparse(kernel.body[1]) == "wait_for_inputs()", kernel.name


@pytest.mark.parametrize("early", [True, False])
def test_a_launch_is_an_early_one_where_the_device_can(early: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from onefold.fast.kernels import compiled

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(compiled, "comes_early", lambda device: early and device == 1)
    taken: list[dict[str, Any]] = []
    compiled.launched(lambda *_, **options: taken.append(options), "x", grid=(1,))
    assert taken == [{"grid": (1,), "launch_pdl": True} if early else {"grid": (1,)}]


@pytest.mark.parametrize(
    ("capability", "cuda", "driver", "early"),
    [
        ((9, 0), "13.0", 13_000, True),
        ((10, 0), "13.0", 12_030, True),
        ((9, 0), "12.6", 12_020, False),
        ((8, 0), "13.0", 13_000, False),
        ((9, 4), None, 13_000, False),
        ((9, 0), "13.0", None, False),
    ],
)
def test_devices_and_drivers_that_can(
    capability: tuple[int, int], cuda: str | None, driver: int | None, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onefold.fast.kernels import compiled

    class Library:
        def __init__(self, name: str) -> None:
            if driver is None:
                raise OSError(name)

        def cuDriverGetVersion(self, version: Any) -> int:
            version._obj.value = driver
            return 0

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert compiled.comes_early.__wrapped__(0) is early
