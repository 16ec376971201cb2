"""Counters of kernels: a graph's launches have their own, whichever thread makes them."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from onefold.fast.kernels import counters
from onefold.fast.kernels.counters import Counters, own_counters, taken

CPU = torch.device("cpu")


def within(piece: Tensor, sheet: Counters) -> bool:
    return piece.untyped_storage().data_ptr() == sheet.zeros.untyped_storage().data_ptr()


def test_a_backward_pass_takes_the_graph_s_counters() -> None:
    sheet, pieces = Counters(CPU), list[Tensor]()
    with own_counters(sheet):
        pieces.append(taken(CPU, 3))
        # On a GPU autograd has a thread of its own, whose context is empty.
        thread = threading.Thread(target=lambda: pieces.append(taken(CPU, 3)))
        thread.start()
        thread.join()
    assert all(within(piece, sheet) for piece in pieces)
    assert pieces[0].data_ptr() != pieces[1].data_ptr()
    outside = taken(CPU, 3)
    assert within(outside, counters.COMMON[CPU])
    assert not within(outside, sheet)


def test_pieces_are_aligned_and_apart_until_the_sheet_is_used_up() -> None:
    sheet = Counters(CPU, 16)
    places = [sheet.take(count).storage_offset() for count in (1, 5, 4, 2)]
    assert places == [0, 4, 12, 0]
