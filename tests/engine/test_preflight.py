"""What is odd about data and teachers is told before the first step, once, and good ones are not worth a word."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, Subset, TensorDataset

from onefold import distill, evaluate
from onefold.data import Arrays
from onefold.engine import conduct
from onefold.engine.conduct import look_at
from onefold.engine.training import Job, prepare
from onefold.perturb import PIXELS, InputSpace, tdiv
from onefold.run import RunFolder

Logs = pytest.LogCaptureFixture


class Pairs(Dataset[Any]):
    """A data set as torchvision's: labels in `targets`, images one by one."""

    def __init__(self, x: Tensor, y: Tensor, target_transform: Any = None) -> None:
        self.x, self.targets, self.target_transform = x, y.tolist(), target_transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = self.targets[index]
        return self.x[index], label if self.target_transform is None else self.target_transform(label)


def floats(count: int, seed: int) -> tuple[Tensor, Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return torch.rand(count, 1, 4, 4, generator=draws), torch.arange(count) % 3


def loaded(x: Tensor, y: Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(x, y), batch_size=16)


def notes(make_job: Any, **given: Any) -> list[str]:
    """What is said before a job's first step."""
    said: list[str] = []
    job: Job = make_job("supervised", "none", **given)
    look_at(prepare(dataclasses.replace(job, say=said.append)))
    return said


@pytest.mark.parametrize("split", ["val", "test"])
def test_floats_in_memory_on_another_scale_are_refused_before_a_run_is_begun(split: str, tmp_path: Path) -> None:
    x, y = floats(48, 1)
    good: dict[str, Any] = {"val": (x, y), "test": (x, y)}
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    run: dict[str, Any] = {"method": "supervised", "perturbation": "none", "epochs": 1, "workers": 0}
    with pytest.raises(
        ValueError, match=f"^{split}: expected inputs on the same scale as train, got .* times as large"
    ):
        distill(None, net, floats(48, 0), out=tmp_path / "bytes", **(good | {split: (255 * x, y)}), **run)
    assert not any(tmp_path.iterdir())
    assert distill(None, net, floats(48, 0), **good, **run).metrics["count"] == 48


def test_what_a_data_set_makes_of_its_images_is_told_and_not_refused(make_job: Any) -> None:
    """It may do something else in training, on purpose: add noise, say."""
    x, y = floats(48, 1)
    train = floats(48, 0)
    assert notes(make_job, train=Pairs(*train), val=Pairs(x, y)) == []
    (large,) = notes(make_job, train=Pairs(*train), val=Pairs(255 * x, y))
    assert large.startswith("val: expected inputs on the same scale as train, got ")
    (other,) = notes(make_job, train=Pairs(*train), val=Pairs(4 * x - 2, y))
    assert "one looks standardised" in other
    # The first batches of a loader may all be of one kind.
    assert notes(make_job, train=Pairs(*train), val=loaded(255 * x, y)) == []


def test_dark_images_are_not_on_another_scale(make_job: Any) -> None:
    day, night = (torch.randint(low, high, (48, 1, 4, 4), dtype=torch.uint8) for low, high in ((100, 256), (1, 4)))
    assert notes(make_job, train=Arrays(day, torch.arange(48) % 3), val=Arrays(night, torch.arange(48) % 3)) == []


def test_uint8_images_and_floats_in_the_unit_range_are_alike(make_job: Any) -> None:
    x, y = floats(48, 1)
    assert notes(make_job, val=Arrays(x, y)) == []
    with pytest.raises(ValueError, match=r"^val: expected inputs on the same scale as train"):
        notes(make_job, val=Arrays(255 * x, y))


@pytest.mark.parametrize("space", [PIXELS, InputSpace.standardized([0.5], [0.5])])
def test_all_images_are_asked_whether_a_perturbation_would_clip_them(make_job: Any, space: InputSpace) -> None:
    """Also those behind the first ones, which may be dark."""
    x, y = floats(48, 1)
    x[40, 0, 2, 1] = 1.5
    prepare(make_job(train=Arrays(x, y), perturbation="none", space=space))
    with pytest.raises(ValueError, match=r"space: expected inputs .* to 1\.5, which a perturbation would clip"):
        prepare(make_job(train=Arrays(x, y), space=space))
    x[40, 0, 2, 1] = 0.5
    prepare(make_job(train=Arrays(x, y), space=space))


def test_a_perturbation_that_passes_the_space_on_has_its_inputs_checked(make_job: Any) -> None:
    def passing_on(x: Tensor, teachers: Any, student: Any, **given: Any) -> Tensor:
        return tdiv(x, teachers, student, space=given["space"], draws=given["draws"])

    def of_its_own(x: Tensor, teachers: object, student: object) -> Tensor:  # noqa: ARG001
        return x - 1

    x, y = floats(48, 1)
    train = Arrays(x + 0.5, y)
    prepare(make_job(train=train, perturbation=of_its_own))
    with pytest.raises(ValueError, match="which a perturbation would clip"):
        prepare(make_job(train=train, perturbation=passing_on))


def test_missing_classes_are_told_where_labels_are_known(make_job: Any) -> None:
    x, y = floats(60, 1)
    lacking = "val has no example of 1 of the 3 classes: 2"
    only = (y < 2).nonzero().flatten()
    parts = [Subset(whole, only.tolist()) for whole in (Pairs(x, y), TensorDataset(x, y))]
    for val in (Pairs(x[only], y[only]), *parts):
        assert notes(make_job, val=val) == [lacking]
    # Not known: labels that are changed on their way, and those of a loader.
    assert notes(make_job, val=Pairs(x[only], y[only], target_transform=lambda label: 2 - label)) == []
    assert notes(make_job, val=loaded(x[only], y[only])) == []
    (spare,) = notes(make_job, train=Pairs(x[only], y[only]), val=None, test=None)
    assert spare == "train has no example of 1 of the 3 classes: 2, for which the network has outputs"
    (unseen,) = notes(make_job, train=Pairs(x[only], y[only]), val=Pairs(x, y), test=None)
    assert unseen.startswith("train has no example of 1 of the 3 classes: 2, but val has 20;")


def test_labels_that_are_changed_on_their_way_are_not_refused_for_what_they_were(make_job: Any) -> None:
    x, y = floats(48, 1)
    assert notes(make_job, val=Pairs(x, y + 1, target_transform=lambda label: label - 1)) == []
    with pytest.raises(ValueError, match="val: labels: expected classes 0 to 2, got 16 outside"):
        notes(make_job, val=Pairs(x, y + 1))


def test_data_of_a_source_were_looked_at_when_they_were_read(make_job: Any) -> None:
    x, y = floats(48, 1)
    assert notes(make_job, val=Pairs(x, y.clamp(max=1)), known=True) == []
    assert len(notes(make_job, val=Pairs(x, y.clamp(max=1)))) == 1


def test_looking_changes_no_random_number(make_job: Any) -> None:
    x, y = floats(48, 1)
    results = [conduct(make_job(val=Pairs(x, y), known=known)).model.state_dict() for known in (False, True)]
    assert all(torch.equal(value, results[1][key]) for key, value in results[0].items())


def test_notes_reach_whoever_listens(make_teller: Any, make_job: Any, caplog: Logs) -> None:
    """A progress object that is given, or Python's log, which shows warnings by itself."""
    x, y = floats(48, 1)
    job: Job = make_job("supervised", "none", val=Pairs(x, y.clamp(max=1)))
    lacking, teller = "val has no example of 1 of the 3 classes: 2", make_teller()
    with caplog.at_level(logging.WARNING, "onefold"):
        conduct(job, progress=teller)
        assert teller.messages[0] == lacking
        assert caplog.records == []
        conduct(job)
    assert [r.message for r in caplog.records] == [
        text for text in teller.messages if "the best on the validation split" not in text
    ]
    assert {(r.name, r.levelname) for r in caplog.records} == {("onefold", "WARNING")}


def test_a_finished_run_is_not_looked_at_again(make_teller: Any, make_job: Any, tmp_path: Path) -> None:
    first, again = make_teller(), make_teller()
    job: Job = make_job(val=None)
    assert job.teachers is not None
    for teacher in job.teachers.get_submodule("networks").children():
        nn.init.zeros_(teacher.get_parameter("head.weight"))
    conduct(job, RunFolder(tmp_path), {}, progress=first)
    assert any("look untrained" in text for text in first.messages)
    conduct(job, RunFolder(tmp_path), {}, progress=again)
    assert again.messages == [f"{tmp_path} is finished; nothing was changed"]


def test_data_that_were_told_of_are_not_told_of_again(make_teller: Any, make_job: Any, tmp_path: Path) -> None:
    x, y = floats(48, 1)
    first, again = make_teller(), make_teller()
    for teller in (first, again):
        job = make_job("supervised", "none", val=Pairs(x, y.clamp(max=1)))
        conduct(job, RunFolder(tmp_path), {}, progress=teller)
    assert "val has no example of 1 of the 3 classes: 2" in first.messages
    assert again.messages == [f"{tmp_path} is finished; nothing was changed"]


def test_a_part_of_a_data_set_that_makes_other_labels_is_taken_at_its_word(make_job: Any) -> None:
    class Coarse(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            x, y = super().__getitem__(index)  # type: ignore[no-untyped-call]
            return x, y // 20

        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [(x, y // 20) for x, y in super().__getitems__(indices)]

    x, _ = floats(48, 1)
    fine = TensorDataset(x, torch.arange(48) % 60)
    assert notes(make_job, val=Coarse(fine, list(range(48)))) == []
    with pytest.raises(ValueError, match="val: labels: expected classes 0 to 2"):
        notes(make_job, val=Subset(fine, list(range(48))))


def test_a_network_without_weights_to_train_is_refused(make_job: Any) -> None:
    job = make_job("kd", "none")
    with pytest.raises(ValueError, match="net: expected weights to train, got none that require a gradient; do not"):
        prepare(dataclasses.replace(job, net=job.net.requires_grad_(False)))


@pytest.mark.parametrize("count", [48, 49])
def test_the_batches_of_a_sampler_are_looked_at(count: int) -> None:
    """Whatever the number of examples in the data set is."""
    sampler = BatchSampler(range(count), 16, drop_last=False)
    train = DataLoader(TensorDataset(*floats(64, 0)), batch_sampler=sampler)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    alone = pytest.raises(ValueError, match=r"batch_size: 49 examples in batches of 16 .* leave a single one")
    with alone if count == 49 else contextlib.nullcontext():
        distill(None, net, train, method="supervised", perturbation="none", epochs=1, device="cpu")


@pytest.mark.filterwarnings("ignore")  # it is deprecated
def test_quantised_teachers_are_told_what_to_give_instead() -> None:
    def net() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

    data, quantise = floats(24, 0), torch.ao.quantization.quantize_dynamic
    quantised = [quantise(net(), {nn.Linear}) for _ in range(2)]  # type: ignore[no-untyped-call]
    for perturbation in ("none", "tdiv"):
        with pytest.raises(
            ValueError, match=r"^teachers: expected weights that are tensors .*, got a dtype as networks\.0"
        ):
            distill(quantised, net(), data, perturbation=perturbation, epochs=1, workers=0)
    assert evaluate(quantised, data, workers=0)["count"] == 24  # which needs no more than answers
