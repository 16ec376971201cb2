from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from onefold.data import Arrays, ResizedCrop, Source, from_arrays
from onefold.engine import Result, build_network, distill_run, evaluate_run, from_recipe, load_teachers, train_teachers
from onefold.engine.conduct import COPIES
from onefold.engine.distributed.world import ALONE, World
from onefold.engine.from_recipe import augmentation_of, space_of
from onefold.engine.teachers import teacher_runs
from onefold.metrics import evaluate_predictions
from onefold.perturb import PIXELS
from onefold.recipe import DataRecipe, DistillRecipe, OptimRecipe, Recipe, to_dict
from onefold.recipes import digits
from onefold.run import RunFolder, teachers_hash


def tiny(classes: int = 3, name: str = "tiny", shift: int = 0) -> Source:
    draws = torch.Generator().manual_seed(shift)

    def split(count: int) -> Arrays:
        y = torch.arange(count) % classes
        x = torch.rand(count, 2, 4, 4, generator=draws) * (y[:, None, None, None] + 1) / classes
        return Arrays((255 * x).to(torch.uint8), y)

    return from_arrays(name, split(48), split(24), split(30), tuple("abcdefgh"[:classes]))


RECIPE = Recipe(
    "tiny",
    network="mlp",
    members=2,
    device="cpu",
    epochs=2,
    data=DataRecipe(source="npz:tiny.npz"),
    optim=OptimRecipe(batch_size=16, warmup_epochs=1, lr=0.05),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("teachers")
    train_teachers(RECIPE, folder, source=tiny())
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def equal(a: nn.Module, b: nn.Module) -> bool:
    one, other = a.state_dict(), b.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_teachers_are_run_folders_of_their_own(trained: Path) -> None:
    assert sorted(p.name for p in trained.iterdir()) == ["teacher-0", "teacher-1"]
    for m in range(2):
        run = RunFolder(trained / f"teacher-{m}")
        assert run.recipe == to_dict(RECIPE)
        assert run.about.items() >= {"kind": "teacher", "member": m, "method": "supervised", "classes": 3}.items()
        assert run.finished
        assert run.read_json("env.json")["libraries"]["torch"] == str(torch.__version__)
        names = {p.name for p in run.path.iterdir()} - {".lock"}
        assert names == {
            "recipe.json",
            "run.json",
            "env.json",
            "metrics.jsonl",
            "checkpoints",
            "model.safetensors",
            "predictions",
            "result.json",
        }
    teachers = load_teachers(trained)
    assert teachers.members == 2
    assert not equal(teachers.networks[0], teachers.networks[1])


def test_each_teacher_is_reproducible_by_itself(trained: Path, tmp_path: Path) -> None:
    """In whatever company it is trained."""
    results = train_teachers(RECIPE, tmp_path, members=[1], source=tiny())
    assert [p.name for p in tmp_path.iterdir()] == ["teacher-1"]
    model = (tmp_path / "teacher-1" / "model.safetensors").read_bytes()
    assert model == (trained / "teacher-1" / "model.safetensors").read_bytes()
    assert len(results) == 1
    assert equal(results[0].model, load_teachers(trained).networks[1])


def test_finished_teachers_are_skipped_without_a_look_at_the_data(make_teller: Any, trained: Path) -> None:
    before, teller = files(trained), make_teller()
    results = train_teachers(RECIPE, trained, progress=teller)  # tiny.npz does not even exist
    assert files(trained) == before
    assert teller.messages == [f"{trained}/teacher-{m} is finished; nothing was changed" for m in range(2)]
    assert results[0].metrics == evaluate_run(trained / "teacher-0")
    with pytest.raises(ValueError, match=r"optim\.lr: 0.05 -> 0.1"):
        train_teachers(dataclasses.replace(RECIPE, optim=OptimRecipe(batch_size=16, warmup_epochs=1)), trained)
    assert files(trained) == before


def test_a_folder_of_teachers_grows(tmp_path: Path) -> None:
    """One that was trained as the only one is, to the last bit, the first of several, and stays as it is."""
    one = dataclasses.replace(RECIPE, members=1, distill=DistillRecipe("kd", "none"))
    train_teachers(one, tmp_path / "grown", source=tiny())
    before = files(tmp_path / "grown")
    train_teachers(dataclasses.replace(RECIPE, members=3), tmp_path / "at once", source=tiny())
    results = train_teachers(dataclasses.replace(RECIPE, members=3), tmp_path / "grown", source=tiny())
    assert len(results) == 3
    grown, at_once = files(tmp_path / "grown"), files(tmp_path / "at once")
    assert {name: grown[name] for name in before} == before
    for kind in ("model.safetensors", "predictions/test.npz", "predictions/val.npz"):
        for m in range(3):
            assert grown[f"teacher-{m}/{kind}"] == at_once[f"teacher-{m}/{kind}"]
    assert evaluate_run(tmp_path / "grown") == evaluate_run(tmp_path / "at once")


def test_a_teacher_goes_on_in_the_company_of_others(make_teller: Any, tmp_path: Path) -> None:
    """One that was stopped halfway when it was to be the only one."""

    def stop() -> None:
        raise KeyboardInterrupt

    one = dataclasses.replace(RECIPE, members=1, distill=DistillRecipe("kd", "none"))
    with pytest.raises(KeyboardInterrupt):
        train_teachers(one, tmp_path / "grown", source=tiny(), progress=make_teller(3, stop))  # of 6 steps
    assert RunFolder(tmp_path / "grown" / "teacher-0").started
    for name in ("grown", "at once"):
        train_teachers(RECIPE, tmp_path / name, source=tiny())
    grown, at_once = (load_teachers(tmp_path / name).networks for name in ("grown", "at once"))
    assert all(map(equal, grown, at_once))


def test_fewer_teachers_than_there_are(trained: Path, tmp_path: Path) -> None:
    """Nothing is trained, and nothing taken away."""
    before = files(trained)
    fewer = dataclasses.replace(RECIPE, members=1, distill=DistillRecipe("kd", "none"))
    assert len(train_teachers(fewer, trained)) == 1
    assert files(trained) == before
    student = distill_run(fewer, tmp_path, trained, source=tiny())
    assert RunFolder(tmp_path).recipe["members"] == 1
    assert student.metrics
    assert evaluate_run(trained, 1) == pytest.approx(evaluate_run(trained / "teacher-0"), rel=1e-6)
    assert evaluate_run(trained, 2) == evaluate_run(trained) != evaluate_run(trained, 1)
    with pytest.raises(ValueError, match=r"distill\.perturbation: 'none' -> 'gaussian'"):
        distill_run(dataclasses.replace(fewer, distill=DistillRecipe("kd", "gaussian")), tmp_path, trained)


def test_what_changes_a_teacher_is_still_refused_when_others_are_added(trained: Path) -> None:
    before = files(trained)
    for changes in ({"seed": 1}, {"epochs": 3}, {"precision": "bf16"}):
        (name,) = changes
        with pytest.raises(ValueError, match=f"different settings; .*\n  {name}: ") as error:
            train_teachers(dataclasses.replace(RECIPE, members=3, **changes), trained, source=tiny())
        assert "members" not in str(error.value)
    assert files(trained) == before


def test_a_file_that_is_edited_while_processes_train_teachers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was begun ends as it was begun; whoever comes next is told."""
    file = tmp_path / "mynet.py"
    file.write_text("from torch import nn\ndef net(): return nn.Sequential(nn.Flatten(), nn.Linear(32, 3))\n")
    recipe = dataclasses.replace(RECIPE, network=f"{file}:net")

    class First(World):
        size = 2

        def wait(self) -> None:
            monkeypatch.setattr(from_recipe, "world_here", lambda: ALONE)
            train_teachers(recipe, tmp_path, members=[1], source=tiny())  # as the other process has done meanwhile
            file.write_text(file.read_text().replace("Flatten(),", "Flatten(), nn.Linear(32, 32),"))

    monkeypatch.setattr(from_recipe, "world_here", First)
    results = train_teachers(recipe, tmp_path, source=tiny())
    assert [result.folder for result in results] == [tmp_path / f"teacher-{m}" for m in range(2)]
    for m, result in enumerate(results):
        weights = load_file(tmp_path / f"teacher-{m}" / "model.safetensors")
        assert all(torch.equal(weights[name], value) for name, value in result.model.state_dict().items())
    with pytest.raises(ValueError, match="the file of the network, or one that it imports, has changed"):
        train_teachers(recipe, tmp_path, source=tiny())


SEEDED = """
import torch
from torch import nn

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(32, 3))

