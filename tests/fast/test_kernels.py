"""The Triton kernels against their description in torch: on a GPU, or in Triton's interpreter elsewhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

CHECK = Path(__file__).parent / "kernels_agree.py"


def cannot_loop() -> bool:
    """Triton's interpreter before 3.7 takes `int` of an array `[1]` for the end of a loop, which NumPy 2.4 refuses."""
    if importlib.util.find_spec("triton") is None:
        return False
    import triton

    def release(version: str) -> tuple[int, ...]:
        return tuple(int(part) for part in version.split(".")[:2])

    return release(triton.__version__) < (3, 7) and release(numpy.__version__) >= (2, 4)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
@pytest.mark.skipif(cannot_loop(), reason="the interpreter of Triton before 3.7 cannot loop with NumPy 2.4 or later")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, where tests/gpu runs them")
def test_kernels_compute_what_their_description_says() -> None:
    # A process of its own: the interpreter has to be chosen before the kernels are imported.
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(CHECK)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("kernels agree")
