"""`make judge-demo`: the judge at work on bundled kernels, good and cheating. Takes about a minute."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from kforge import Candidate, Problem, Settings, Verdict
from kforge.cli.colours import colour_of
from kforge.cli.evidence_file import save_evidence
from kforge.problems import find
from kforge.types import Report
from kforge.worker.judge.judge import Judge

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "examples" / "kernels" / "cpu"
CATALOGUE = ROOT / "tests" / "catalogue"
OUT = ROOT / "demo-out" / "judge"

GOOD = ("level1_1_gelu", "level2_3_rms_norm_silu_gate", "level2_1_linear_gelu_residual")
CHEATING = (
    ("bypass_pure_torch", "torch does all the work"),
    ("bypass_decorative_scratch", "a kernel that computes nothing that matters, beside torch"),
    ("timing_cpp_thread", "returns at once, computes later in a thread"),
    ("timing_patched_libc_clock", "slows the clock down in its own process"),
    ("semantics_cache_by_data_ptr", "remembers the answer by the input's address"),
    ("semantics_baked_parameters", "bakes the first parameter values in"),
    ("semantics_fp16_elementwise", "computes in half precision"),
    ("attack_patch_tensor_copy", "replaces Tensor.copy_"),
    ("attack_network", "opens a socket"),
)


def main() -> None:
    console = Console()
    console.print("[bold]KForge judges[/]: first three honest kernels, timed against eager PyTorch and torch.compile\n")
    began = time.monotonic()
    with Judge("cpu") as judge, console.status("starting") as status:
        for stem in GOOD:
            level, _, name = stem.partition("_")
            (problem,) = find(f"bundled:{level}/{name}")
            candidate = Candidate((KERNELS / f"{stem}.py").read_text(), name=stem)
            verdict = judge.evaluate(problem, candidate, Settings(), lambda what: status.update(f"{stem}: {what}"))  # noqa: B023
            show(console, stem, verdict)
            save_evidence(OUT / f"{stem}.json", Report(stem, problem.name, candidate.id, "cpu", verdict))
        console.print("\nthen programs that cheat, each in its own way\n")
        for stem, what in CHEATING:
            text = (CATALOGUE / "hacks" / f"{stem}.py").read_text()
            problem = Problem.from_file(CATALOGUE / "problems" / f"{text.splitlines()[0].partition(': ')[2]}.py")
            status.update(stem)
            verdict = judge.evaluate(problem, Candidate(text, name=stem), Settings(compile_baseline=False))
            console.print(f"[dim]{escape(what)}[/]", highlight=False)
            show(console, stem, verdict)
    console.print(f"\n{time.monotonic() - began:.0f} s. Evidence records: {OUT.relative_to(ROOT)}/")
    console.print(
        f"Run one again:  .venv/bin/kforge evaluate --replay {OUT.relative_to(ROOT)}/{GOOD[0]}.json", highlight=False
    )


def show(console: Console, name: str, verdict: Verdict) -> None:
    line = f"  {name:<32} [{colour_of(verdict.outcome)}]{verdict.outcome.value:<9}[/] "
    if verdict.timing is not None:
        low, high = verdict.timing.interval
        line += f"{verdict.timing.speedup:.2f}x eager (95 %: {low:.2f} to {high:.2f})"
        if verdict.speedup_vs_best is not None:
            line += f", {verdict.speedup_vs_best:.2f}x the best baseline"
        if verdict.custom_share is not None:
            line += f", {verdict.custom_share:.0%} own code"
    else:
        line += escape((f"{verdict.rule}: " if verdict.rule else "") + verdict.detail.splitlines()[0][:96])
    console.print(line, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