def seeded():
    torch.manual_seed(1)
    return plain()

def by_itself():
    net = plain()
    net[1].weight.data = torch.randn(3, 32, generator=torch.Generator().manual_seed(1))
    return net

def zeros():
    net = plain()
    for weight in net.parameters():
        nn.init.zeros_(weight)
    return net
"""


def test_a_network_that_seeds_itself_is_told_before_the_first_step(make_teller: Any, tmp_path: Path) -> None:
    """Once; not one whose weights are not drawn at all, nor a single teacher."""
    (tmp_path / "nets.py").write_text(SEEDED)
    recipe = dataclasses.replace(RECIPE, network=f"{tmp_path}/nets.py:seeded")
    single = dataclasses.replace(recipe, members=1, distill=DistillRecipe("kd", "none"))

    def told(recipe: Recipe, name: str, **given: Any) -> bool:
        teller = make_teller()
        note = (
            "all teachers start with the same weights and differ only in the order of their data: if "
            f"{recipe.network} calls torch.manual_seed, or uses a generator with a fixed seed, remove that, because "
            "each teacher has its own seed"
        )
        train_teachers(recipe, tmp_path / name, source=tiny(), progress=teller, **given)
        assert note not in teller.messages[1:]
        return note in teller.messages[:1]

    for name in ("plain", "zeros"):
        assert not told(dataclasses.replace(recipe, network=f"{tmp_path}/nets.py:{name}"), name)
    assert not told(single, "single")
    assert told(recipe, "one by one", members=[0])
    assert told(recipe, "one by one", members=[1])
    assert told(recipe, "together")
    assert told(dataclasses.replace(recipe, network=f"{tmp_path}/nets.py:by_itself"), "by itself")
    (tmp_path / "together" / "teacher-1" / "result.json").unlink()
    assert not told(recipe, "together")  # goes on


@pytest.mark.parametrize(("members", "wrong"), [([2], "2"), ([-1], "-1"), ([], r"\[\]"), ([0, 0], r"\[0, 0\]")])
def test_members_that_are_not_there(members: list[int], wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^members: expected .*got {wrong}$"):
        train_teachers(RECIPE, tmp_path, members=members, source=tiny())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("method", "perturbation"), [("latentbe", "tdiv-sdiv"), ("be", "none"), ("kd", "tdiv")])
def test_a_student_from_a_folder_of_teachers(
    make_teller: Any, trained: Path, tmp_path: Path, method: str, perturbation: str
) -> None:
    recipe = dataclasses.replace(RECIPE, distill=DistillRecipe(method, perturbation))
    result = distill_run(recipe, tmp_path, trained, source=tiny())
    assert evaluate_run(tmp_path) == result.metrics
    run, before, teller = RunFolder(tmp_path), files(tmp_path), make_teller()
    assert run.about["kind"] == "student"
    assert run.about["teachers_trained"]["recipe"] == to_dict(RECIPE)
    weights = [teacher.result["weights"] for teacher in teacher_runs(trained)]
    assert run.about["teachers_are"] == teachers_hash(weights)
    assert run.result["weights"] not in weights
    again = distill_run(recipe, tmp_path, trained, progress=teller)
    assert files(tmp_path) == before
    assert teller.messages == [f"{tmp_path} is finished; nothing was changed"]
    assert equal(again.model, result.model)
    assert not again.model.training
    assert again.metrics == result.metrics
    with pytest.raises(ValueError, match=r"run\.kind: 'student' -> 'teacher'"):
        run.check_same(to_dict(recipe), run.about | {"kind": "teacher"})


def test_a_student_whose_folder_does_not_say_how_its_teachers_were_trained_goes_on(
    trained: Path, tmp_path: Path
) -> None:
    """They are known by their weights."""
    distill_run(RECIPE, tmp_path, trained, source=tiny())
    run = RunFolder(tmp_path)
    run.write_json("run.json", {name: value for name, value in run.about.items() if name != "teachers_trained"})
    (tmp_path / "result.json").unlink()
    distill_run(RECIPE, tmp_path, trained, source=tiny())
    assert run.finished


def test_a_seed_gives_the_same_bits(trained: Path, tmp_path: Path) -> None:
    results: list[Result] = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(3)
        results.append(distill_run(dataclasses.replace(RECIPE, seed=seed), tmp_path / name, trained, source=tiny()))
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()
    assert not equal(results[0].model, results[2].model)


def test_teachers_that_will_not_do(trained: Path, tmp_path: Path) -> None:
    def refused(match: str, folder: Path, source: Source | None = None, **changes: Any) -> None:
        with pytest.raises(ValueError, match=match):
            distill_run(dataclasses.replace(RECIPE, **changes), tmp_path / "student", folder, source=source or tiny())
        assert not (tmp_path / "student").exists()

    refused("expected a folder made by `onefold train`", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused("expected teacher-0, teacher-1", tmp_path / "empty")
    refused(
        r"expected 3 teachers in .*, got no teacher-2; train them with `onefold train` into the same",
        trained,
        members=3,
    )
    other = DataRecipe(source="npz:other.npz")
    refused(
        r"teacher-0 was trained on npz:tiny.npz with 3 classes, but .* npz:other.npz with 4",
        trained,
        tiny(4),
        data=other,
    )
    refused(r"the student's data are npz:other.npz with 3", trained, tiny(shift=1), data=other)
    unfinished = shutil.copytree(trained, tmp_path / "unfinished")
    (unfinished / "teacher-1" / "result.json").unlink()
    refused(r"teachers: teacher-1 in .* not finished; run `onefold train` again", unfinished)
    # A data set that has moved is still the same.
    moved = dataclasses.replace(RECIPE, data=DataRecipe(source="npz:moved/tiny.npz"))
    distill_run(moved, tmp_path / "student", trained, source=tiny())


def test_networks_of_ones_own_are_loaded_by_their_builder(trained: Path) -> None:
    source = tiny()
    teachers = load_teachers(trained, lambda _: build_network("mlp", 3, source.statistics, (4, 4)), members=1)
    assert equal(teachers.networks[0], load_teachers(trained).networks[0])
    with pytest.raises(ValueError, match=r"teacher-0.model.safetensors: expected the weights of a Linear"):
        load_teachers(trained, lambda _: nn.Linear(3, 3))


def test_the_ensemble_is_evaluated_from_predictions_alone(trained: Path, tmp_path: Path) -> None:
    source, teachers = tiny(), load_teachers(trained)
    logits = [teachers(split.x / 255) for split in (source.test, source.val) if isinstance(split, Arrays)]
    assert isinstance(source.test, Arrays)
    assert isinstance(source.val, Arrays)
    expected = evaluate_predictions(logits[0], source.test.y, val_logits=logits[1], val_labels=source.val.y)
    assert evaluate_run(trained) == pytest.approx(expected, rel=1e-5)
    broken = shutil.copytree(trained, tmp_path / "broken")
    (broken / "teacher-0" / "result.json").unlink()
    with pytest.raises(ValueError, match="teacher-0 is not finished"):
        evaluate_run(broken)
    with pytest.raises(ValueError, match="not a finished run"):
        evaluate_run(broken / "teacher-0")
    with pytest.raises(ValueError, match="nothing is neither a finished run nor a folder of teachers"):
        evaluate_run(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("wrn10x1", (3, 8, 8)),
        ("wrn16x2", (1, 8, 8)),
        ("resnet18-small", (3, 32, 32)),
        ("mlp", (5,)),
        ("mlp", (2, 3, 4)),
    ],
)
def test_networks_by_name(name: str, shape: tuple[int, ...]) -> None:
    statistics = (0.5,) * shape[0], (0.2,) * shape[0]
    net = build_network(name, 7, statistics, shape[1:] or shape)
    assert net(torch.rand(2, *shape)).shape == (2, 7)


def test_networks_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="did you mean 'resnet50'"):
        build_network("resnet-50", 10, ((0.5,) * 3, (0.2,) * 3))
    with pytest.raises(ValueError, match="expected 6n"):
        build_network("wrn27x1", 10, ((0.5,) * 3, (0.2,) * 3))


def test_the_space_and_the_augmentation_suit_the_data() -> None:
    source = tiny()
    assert space_of(source) is PIXELS
    assert augmentation_of(RECIPE, source) is source.augment
    plain = dataclasses.replace(RECIPE, data=DataRecipe(augment=False))
    assert augmentation_of(plain, source) is None
    with pytest.raises(ValueError, match=r"data\.augment: expected True"):
        augmentation_of(plain, dataclasses.replace(source, augment=ResizedCrop(4)))
    features = Arrays(torch.randn(20, 5), torch.arange(20) % 2)
    space = space_of(dataclasses.replace(source, train=features))
    assert space.low is None
    torch.testing.assert_close(space.scale, 0.1 * features.x.std(0))
    floats = Arrays(torch.rand(20, 1, 4, 4), torch.arange(20) % 2)
    assert space_of(dataclasses.replace(source, train=floats)) is PIXELS
    normalised = Arrays(torch.randn(20, 1, 4, 4), torch.arange(20) % 2)
    assert space_of(dataclasses.replace(source, train=normalised)) is PIXELS  # outside of which it is refused


def test_all_teachers_have_room_before_the_first_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one, and not for two: nothing is begun, in a folder that is still to be made."""
    usage = shutil.disk_usage(tmp_path)
    size = COPIES * 4 * (64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=size + size // 2))
    recipe = dataclasses.replace(
        digits(), network="mlp", epochs=1, optim=dataclasses.replace(digits().optim, warmup_epochs=0)
    )
    with pytest.raises(
        ValueError, match=r"^out: .*/to/come has 1\.6 MB free and 2 teachers need 2\.1 MB; free up space"
    ):
        train_teachers(dataclasses.replace(recipe, members=2), tmp_path / "to" / "come")
    assert not list(tmp_path.iterdir())
    assert len(train_teachers(dataclasses.replace(recipe, members=2), tmp_path / "to", members=[1])) == 1
