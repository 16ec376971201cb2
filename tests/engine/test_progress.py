"""What is heard of a run that nobody gave a progress object: the log, a bar where somebody looks, or nothing."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import onefold
from onefold.api.listeners import showing
from onefold.engine import conduct
from onefold.engine.conduct import tell_best
from onefold.engine.loop import Best, Position
from onefold.engine.progress import LOG, Logged, Silent, duration, epoch_line, listening, noting
from onefold.engine.training import prepare
from onefold.run import RunFolder

Capture = pytest.CaptureFixture[str]
Logs = pytest.LogCaptureFixture
LINE = re.compile(r"epoch (\d) of 4: loss \d\.\d+, val ACC \d+\.\d\d% and NLL \d\.\d{4}, \d s so far(, \d s left)?")


def test_a_line_tells_what_an_epoch_brought_and_what_is_left() -> None:
    val = {"acc": 0.8125, "nll": 0.59314}
    assert epoch_line(3, 200, 0.41236, val, 30.0) == (
        "epoch 3 of 200: loss 0.4124, val ACC 81.25% and NLL 0.5931, 30 s so far, 33 min left"
    )
    assert epoch_line(2, 2, 0.5, None, 9000.0) == "epoch 2 of 2: loss 0.5000, 2.5 h so far"
    assert [duration(s) for s in (0.4, 119, 120, 7199, 7200)] == ["0 s", "119 s", "2 min", "120 min", "2.0 h"]


def test_who_listens() -> None:
    class Own:
        def update(self, done: int, total: int, loss: float, lr: float, rate: float) -> None: ...

        def message(self, text: str) -> None: ...

    own = Own()
    assert listening(own, 0) is own
    assert noting(own) == own.message
    assert isinstance(listening(None, 0), Logged)
    assert isinstance(listening(own, 1), Silent)
    assert isinstance(listening(None, 1), Silent)


def test_the_log_has_a_line_for_each_epoch(make_job: Any, caplog: Logs, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("onefold.engine.watch.LOOK", 0.0)
    with caplog.at_level(logging.INFO, "onefold"):
        conduct(make_job("supervised", "none", epochs=4))
        found = [
            LINE.fullmatch(record.message)
            for record in caplog.records
            if "the best on the validation split" not in record.message
        ]
        assert [match and match[1] for match in found] == ["1", "2", "3", "4"]
        assert [match and match[2] is None for match in found] == [False, False, False, True]
        caplog.clear()
        conduct(make_job("supervised", "none", epochs=1, val=None), RunFolder(tmp_path), {})
        assert caplog.records[0].message.startswith(f"{tmp_path}: epoch 1 of 1: loss ")
        caplog.clear()
        conduct(make_job("supervised", "none", epochs=1, val=None), RunFolder(tmp_path), {})
        assert [record.message for record in caplog.records] == [f"{tmp_path} is finished; nothing was changed"]


def test_which_epoch_did_best_is_told_where_it_is_not_the_last(make_job: Any, make_teller: Any) -> None:
    training, teller = prepare(make_job("supervised", "none", epochs=4)), make_teller()
    for epoch in (4, 2):
        tell_best(Position(16, best=Best(4 * epoch, epoch, 0.8125, 0.5)), training, teller)
    (told,) = teller.messages
    assert told == "the weights of epoch 2 of 4 are used, the best on the validation split: accuracy 81.25%"


def test_epochs_shorter_than_a_second_do_not_have_one_each(make_job: Any, caplog: Logs, monkeypatch: Any) -> None:
    monkeypatch.setattr("onefold.engine.watch.LOOK", 1000.0)
    with caplog.at_level(logging.INFO, "onefold"):
        conduct(make_job("supervised", "none", epochs=4))
    found = [
        LINE.fullmatch(record.message)
        for record in caplog.records
        if "the best on the validation split" not in record.message
    ]
    assert [match and match[1] for match in found] == ["1", "4"]


def images(count: int) -> tuple[Tensor, Tensor]:
    return torch.rand(count, 1, 4, 4), torch.arange(count) % 3


def run(**given: Any) -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    fixed: dict[str, Any] = {"method": "supervised", "perturbation": "none", "epochs": 2, "device": "cpu"}
    return onefold.distill(None, net, images(48), val=images(33), **fixed, **given)


def test_python_shows_what_the_command_line_does_where_it_is_asked_to(capsys: Capture) -> None:
    run(progress=True)
    told = capsys.readouterr()
    assert re.search(r"supervised: 100%, [\d,]+ examples/s, loss \d\.\d+, lr ", told.err)
    assert told.out == ""
    torch.manual_seed(0)
    nets = [nn.Sequential(nn.Flatten(), nn.Linear(16, 3)) for _ in range(3)]
    onefold.distill(nets[:2], nets[2], images(48), epochs=1, progress=True, device="cpu")
    assert "latentbe-tdiv-sdiv: 100%" in capsys.readouterr().err


def test_where_somebody_looks_something_is_shown(capsys: Capture, caplog: Logs, monkeypatch: Any) -> None:
    run()
    assert capsys.readouterr() == ("", "")  # nobody looks at what pytest has caught
    monkeypatch.setattr("onefold.terminal.attended", lambda: True)
    run()
    assert "supervised: 100%" in capsys.readouterr().err
    run(progress=False)
    assert capsys.readouterr() == ("", "")
    with caplog.at_level(logging.INFO, "onefold"):  # who reads the log needs no bar across it
        run()
        assert capsys.readouterr() == ("", "")
        assert caplog.records[-1].message.startswith("epoch 2 of 2: loss ")
        run(progress=True)
        assert "supervised: 100%" in capsys.readouterr().err


def test_what_cannot_listen_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^progress: expected True, False, None or an object .* got str$"):
        run(progress="yes")


def test_showing_draws_none_of_the_users_numbers() -> None:
    """rich does, once, when it is loaded: asked in a process that has not."""
    code = """
        import random, sys
        from onefold.api.listeners import showing
        assert "rich" not in sys.modules
        random.seed(0)
        expected = random.getstate()
        for progress in (None, True):
            with showing(progress, "kd", 0):
                pass
        assert "rich" in sys.modules
        assert random.getstate() == expected
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_a_level_without_a_handler_is_nobody_who_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onefold.terminal.attended", lambda: True)
    monkeypatch.setattr(LOG, "level", logging.INFO)
    monkeypatch.setattr(LOG, "_cache", {})  # of what the level lets through: it would outlive the test
    for heard in (True, False):
        monkeypatch.setattr(LOG, "hasHandlers", lambda heard=heard: heard)
        with showing(None, "kd", 0) as listener:
            assert (listener is None) is heard
