from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

from onefold.engine.keeping.checkpoint import load, load_network, save_network, written_later


def save(path: Path, state: dict[str, Any]) -> None:
    written_later(path, state)()


def test_an_optimizer_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    def advance(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.ones(3, 4)).square().sum().backward()
            optimizer.step()

    for make in (lambda p: torch.optim.AdamW(p, amsgrad=True), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)):
        net = nn.Linear(4, 2)
        optimizer = make(net.parameters())
        advance(net, optimizer, 3)
        save(tmp_path / "last", {"net": dict(net.state_dict()), "optimizer": optimizer.state_dict()})
        advance(net, optimizer, 3)
        other = nn.Linear(4, 2)
        again = make(other.parameters())
        state = load(tmp_path / "last")
        other.load_state_dict(state["net"])
        again.load_state_dict(state["optimizer"])
        advance(other, again, 3)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "last.safetensors"
    save(path, {"step": 1, "x": torch.ones(3)})

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"No space left on device\), the previous one is still in .*run the command again"
    ):
        save(path, {"step": 2, "x": torch.zeros(3)})
    monkeypatch.undo()
    assert load(path)["step"] == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_really_full_disk(tmp_path: Path) -> None:
    """The limit on the size of a file fails a write in the middle, like a disk that fills up."""
    path = tmp_path / "last.safetensors"
    save(path, {"step": 1})
    child = os.fork()
    if child == 0:
        import resource
        import signal

        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
            save(path, {"step": 2, "x": torch.zeros(10_000)})
        except OSError as error:
            code = 0 if error.errno == errno.EFBIG else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert load(path) == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\x10" + bytes(7) + b"{}              "])
def test_foreign_files_are_refused_and_never_unpickled(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="damaged or foreign"):
        load(tmp_path / "x")
    if len(content) < 20:
        with pytest.raises(ValueError, match="damaged or foreign"):
            load_network(tmp_path / "x", nn.Linear(1, 1))


def test_networks_are_stored_under_their_own_keys(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

    net: Any = Tied()
    save_network(tmp_path / "model.safetensors", net)
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert list(stored) == sorted(net.state_dict())
    other: Any = Tied()
    load_network(tmp_path / "model.safetensors", other)
    assert torch.equal(other.b.weight, net.a.weight)
    assert other.b.weight is other.a.weight
    with pytest.raises(ValueError, match="expected the weights of a Linear"):
        load_network(tmp_path / "model.safetensors", nn.Linear(3, 3))
    with pytest.raises(ValueError, match="no such file"):
        load_network(tmp_path / "nothing", nn.Linear(3, 3))
