"""Who asks for its rank alone does not wait for the others."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

import onefold
from onefold.engine.distributed import launch, rank_here
from onefold.engine.keeping.checkpoint import load_network, save_network

Logs = pytest.LogCaptureFixture


@pytest.fixture
def started_as(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As torchrun starts one of two processes; whoever joins the other one fails, and does not hang."""

    def joins(*_: object, **__: object) -> None:
        raise AssertionError("joined the others")

    for name in ("init_process_group", "new_group"):
        monkeypatch.setattr(dist, name, joins)
    monkeypatch.setattr(launch, "rendezvous", joins)
    monkeypatch.setattr(launch, "JOINED", [])
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize(("said", "rank"), [(None, 0), ("0", 0), ("1", 1), ("", 0), ("first", 0)])
def test_the_rank_is_the_launchers(said: str | None, rank: int, started_as: pytest.MonkeyPatch) -> None:
    started_as.delenv("RANK", raising=False)
    if said is not None:
        started_as.setenv("RANK", said)
    assert rank_here() == rank


def test_a_group_of_the_users_says_it_better(started_as: pytest.MonkeyPatch) -> None:
    started_as.setenv("RANK", "0")  # within its machine, say
    started_as.setattr(dist, "is_initialized", lambda: True)
    started_as.setattr(dist, "get_rank", lambda: 3)
    assert rank_here() == 3


AGAIN = """
import torch.distributed as dist
from onefold.engine.distributed import world_here
for own in (False, False, True, False):
    if own:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    print(world_here().collected("here"), world_here() is world_here())
    dist.destroy_process_group()
"""


def test_a_group_that_was_destroyed_is_not_asked_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", AGAIN]
    done = subprocess.run(command, env=os.environ | alone, timeout=50, check=False, capture_output=True, text=True)
    assert done.stdout == "['here'] True\n" * 4, done.stderr


@pytest.mark.parametrize("rank", [0, 1])
def test_one_process_evaluates_alone(rank: int, started_as: pytest.MonkeyPatch, caplog: Logs) -> None:
    started_as.setenv("RANK", str(rank))
    net = nn.Linear(3, 3, bias=False)
    nn.init.eye_(net.weight)
    found = onefold.evaluate(net, (torch.eye(3), torch.arange(3)), (torch.eye(3), torch.arange(3)), device="cpu")
    assert found["acc"] == 1
    assert [text[:15] for text in caplog.messages] == ["the temperature"] * (rank == 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_one_process_reads_a_network_alone(
    rank: int, started_as: pytest.MonkeyPatch, caplog: Logs, tmp_path: Path
) -> None:
    started_as.setenv("RANK", str(rank))
    save_network(tmp_path / "model.safetensors", nn.Linear(2, 2))
    with caplog.at_level(logging.WARNING, "onefold"):
        load_network(tmp_path / "model.safetensors", nn.Linear(2, 2), doubt=f"net.py has changed since ({rank})")
    assert len(caplog.messages) == (rank == 0)
