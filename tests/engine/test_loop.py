from __future__ import annotations

import ast
import copy
import dataclasses
import math
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

import onefold.engine
from onefold.data import Arrays, DeviceLoader
from onefold.engine import Diverged, Interrupted, Job, conduct
from onefold.engine.keeping.checkpoint import load
from onefold.engine.loop import Best
from onefold.ensemble import BatchEnsemble
from onefold.methods import METHODS, PERTURBATIONS, Method, Perturbing, plain
from onefold.objectives import kd
from onefold.run import RunFolder


def weights(model: nn.Module) -> dict[str, Tensor]:
    return model.state_dict()


def same(a: nn.Module, b: nn.Module) -> bool:
    one, other = weights(a), weights(b)
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k != "seconds"} for r in RunFolder(folder).metrics()]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_goes_through_the_one_loop(name: str, make_job: Any, tmp_path: Path) -> None:
    perturbation = {"latentbe": "tdiv-sdiv", "be": "tdiv-sdiv", "supervised": "gaussian"}.get(name, "confods")
    job: Job = make_job(name, perturbation)
    before = copy.deepcopy(job.net)
    result = conduct(job, RunFolder(tmp_path), {"recipe": 1})
    assert same(job.net, before)
    assert not result.model.training
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert stored.keys() == weights(result.model).keys()
    assert all(torch.equal(stored[k], v) for k, v in weights(result.model).items())
    if name == "be":
        assert isinstance(result.model, BatchEnsemble)
        assert result.model(torch.rand(5, 1, 4, 4)).shape == (2, 5, 3)
    else:
        assert type(result.model) is type(job.net)
        assert weights(result.model).keys() == weights(job.net).keys()
        assert not same(result.model, job.net)
    assert {"acc", "nll", "ece", "brier", "cnll", "cece", "temperature"} <= result.metrics.keys()
    assert result.temperature == result.metrics["temperature"]
    assert lines(tmp_path)[-1].items() >= result.metrics.items()
    assert RunFolder(tmp_path).result["metrics"] == result.metrics
    # What was stored is what the served network predicts, as the method predicts.
    test: Any = job.test
    labels, logits = RunFolder(tmp_path).predictions("test") or (None, np.zeros(0))
    answers = result.model(test.x / 255)
    expected = METHODS[name].predict(answers if answers.dim() == 3 else answers[None])
    torch.testing.assert_close(torch.from_numpy(logits), expected)
    assert labels is not None
    assert labels.tolist() == test.y.tolist()


def test_no_method_is_named_in_the_engine() -> None:
    folder = Path(onefold.engine.__file__).parent
    for path in folder.glob("*.py"):
        if path.name == "from_recipe.py":
            continue  # teachers are trained by the method "supervised"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in METHODS.keys() | PERTURBATIONS.keys(), path


def test_a_method_of_ones_own_needs_no_name(make_job: Any) -> None:
    def squared(student: Tensor, teachers: Tensor, labels: Tensor, *, alpha: float) -> Tensor:
        assert alpha == 1.0
        return (student - teachers.mean(0)).square().mean() + 0 * labels.sum()

    job = dataclasses.replace(make_job("kd", "none"), method=Method("mine", plain, squared))
    result = conduct(job)
    assert math.isfinite(result.metrics["nll"])


