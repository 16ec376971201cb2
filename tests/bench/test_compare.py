"""Our steps beside the plain ones, on this machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from onefold.bench.cases import Case, cases_for, networks_of, pictures, rows_of
from onefold.bench.compare import compare
from onefold.bench.timing import in_turn, round_seconds
from onefold.engine.cost.counting import count_forward

CPU = torch.device("cpu")


def test_the_rows_of_a_gpu_and_of_a_cpu() -> None:
    labels = ["supervised, one", "4 teachers at once, a round", "LatentBE-4", "LatentBE-4 + TDiv-SDiv"]
    labels += ["4 of LatentBE-4 + TDiv-SDiv at once, a round"]
    gpu = cases_for(torch.device("cuda"))
    assert [case.network for case in gpu] == ["wrn28x1"] * 5 + ["wrn28x4"] * 5
    assert [case.label for case in gpu] == 2 * labels
    assert {case.batch for case in gpu} == {128}
    assert [case.label for case in cases_for(CPU)] == labels
    assert {case.network for case in cases_for(CPU, "wrn16x1", 8)} == {"wrn16x1"}


# Multiplications of ViT-S/16: 196 patches and a class token, 12 blocks of width 384.
VIT = 196 * 768 * 384 + 12 * (4 * 197 * 384**2 + 2 * 197**2 * 384 + 2 * 197 * 384 * 1536) + 384 * 1000


@pytest.mark.parametrize(("network", "products"), [("resnet50", 4_089_184_256), ("vit-s", VIT)])
def test_large_networks_have_two_members_and_large_images(network: str, products: int) -> None:
    cases = cases_for(CPU, network, 2)
    assert [case.label for case in cases] == ["supervised, one", "LatentBE-2", "LatentBE-2 + TDiv-SDiv"]
    teachers, (net,) = networks_of(cases[1])
    assert len(teachers) == 2
    assert count_forward(net, (1, 3, cases[0].side, cases[0].side)).flops == 2 * products
    assert tuple(pictures(replace(cases[0], side=8), CPU).x.shape[1:]) == (3, 8, 8)


@pytest.mark.parametrize("case", rows_of("wrn10x1", 4)[1::2], ids=lambda case: str(case.label))
def test_rows_can_be_measured(case: Case) -> None:
    told: list[tuple[str, int]] = []
    before = torch.get_rng_state()
    (table,) = compare([case], CPU, steps=1, blocks=1, told=lambda label, done: told.append((label, done)))
    (row,) = table.rows
    assert told == [(f"wrn10x1 {case.label}", 0)]
    assert min(row.ms, row.plain_ms, row.floor_ms, row.memory_gb, row.start_up_s) > 0
    assert row.floor_ms <= row.arithmetic_ms + row.bytes_ms
    assert row.passes == (12 if case.runs == 4 else 22)
    assert torch.equal(torch.get_rng_state(), before)
    record = json.loads(json.dumps(table.record(CPU)))
    assert record["rows"][0]["ratio"] == pytest.approx(row.plain_ms / row.ms)
    assert {"commit", "command", "processor", "libraries"} <= record["environment"].keys()


def test_rivals_take_turns() -> None:
    calls: list[tuple[str, int]] = []
    rivals = [(lambda n: calls.append(("a", n)), 3), (lambda n: calls.append(("b", n)), 1)]
    assert len(in_turn(rivals, CPU, blocks=2)) == 2
    assert calls == 2 * [("a", 1), ("a", 3), ("b", 1), ("b", 1)]
    calls.clear()
    round_seconds(lambda n: calls.append(("c", n)), CPU, count=5, warm=2, blocks=2)
    assert calls == [("c", 2), ("c", 5), ("c", 5)]
