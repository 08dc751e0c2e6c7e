"""What compiling on the controller costs each program, and what it finds: honest programs, whole and with a fault.

    python benchmarks/early_compilation.py [--limit N]

It needs the extra nvrtc and no GPU. The programs are those of tests/catalogue_cuda/benign; the fault is a semicolon
that is left out of a kernel's text.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from kforge.execution.nvrtc_availability import unavailable_reason
from kforge.platforms._nvidia.run_time_compiler import nvrtc_version
from kforge.types import Candidate, Job, Problem
from kforge.worker.judge.early_compiler import EarlyCompiler

PROGRAMS = Path(__file__).parents[1] / "tests" / "catalogue_cuda" / "benign"
DEVICE = {"processor": "NVIDIA H200", "capability": "9.0", "multiprocessors": "132", "nvrtc": nvrtc_version()}
PROBLEM = Problem("sample", "class Model: ...")


def with_fault(source: str) -> str:
    """The program without the last semicolon of its first kernel; empty where it has no text of one."""
    kernel = source.find("__global__")
    end = source.find('"""', kernel)
    place = source.rfind(";", kernel, end)
    return source[:place] + source[place + 1 :] if -1 < kernel < place else ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=1000)
    limit = parser.parse_args().limit
    reason = unavailable_reason()
    if reason:
        raise SystemExit(f"programs cannot be compiled here: {reason}")
    compiler = EarlyCompiler()

    def judge(source: str) -> tuple[bool, float]:
        began = time.monotonic()
        report = compiler.report(Job("0", PROBLEM, Candidate(source, "cuda")), [DEVICE])
        return report is not None, time.monotonic() - began

    began = time.monotonic()
    paths = sorted(PROGRAMS.glob("*.py"))[:limit]
    judge(paths[0].read_text())
    print(f"the first program, with what is started once: {time.monotonic() - began:.1f} s")
    whole = {path.stem: judge(path.read_text()) for path in paths}
    faulty = {path.stem: judge(text) for path in paths if (text := with_fault(path.read_text()))}
    for name, results in (("whole", whole), ("with a fault", faulty)):
        seconds = [each for _, each in results.values()]
        refused = sorted(program for program, (is_refused, _) in results.items() if is_refused)
        print(
            f"{name}: {len(results)} programs, {len(refused)} refused; seconds each: median "
            f"{statistics.median(seconds):.2f}, most {max(seconds):.2f}"
        )
        others = sorted(set(results) - set(refused)) if name != "whole" else refused
        print(f"  {'refused' if name == 'whole' else 'left to the device'}: {', '.join(others) or 'none'}")
    compiler.close()


if __name__ == "__main__":
    main()