def test_the_loop_is_the_textbook_one(make_job: Any) -> None:
    """Against a loop written out, in float64: order, warm-up, cosine, momentum, decay, best epoch."""
    job: Job = make_job("kd", "none", epochs=3, temperature=2.0, alpha=0.7, weight_decay=0.01, seed=5)
    x = {name: getattr(job, name).x.double() / 255 for name in ("train", "val", "test")}
    splits = {name: dataclasses.replace(getattr(job, name), x=x[name]) for name in x}
    teachers = job.teachers
    assert teachers is not None
    job = dataclasses.replace(job, net=copy.deepcopy(job.net).double(), teachers=teachers.double(), **splits)
    result = conduct(job)

    net, steps = copy.deepcopy(job.net), 4
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
    warmup, total = 0.5 * steps, 3 * steps

    def multiplier(t: int) -> float:
        return 0.01 + 0.99 * t / warmup if t < warmup else (1 + math.cos(math.pi * (t - warmup) / (total - warmup))) / 2

    scheduler = LambdaLR(optimizer, multiplier)
    loader = DeviceLoader(splits["train"], 16, shuffle=True, seed=5)
    best: tuple[tuple[float, float], dict[str, Tensor]] = ((-1.0, 0.0), {})
    for epoch in range(3):
        for images, labels in loader.batches(epoch):
            net.train()
            logits = net(images)
            with torch.no_grad():
                targets = (teachers(images) / 2).softmax(-1).mean(0)
            loss = 0.3 * F.cross_entropy(logits / 2, labels) + 0.7 * 4 * F.cross_entropy(logits / 2, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        net.eval()
        answers, right = net(x["val"]).detach(), splits["val"].y
        found = float((answers.argmax(-1) == right).double().mean()), -float(F.cross_entropy(answers, right))
        if found > best[0]:  # of equal accuracies the lower NLL
            best = found, copy.deepcopy(net.state_dict())
    for name, value in weights(result.model).items():
        torch.testing.assert_close(value, best[1][name], rtol=1e-9, atol=1e-12)


def test_labels_are_learned_where_the_teachers_are_asked_and_everything_decays(make_job: Any) -> None:
    """One SGD step written out: the label's term is on the moved batch, and decay is on biases and BatchNorm too."""
    moved = Perturbing("moved", lambda x, teachers, student: (x + 0.2).clamp(0, 1))  # noqa: ARG005
    given: dict[str, Any] = {"alpha": 0.3, "temperature": 2.0, "weight_decay": 0.1, "momentum": 0.0, "warmup_epochs": 0}
    job: Job = make_job("kd", "none", epochs=1, batch_size=60, val=None, test=None, **given)
    result = conduct(dataclasses.replace(job, perturbation=moved))
    assert isinstance(job.train, Arrays)
    assert job.teachers is not None
    net, x = copy.deepcopy(job.net).train(), (job.train.x / 255 + 0.2).clamp(0, 1)
    with torch.no_grad():
        targets = (job.teachers(x) / 2).softmax(-1).mean(0)
    log_p = (net(x) / 2).log_softmax(-1)
    loss = 0.7 * -log_p[torch.arange(60), job.train.y].mean() + 0.3 * 4 * -(targets * log_p).sum(-1).mean()
    loss.backward()
    for name, weight in net.named_parameters():
        assert weight.grad is not None
        expected = weight.detach() - 0.05 * (weight.grad + 0.1 * weight.detach())
        torch.testing.assert_close(weights(result.model)[name], expected, rtol=1e-5, atol=1e-6)


def test_the_same_job_gives_the_same_bits_and_touches_no_global_state(make_job: Any) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    results = []
    for draws in (1, 5):
        job: Job = make_job()
        torch.manual_seed(11)
        results.append(conduct(job))
        assert torch.equal(torch.rand(3), expected)
        torch.rand(draws)
    assert same(results[0].model, results[1].model)
    assert results[0].metrics == results[1].metrics
    assert not same(results[0].model, conduct(make_job(seed=1)).model)


def test_a_folder_changes_nothing_about_the_result(make_job: Any, tmp_path: Path) -> None:
    with_folder, without = conduct(make_job(), RunFolder(tmp_path)), conduct(make_job())
    assert same(with_folder.model, without.model)
    assert with_folder.metrics == without.metrics
    assert with_folder.folder == tmp_path
    assert without.folder is None


def test_which_epochs_are_evaluated(make_job: Any, tmp_path: Path) -> None:
    conduct(make_job(epochs=7, eval_every=3, eval_last=2), RunFolder(tmp_path))
    assert [r["epoch"] for r in lines(tmp_path) if r["kind"] == "val"] == [3, 6, 7]
    conduct(make_job(epochs=5, eval_every=100, eval_last=2), RunFolder(tmp_path / "late"))
    assert [r["epoch"] for r in lines(tmp_path / "late") if r["kind"] == "val"] == [4, 5]


def test_what_is_logged_and_told(
    make_teller: Any, make_job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onefold.engine.watch.LOOK", float("inf"))  # on a busy machine it tells more often
    teller = make_teller()
    conduct(make_job(epochs=3, log_every=3, eval_every=2), RunFolder(tmp_path), progress=teller)
    records = lines(tmp_path)
    assert [(r["kind"], r["step"], r["epoch"]) for r in records] == [
        ("train", 3, 1),
        ("train", 4, 1),
        ("train", 7, 2),
        ("train", 8, 2),
        ("val", 8, 2),
        ("train", 11, 3),
        ("train", 12, 3),
        ("val", 12, 3),
        ("result", 12, 3),
    ]
    assert [u[:2] for u in teller.updates] == [(step, 12) for step in (3, 4, 7, 8, 11, 12)]
    assert [u[2] for u in teller.updates] == [r["loss"] for r in records if r["kind"] == "train"]
    assert all(rate > 0 for *_, rate in teller.updates)
    best = max((r for r in records if r["kind"] == "val"), key=lambda r: (r["acc"], -r["nll"]))
    assert records[-1]["best_step"] == best["step"]
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        f"best-{best['step']:08d}.safetensors",
        "last.safetensors",
    ]


def test_the_best_epoch_is_served(make_job: Any, tmp_path: Path) -> None:
    job: Job = make_job("kd", "none", epochs=4, lr=3.0)  # too fast to end where it is best
    result = conduct(job, RunFolder(tmp_path))
    records = [r for r in lines(tmp_path) if r["kind"] == "val"]
    best = max(records, key=lambda r: (r["acc"], -r["nll"]))
    assert RunFolder(tmp_path).result["best_step"] == best["step"]
    assert best["step"] < 16, "choose a setting in which the last epoch is not the best"
    assert RunFolder(tmp_path).result["val"]["acc"] == pytest.approx(best["acc"])
    last = load(tmp_path / "checkpoints" / "last.safetensors")
    assert not torch.equal(last["training"]["student"]["net.head.weight"], weights(result.model)["head.weight"])


def test_of_equal_accuracies_the_lower_nll_is_served(make_job: Any, tmp_path: Path) -> None:
    alike = Arrays(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 2]))  # one answer: a third is right
    conduct(make_job("kd", "none", epochs=4, lr=3.0, val=alike), RunFolder(tmp_path))
    records = [r for r in lines(tmp_path) if r["kind"] == "val"]
    assert [r["acc"] for r in records] == [pytest.approx(1 / 3)] * 4
    best = min(records, key=lambda r: r["nll"])
    assert best["step"] > 4, "choose a setting in which the first epoch is not the best"
    assert RunFolder(tmp_path).result["best_step"] == best["step"]
    assert RunFolder(tmp_path).result["val"]["nll"] == pytest.approx(best["nll"])


