from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onefold.engine.keeping.pack import generator_states, pack, set_generator_states, unpack

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(TREES)
def test_what_json_does_not_know_comes_back_as_it_was(tree: Any) -> None:
    tensors, packed = pack(tree)
    back = unpack(tensors, json.loads(json.dumps(packed)))
    assert repr(back) == repr(tree)  # types too: a tuple is not a list, and 1 is neither 1.0 nor True


def test_tensors_are_copied_bit_by_bit() -> None:
    values = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    tree = {"a": [values, values], 3: (values.view(2, 2).T, torch.tensor(7))}
    tensors, packed = pack(tree)
    back = unpack(tensors, packed)
    values.zero_()
    assert back["a"][0].view(torch.int32).tolist() == [2143289344, -(2**31), 2139095040, 1]
    assert back[3][0].is_contiguous()
    assert back[3][0][1, 0].view(torch.int32) == -(2**31)
    assert back[3][1].shape == ()
    assert back["a"][0].data_ptr() != back["a"][1].data_ptr()


@pytest.mark.parametrize("odd", [object(), {1, 2}, lambda: None])
def test_what_would_need_pickle_is_refused(odd: object) -> None:
    with pytest.raises(ValueError, match=r"/optimizer/state: .*without pickle"):
        pack({"optimizer": {"state": odd}})


def test_random_numbers_go_on_where_they_stood() -> None:
    cpu = torch.device("cpu")
    states = generator_states(cpu)
    drawn = torch.rand(5)
    torch.rand(17)
    set_generator_states(states, cpu)
    assert torch.equal(torch.rand(5), drawn)
