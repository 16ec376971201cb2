"""Measures inference time: the collapsed student compared with the plain network, the ensemble and the BE student.

    python benchmarks/inference.py [--network 1] [--device cuda] [--onnx] [--out FILE]

Prints ratios to the plain network: networks take turns in rounds, and the result is the median over the rounds' ratios.
The collapsed student, whose ratio should be one, gets further rounds with only the plain network. `--onnx` adds ONNX
Runtime on the CPU (pip install onnx onnxscript onnxruntime).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import onefold
from onefold.engine.keeping.environment import environment, now, version
from onefold.models import wrn28

MEMBERS = 4
BATCHES = (1, 512)
PLAIN, COLLAPSED = "plain network", "collapsed student"


class Mean(nn.Module):
    """The mean of members' probabilities, as it would be served."""

    def __init__(self, members: nn.Module) -> None:
        super().__init__()
        self.members = members

    def forward(self, x: Tensor) -> Tensor:
        answers: Tensor = self.members(x)  # [M, B, K]
        return answers.softmax(-1).mean(0)


def networks(width: int) -> dict[str, nn.Module]:
    """All networks in evaluation mode, with factors different from one."""
    torch.manual_seed(0)
    teachers = onefold.Teachers([wrn28(width) for _ in range(MEMBERS)])
    student = onefold.batch_ensemble(wrn28(width), MEMBERS, init="normal", example=torch.rand(2, 3, 32, 32))
    return {
        PLAIN: wrn28(width).eval(),
        COLLAPSED: onefold.collapse(student).eval(),
        "ensemble of 4": Mean(teachers).eval(),
        "BE student, 4 members": Mean(student.eval()).eval(),
    }


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def rounds(ways: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Times each way in turn, for as many rounds as fit into the time, so that other load affects all equally."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        for _ in range(3):
            way()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[next(iter(times))]) < 5:
        for name, way in ways.items():
            wait()
            begin = time.perf_counter()
            way()
            wait()
            times[name].append(time.perf_counter() - begin)
    return times


def ratio_of(times: list[float], plain: list[float]) -> tuple[float, int]:
    """The median of the ratios in each round, and the number of rounds."""
    return statistics.median(t / p for t, p in zip(times, plain, strict=True)), len(times)


def onnx_session(net: nn.Module, x: Tensor, folder: Path) -> Callable[[], object]:
    import onnxruntime

    path = folder / f"{id(net)}.onnx"
    torch.onnx.export(net, (x,), str(path), dynamo=True, verbose=False)
    options = onnxruntime.SessionOptions()
    # Otherwise, the threads of one session are still spinning, and in the way, when the next one runs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, given)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=int, default=1, help="width k of WRN28xk")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each way and batch")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    nets = networks(args.network)
    table = []
    with tempfile.TemporaryDirectory() as folder:
        wanted = {"eager": not args.no_eager, "compiled": not args.no_compile, "onnx on the CPU": args.onnx}
        for how in (how for how, asked in wanted.items() if asked):
            device = torch.device("cpu" if how.startswith("onnx") else args.device)
            for batch in args.batches:
                x = torch.rand(batch, 3, 32, 32, device=device)
                ways: dict[str, Callable[[], object]] = {}
                for name, net in nets.items():
                    net.to(device)
                    if how.startswith("onnx"):
                        ways[name] = onnx_session(net, x, Path(folder))
                    else:
                        called: Callable[..., object] = torch.compile(net, dynamic=False) if how == "compiled" else net
                        ways[name] = partial(called, x)
                times = rounds(ways, args.seconds)
                close = rounds({name: ways[name] for name in (PLAIN, COLLAPSED)}, args.seconds)
                for name, each in times.items():
                    ratio, count = ratio_of(
                        *((close[name], close[PLAIN]) if name == COLLAPSED else (each, times[PLAIN]))
                    )
                    median = statistics.median(each)
                    row = {"how": how, "batch": batch, "what": name, "ms_per_image": 1e3 * median / batch}
                    table.append(row | {"ratio": ratio, "rounds": count})
                    print(f"{how:16} batch {batch:3}  {name:22} {1e3 * median:9.3f} ms  {ratio:5.2f}", flush=True)
    if args.out:
        about = environment(torch.device(args.device))
        about["libraries"] |= {name: version(name) for name in ("onnx", "onnxruntime")}
        args.out.write_text(json.dumps({"date": now(), "environment": about, "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
