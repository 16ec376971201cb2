from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onefold.ensemble import BatchEnsemble, batch_ensemble
from onefold.methods import METHODS, PERTURBATIONS, Method, Perturbing, as_it_is, be, latent_be, plain
from onefold.metrics import log_mean_probabilities
from onefold.names import METHOD_NEEDS, PERTURBATION_NEEDS, check_pair
from onefold.objectives import kd, one_to_one


def moved(x: Tensor, teachers: object, student: object) -> Tensor:  # noqa: ARG001
    return x


def test_what_a_users_own_are_made_of_in_which_order() -> None:
    """Programs are written against it, without keywords, too."""
    method = Method("mine", be, one_to_one, as_it_is, log_mean_probabilities, True, True)
    assert method == Method("mine", student=be, objective=one_to_one, needs_teachers=True, has_members=True)
    perturbing = Perturbing("moved", moved, 2, True, (1, 1, 0, 0))
    assert perturbing == Perturbing("moved", moved, teachers=2, needs_members=True, passes=(1, 1, 0, 0))
    check_pair(method, perturbing, 2)
    with pytest.raises(ValueError, match="'moved' needs at least 2 teachers, got 1"):
        check_pair(method, perturbing, 1)
    with pytest.raises(ValueError, match="'moved' needs a student with members, and 'plain' trains a plain network"):
        check_pair(Method("plain", plain, kd), perturbing, 2)


def headed(net: nn.Module, members: int, example: Any = None) -> BatchEnsemble:
    """Of networks with a head only."""
    return batch_ensemble(net, members, keep=["head"], example=example)


def test_the_student_says_whether_it_has_members() -> None:
    for student, expected in ((plain, False), (be, True), (latent_be, True)):
        assert Method("mine", student, kd).has_members is expected
        assert Method("mine", student, kd, has_members=not expected).has_members is expected
        assert dataclasses.replace(METHODS["kd"], student=student).has_members is expected
        assert dataclasses.replace(METHODS["be"], student=student).has_members is expected
    check_pair(Method("mine", latent_be, one_to_one), PERTURBATIONS["tdiv-sdiv"], 2)
    with pytest.raises(ValueError, match="no module 'head'"):
        headed(nn.Linear(2, 2), 2)
    assert Method("mine", headed, one_to_one).has_members
    assert not Method("mine", headed, one_to_one, has_members=False).has_members


def test_looking_at_a_student_leaves_no_trace() -> None:
    before = torch.get_rng_state()
    Method("mine", be, one_to_one)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_tables_agree_with_what_is_known_without_torch() -> None:
    assert list(METHODS) == list(METHOD_NEEDS)
    assert list(PERTURBATIONS) == list(PERTURBATION_NEEDS)
    for table, needs in ((METHODS, METHOD_NEEDS), (PERTURBATIONS, PERTURBATION_NEEDS)):
        for name, entry in table.items():
            assert vars(entry).items() >= vars(needs[name]).items()
