"""The command line: a verb, a recipe, and a flag for each field of the recipe."""

from __future__ import annotations

import errno
import importlib
import importlib.metadata
import io
import os
import select
import sys
import traceback
from collections.abc import Sequence

from rich.console import Console

from onefold.cli.arguments import HELP, parse
from onefold.cli.requests import (
    EXAMPLES,
    VERBS,
    Bench,
    Demo,
    Distill,
    Evaluate,
    Export,
    Plan,
    Report,
    Reproduce,
    Request,
    Train,
)
from onefold.cli.stopping import stoppable
from onefold.ending import INTERRUPTED, loading
from onefold.terminal import Speaker, fitted, hush, hushed

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FAILED, REFUSED, UNHEARD = 1, 2, 141
VERSION = ("-V", "--version")
MODULES: dict[type[Request], str] = {
    Demo: "run_demo",
    Train: "run_train",
    Distill: "run_train",
    Evaluate: "run_report",
    Report: "run_report",
    Export: "run_export",
    Bench: "run_bench",
    Plan: "run_plan",
    Reproduce: "run_reproduce",
}
WIDE = 1000  # width of tables where the output is no terminal: in a file or pipe, lines should not be broken


def main(argv: Sequence[str] | None = None) -> int:
    """Runs `onefold` with the given arguments, by default those of the process; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    tolerate()
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    try:
        if not words or words[0] in HELP:
            print(fitted(overview(), sys.stdout), flush=True)
            return 0 if words else REFUSED
        if words[0] in VERSION:
            print(f"onefold {version()}", flush=True)
            return 0
        with stoppable():
            with loading():
                request = parse(words)
            first = not several() or join() == 0
            if first or not isinstance(request, Evaluate | Report | Export):  # which the first process does alone
                carry_out(request, console())
        sys.stdout.flush()
    except SystemExit as end:  # help has been printed, or the error has already been reported
        return int(end.code or 0)
    except KeyboardInterrupt:
        return failed(interrupted(words[0]), INTERRUPTED, debug)
    except BrokenPipeError as error:  # if the reader of our output has exited, as `head` does, nobody sees a message
        return UNHEARD if unheard() else failed(sentence(error), REFUSED, debug)
    except (ValueError, OSError) as error:
        return failed(sentence(error), REFUSED, debug)
    except Exception as error:
        return failed(*ended(error), debug=debug) if not passed_on(error) else REFUSED
    return 0


def interrupted(verb: str) -> str:
    """The message after Ctrl-C; verbs that train can resume from a checkpoint."""
    if verb in ("demo", "train", "distill", "reproduce"):
        return "interrupted; run the same command again to resume from the last checkpoint"
    return "interrupted; run the same command again to measure the rest" if verb == "evaluate" else "interrupted"


def carry_out(request: Request, out: Console) -> None:
    """Carries out a request. Each verb imports only what it needs, after parsing, so that wrong flags fail at once."""
    with loading():
        verb = importlib.import_module(f"onefold.cli.{MODULES[type(request)]}")
    verb.run(request, out)


def several() -> bool:
    """Whether torchrun, or something like it, started this process as one of several."""
    return {"RANK", "WORLD_SIZE"} <= os.environ.keys()


def join() -> int:
    """Joins the other processes: from here on only the first one prints, and all end if one fails. Returns the rank."""
    from onefold.engine.distributed import join_the_others

    rank = join_the_others()
    if rank != 0:
        hush()
    return rank


def tolerate() -> None:
    """Prints a question mark for characters that the terminal's encoding lacks, instead of failing."""
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def console() -> Console:
    """The console that results are printed to."""
    out = Speaker(quiet=hushed())
    return out if out.is_terminal else Speaker(width=WIDE, quiet=hushed())


def failed(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    if several():
        from onefold.engine.distributed import may_speak

        # A process that was asked to stop has saved everything, and so have the others, which were asked as well.
        if not may_speak(code, end_others=code != INTERRUPTED):
            return code
    print(fitted(f"onefold: {text}", sys.stderr), file=sys.stderr)
    return code


def unheard() -> bool:
    """Whether nobody reads our output any more; if so, what is still buffered at exit is discarded."""
    gone = [stream for stream in (sys.stdout, sys.stderr) if left(stream.fileno())]
    for stream in gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return bool(gone)


def left(number: int) -> bool:
    """Whether the other end of a pipe has been closed."""
    poll = select.poll()
    poll.register(number, select.POLLERR)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def sentence(error: ValueError | OSError) -> str:
    """The message for an error; if it comes from the operating system, with the file it is about."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    if error.errno is None or error.strerror != os.strerror(error.errno):
        return error.strerror  # a message of our own
    place = f"{error.filename}: " if error.filename else ""
    remedy = "free up space and run the command again" if error.errno in FULL else "check the path and its permissions"
    return f"{place}{error.strerror.lower()}; {remedy}"


def ended(error: Exception) -> tuple[str, int]:
    """The message for a run that ended early, and the exit code."""
    from onefold.engine import Diverged, Interrupted
    from onefold.engine.distributed import Lost

    if isinstance(error, Interrupted):
        return str(error), INTERRUPTED
    if isinstance(error, Diverged):
        return str(error), FAILED
    if isinstance(error, Lost):
        return f"{error}; run the same command again to resume from the last checkpoint", FAILED
    return f"{type(error).__name__}: {error} (unexpected; --debug shows the traceback)", FAILED


def passed_on(error: Exception) -> bool:
    """Whether the error comes from the first process, which reports it itself."""
    from onefold.engine.distributed import Abandoned

    return isinstance(error, Abandoned)


def version() -> str:
    """The installed version; a source tree that was never installed has none."""
    try:
        return importlib.metadata.version("onefold")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def overview() -> str:
    """The overview of all verbs, one line each."""
    width = max(len(verb) for verb in VERBS)
    verbs = "\n".join(f"  {verb:<{width}}  {kind.__doc__}" for verb, kind in VERBS.items())
    examples = "\n".join(f"  {EXAMPLES[kind][0]}" for kind in VERBS.values())
    return (
        "onefold turns a deep ensemble into one network.\n\n"
        f"usage: onefold VERB ...\n\n{verbs}\n\nExamples:\n{examples}\n\n"
        "'onefold VERB --help' shows the flags of a verb, 'onefold train RECIPE --help' those of a recipe with its "
        "settings as defaults, 'onefold --version' the version."
    )