def test_the_first_of_what_is_equal_in_both() -> None:
    best = Best(1, 1, 0.9, 0.3)
    found = [(0.9, 0.3), (0.9, 0.2), (0.8, 0.1), (0.91, 9.0)]
    assert [best.beaten_by(*each) for each in found] == [False, True, False, True]
    assert not Best(1, 1, 0.9).beaten_by(0.9, 0.3), "a checkpoint from before it was looked at"


def test_the_loss_is_compiled_where_asked(make_job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    real = torch.compile

    def quickly(function: Any) -> Any:
        compiled.append(function)
        return real(function, backend="eager")  # the tracing without the C++ compiler

    monkeypatch.setattr(torch, "compile", quickly)
    # Without a perturbation: another way to draw the same step would draw other numbers.
    plain, traced = conduct(make_job(perturbation="none")), conduct(make_job(perturbation="none", compile=True))
    assert len(compiled) == 1
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(value, traced.model.state_dict()[name])


def test_without_validation_the_last_is_served(make_job: Any, tmp_path: Path) -> None:
    result = conduct(make_job("kd", "none", val=None), RunFolder(tmp_path))
    assert result.temperature is None
    assert "cnll" not in result.metrics
    last = load(tmp_path / "checkpoints" / "last.safetensors")
    assert torch.equal(last["training"]["student"]["net.head.weight"], weights(result.model)["head.weight"])
    assert conduct(make_job("kd", "none", val=None, test=None)).metrics == {}


def test_the_average_is_what_counts(make_job: Any, tmp_path: Path) -> None:
    result = conduct(make_job(ema=0.7, val=None), RunFolder(tmp_path))
    last = load(tmp_path / "checkpoints" / "last.safetensors")["training"]
    assert torch.equal(last["ema"]["net.norm.running_mean"], weights(result.model)["norm.running_mean"])
    assert not torch.equal(last["student"]["net.norm.running_mean"], last["ema"]["net.norm.running_mean"])
    assert all(p.requires_grad for p in result.model.parameters())


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """SIGINT and SIGHUP act as usual, also where the tests run in the background of a shell, which ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGHUP, before[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("at", [2, 4, 7, 8])
@pytest.mark.usefixtures("as_in_a_terminal")
def test_a_signal_stops_after_the_step_and_the_run_goes_on(
    make_teller: Any, make_job: Any, tmp_path: Path, number: signal.Signals, at: int
) -> None:
    job: Job = make_job(ema=0.9, log_every=1)
    undisturbed = conduct(make_job(ema=0.9, log_every=1), RunFolder(tmp_path / "a"), {"r": 1})
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(each) for each in every]
    teller = make_teller(at, lambda: signal.raise_signal(number))
    with pytest.raises(Interrupted, match=rf"stopped by {number.name} after step {at} of 8; .*same command") as caught:
        conduct(job, RunFolder(tmp_path / "b"), {"r": 1}, progress=teller)
    assert caught.value.signal == number
    assert [signal.getsignal(each) for each in every] == handlers
    teller = make_teller()
    result = conduct(job, RunFolder(tmp_path / "b"), {"r": 1}, progress=teller)
    assert teller.messages[0] == f"resuming after step {at} of 8"
    assert [u[0] for u in teller.updates] == list(range(at + 1, 9))
    assert same(result.model, undisturbed.model)
    assert lines(tmp_path / "a") == lines(tmp_path / "b")


def test_a_second_signal_acts_at_once(make_teller: Any, make_job: Any, tmp_path: Path, as_in_a_terminal: None) -> None:  # noqa: ARG001
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        conduct(make_job(log_every=1), RunFolder(tmp_path), progress=make_teller(2, twice))
    with pytest.raises(KeyboardInterrupt):  # and without a folder there is nothing to save
        conduct(make_job(log_every=1), progress=make_teller(2, lambda: signal.raise_signal(signal.SIGINT)))


@pytest.mark.usefixtures("as_in_a_terminal")
def test_a_terminal_may_hang_up_twice_and_nohup_counts(make_teller: Any, make_job: Any, tmp_path: Path) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)

    with pytest.raises(Interrupted, match="stopped by SIGHUP after step 2 of 8"):
        conduct(make_job(log_every=1), RunFolder(tmp_path / "a"), progress=make_teller(2, twice))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert conduct(make_job(log_every=1), RunFolder(tmp_path / "b"), progress=make_teller(2, twice)).metrics
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_long_epochs_are_kept_in_the_middle(make_teller: Any, make_job: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        raise Stop

    with pytest.raises(Stop):
        conduct(make_job(log_every=1, minutes=0.0), RunFolder(tmp_path), progress=make_teller(7, stop))
    assert load(tmp_path / "checkpoints" / "last.safetensors")["step"] == 6
    result = conduct(make_job(log_every=1, minutes=0.0), RunFolder(tmp_path))
    assert same(result.model, conduct(make_job()).model)


def test_a_finished_run_is_left_as_it_is(make_teller: Any, make_job: Any, tmp_path: Path) -> None:
    first = conduct(make_job("be"), RunFolder(tmp_path), {"r": 1})
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file()}
    teller = make_teller()
    again = conduct(make_job("be"), RunFolder(tmp_path), {"r": 1}, progress=teller)
    assert teller.messages == [f"{tmp_path} is finished; nothing was changed"]
    assert same(first.model, again.model)
    assert again.metrics == first.metrics
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.rglob("*") if p.is_file()} == before
    with pytest.raises(ValueError, match="r: 1 -> 2"):
        conduct(make_job("be"), RunFolder(tmp_path), {"r": 2})


def test_a_folder_in_use_is_left_to_who_uses_it(make_job: Any, tmp_path: Path) -> None:
    aside = tmp_path / "checkpoints" / "last.safetensors.writing"
    with RunFolder(tmp_path).held():
        aside.parent.mkdir()
        aside.write_bytes(b"half")
        child = os.fork()
        if child == 0:
            code = 1
            torch.set_num_threads(1)  # the others did not come along
            try:
                conduct(make_job("kd", "none"), RunFolder(tmp_path))
            except ValueError as error:
                code = 0 if "in use by another process" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert aside.exists()


def test_other_teachers_are_another_run(make_job: Any, tmp_path: Path) -> None:
    conduct(make_job(), RunFolder(tmp_path))
    job: Job = make_job()
    assert job.teachers is not None
    next(job.teachers.parameters()).data += 1e-3
    with pytest.raises(ValueError, match=r"run\.teachers_are"):
        conduct(job, RunFolder(tmp_path))


def poisoned(at: int) -> Method:
    """A method whose loss is not a number from some call on."""
    calls = [-2]  # two calls come before the training: a look at the job, and a step that is tried

    def objective(student: Tensor, teachers: Tensor, labels: Tensor) -> Tensor:
        calls[0] += 1
        return kd(student, teachers, labels) * (float("nan") if calls[0] >= at else 1.0)

    return Method("poisoned", plain, objective)


def test_the_first_loss_that_is_not_finite_is_named(make_job: Any, tmp_path: Path) -> None:
    job: Job = make_job("kd", "none", epochs=3)
    # Step 6 of 12, in the second epoch: noticed at its end, when the buffer is looked at.
    last = tmp_path / "checkpoints" / "last.safetensors"
    with pytest.raises(Diverged, match=rf"^step 6: the loss is nan \(learning rate 0.0397\); .* checkpoint is {last}"):
        conduct(dataclasses.replace(job, method=poisoned(6)), RunFolder(tmp_path))
    assert load(last)["step"] == 4
    with pytest.raises(Diverged, match=r"^step 2: the loss is nan .*there is no checkpoint yet"):
        conduct(dataclasses.replace(job, method=poisoned(2)))


@pytest.mark.parametrize("epochs", [1, 5])
def test_a_network_that_explodes_is_said_to(make_job: Any, tmp_path: Path, epochs: int) -> None:
    """Its loss is still a number when its answers no longer are."""
    with pytest.raises(Diverged, match=r"^step \d+: .*not finite.*learning rate"):
        conduct(make_job("kd", "none", epochs=epochs, lr=1e25, warmup_epochs=0), RunFolder(tmp_path))
