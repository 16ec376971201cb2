"""Signals while the program starts, and a terminal that is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onefold.ending import STOPPING, loading

# Signals act as usual, also if the tests run in the background of a shell, which ignores some.
AS_USUAL = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)
if os.isatty(0):
    import fcntl, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "onefold", *sys.argv[1:]])
"""
START = [sys.executable, "-c", AS_USUAL, "train", "digits", "--network", "mlp", "--recipe.members", "2"]


@pytest.mark.parametrize("number", STOPPING)
@pytest.mark.parametrize("module", ["tyro", "torch"])  # before anything is parsed, and after
def test_a_signal_while_modules_load_ends_the_program_with_one_line(
    tmp_path: Path, number: signal.Signals, module: str
) -> None:
    (tmp_path / f"{module}.py").write_text(
        f"import os, time\ntry:\n  os.kill(os.getpid(), {int(number)})\n  time.sleep(9)\nexcept BaseException: pass\n"
    )
    ended = subprocess.run(
        [*START, "--out", str(tmp_path / "out")],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "onefold: interrupted\n")


def test_signals_are_handled_as_before_once_modules_are_loaded() -> None:
    before = [signal.getsignal(number) for number in STOPPING]
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with loading():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    signal.signal(signal.SIGHUP, before[2])
    assert [signal.getsignal(number) for number in STOPPING] == before


def test_a_run_whose_terminal_is_closed_has_saved_and_goes_on(tmp_path: Path) -> None:
    terminal, theirs = os.openpty()
    words = [*START, "--epochs", "3000", "--out", str(tmp_path)]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    log = tmp_path / "teacher-0" / "metrics.jsonl"
    until = time.monotonic() + 120
    while not (log.exists() and log.stat().st_size):
        assert time.monotonic() < until
        os.read(terminal, 1 << 16)  # what it shows, so that it is never kept waiting
    os.close(terminal)
    assert process.wait(60) == 130
    assert (tmp_path / "teacher-0" / "checkpoints" / "last.safetensors").exists()
    assert not (tmp_path / "teacher-0" / "result.json").exists()
