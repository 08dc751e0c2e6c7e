"""The catalogue on CUDA: without a GPU every entry is read and compiled; with one, every entry is judged."""

from __future__ import annotations

import ast
import concurrent.futures
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

from catalogue_cuda import judging
from catalogue_cuda.judging import Entry
from kforge import Outcome, Problem

HACKS, BENIGN = judging.entries("hacks"), judging.entries("benign")
EVERY = HACKS + BENIGN

GROUPS = ("timing_", "semantics_", "bypass_", "attack_")
KEYS = {
    "hacks": {
        "problem",
        "refused",
        "rule",
        "twin",
        "hack",
        "dtype",
        "policy",
        "neutralised",
        "needs",
        "slow",
        "platform",
        "open",
    },
    "benign": {"problem", "honest", "dtype", "policy", "needs", "slow", "platform"},
}
REQUIRED = {"hacks": {"problem", "refused", "twin", "hack"}, "benign": {"problem", "honest"}}
ALLOWED = {
    "dtype": {"bfloat16", "float16"},
    "policy": {"strict", "hybrid", "any"},
    "neutralised": {"yes"},
    "slow": {"yes"},
    "open": {"yes"},
    "platform": {"cuda", "triton"},
    "needs": {"sandbox", "nvcc", "sm_90"},
    "refused": {outcome.value for outcome in Outcome} - {"correct", "generation_failure"},
}
REFUSED_BY_TEXT = {"bypass_embedded_bytes", "attack_walk_frames"}
"""Hacks that their text alone gives away."""
DOES_NOT_COMPILE = {"bypass_fallback_on_build"}
UNKNOWN_TO_NVRTC = r"\bstd::|\bINFINITY\b|\bNAN\b|\bFLT_\w+|\bu?int\d+_t\b|\bassert\s*\("
HEADERS = {"cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h", "cooperative_groups/reduce.h"}


def parameters(chosen: list[Entry]) -> list[object]:
    return [
        pytest.param(entry, id=entry.path.stem, marks=[pytest.mark.slow] if entry.is_slow else []) for entry in chosen
    ]


def kernel_source(entry: Entry) -> str:
    """The CUDA C++ that an entry hands to NVRTC; empty if it has none."""
    for node in ast.parse(entry.path.read_text()).body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", "") for target in node.targets] == ["SOURCE"]:
            return str(ast.literal_eval(node.value))
    return ""


# -- read ----------------------------------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize("entry", parameters(EVERY))
def test_header_is_complete(entry):
    folder = entry.path.parent.name
    assert set(entry.headers) <= KEYS[folder], f"unknown: {set(entry.headers) - KEYS[folder]}"
    assert set(entry.headers) >= REQUIRED[folder], f"missing: {REQUIRED[folder] - set(entry.headers)}"
    assert all(entry.headers.values()), "a header line is empty"
    for name, allowed in ALLOWED.items():
        assert entry.words(name) <= allowed, f"{name}: {entry.words(name) - allowed}"
    assert (judging.HERE / "problems" / f"{entry.headers['problem']}.py").is_file()
    if entry.is_hack:
        assert entry.path.stem.startswith(GROUPS)
        assert entry.headers["twin"] in {benign.path.stem for benign in BENIGN}
        assert "rule" not in entry.headers or "rejected" in entry.words("refused"), "a rule, and yet never rejected"


@pytest.mark.pure
def test_catalogue_is_as_large_as_it_was():
    assert len(HACKS) >= 100
    assert len(BENIGN) >= 50
    for group in GROUPS:
        assert sum(entry.path.stem.startswith(group) for entry in HACKS) >= 20


@pytest.mark.pure
@pytest.mark.parametrize("path", sorted((judging.HERE / "problems").glob("*.py")), ids=lambda path: path.stem)
def test_problem_is_one(path: Path):
    problem = Problem.from_file(path)
    assert re.search(r"^[A-Z]+ = \d+$", problem.source, re.MULTILINE), "sizes are module constants"
    assert any(entry.headers["problem"] == path.stem for entry in BENIGN), "no honest program solves it"


@pytest.mark.cpu
def test_rules_exist():
    from kforge.worker.judge.explain import RULES

    for entry in HACKS:
        assert entry.words("rule") <= set(RULES), f"{entry.path.stem}: {entry.words('rule') - set(RULES)}"


@pytest.mark.cpu
@pytest.mark.parametrize("entry", parameters(EVERY))
def test_text(entry):
    """What the judge sees before anything runs: a valid program, given away by its text only where that is meant."""
    from kforge.worker.judge import static_rules

    text = entry.path.read_text()
    assert not static_rules.syntax_error(text)
    assert static_rules.defines_class(text, "ModelNew")
    found = {finding.rule for finding in static_rules.scan(text)}
    if not entry.is_hack:
        assert not found
    elif entry.path.stem in REFUSED_BY_TEXT:
        assert found == entry.words("rule")
    elif found:
        assert "rule" in entry.headers, "refused by its text, where it is meant to be refused for what it does"
        assert found <= entry.words("rule")


@pytest.mark.pure
@pytest.mark.parametrize("entry", parameters([entry for entry in EVERY if not entry.path.stem.startswith("bypass_")]))
def test_entry_has_a_kernel(entry):
    """Otherwise it would be refused for that, and what it is there for would never be reached."""
    text, source = entry.path.read_text(), kernel_source(entry)
    if entry.platform == "triton":
        assert "@triton.jit" in text
    elif not entry.is_slow:
        declared = set(re.findall(r"__global__ void (\w+)\(", source))
        # The driver is asked for those that run in a context of their own.
        asked_for = {name for name in declared if f'"{name}"' in text}
        assert set(re.findall(r"get_kernel\(\"(\w+)\"\)", text)) | asked_for == declared


@pytest.mark.pure
@pytest.mark.parametrize("entry", parameters([entry for entry in EVERY if entry.platform == "triton"]))
def test_triton_kernels_are_launched_as_declared(entry):
    """Every launch names a kernel of the file and gives each of its parameters once."""
    tree = ast.parse(entry.path.read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    marks = {name: [ast.unparse(mark) for mark in node.decorator_list] for name, node in functions.items()}
    launches = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)]
    for call in launches:
        name = ast.unparse(call.func.value)
        assert "triton.jit" in marks.get(name, []), f"{name} is no kernel of this file"
        tuned = {"block"} if any(mark.startswith("triton.autotune") for mark in marks[name]) else set()
        wanted = {argument.arg for argument in functions[name].args.args[len(call.args) :]} - tuned
        assert {keyword.arg for keyword in call.keywords} - {"num_warps", "num_stages"} == wanted
    assert launches or entry.path.stem.startswith("bypass_")


@pytest.mark.pure
@pytest.mark.parametrize("entry", parameters([entry for entry in EVERY if kernel_source(entry)]))
def test_source_is_within_what_nvrtc_knows(entry):
    source = kernel_source(entry)
    unknown = re.search(UNKNOWN_TO_NVRTC, source)
    assert unknown is None, f"NVRTC has no {unknown[0]}"
    included = set(re.findall(r"#include <(.*)>", source))
    assert included <= HEADERS, f"not among CUDA's own headers: {included - HEADERS}"
    assert not included or "include_path=" in entry.path.read_text()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("folder", "headers", "outcome", "rule", "interval", "wrong"),
    [
        ("benign", {}, Outcome.CORRECT, "", (1.5, 1.6), ""),
        ("benign", {}, Outcome.REJECTED, "not_idle", None, "refused"),
        ("hacks", {"refused": "mismatch"}, Outcome.MISMATCH, "", None, ""),
        ("hacks", {"refused": "mismatch"}, Outcome.CORRECT, "", (0.9, 1.0), "accepted"),
        ("hacks", {"refused": "mismatch"}, Outcome.RUNTIME_ERROR, "", None, "another reason"),
        ("hacks", {"refused": "rejected", "rule": "network, protocol"}, Outcome.REJECTED, "protocol", None, ""),
        ("hacks", {"refused": "rejected", "rule": "network"}, Outcome.REJECTED, "not_idle", None, "another rule"),
        ("hacks", {"refused": "rejected", "neutralised": "yes"}, Outcome.CORRECT, "", (0.9, 1.4), ""),
        ("hacks", {"refused": "rejected", "neutralised": "yes"}, Outcome.CORRECT, "", (1.2, 1.4), "paid"),
    ],
)
def test_a_wrong_verdict_is_noticed(folder, headers, outcome, rule, interval, wrong):
    entry = Entry(judging.HERE / folder / "any.py", headers)
    verdict = types.SimpleNamespace(outcome=outcome, rule=rule, detail="", interval=interval)
    said = judging.fault(entry, verdict)
    assert wrong in said
    assert bool(said) == bool(wrong)


# -- compiled ------------------------------------------------------------------------------------------------------


def together(chosen: list[Entry]) -> str:
    """Their sources as one file, each in a namespace of its own, with the lines counted from each file's own."""
    seen: dict[str, str] = {}
    includes: set[str] = set()
    for entry in chosen:
        text, source = entry.path.read_text(), kernel_source(entry)
        if source in seen:
            continue
        includes |= set(re.findall(r"^#include .*$", source, re.MULTILINE))
        line = text[: text.index('SOURCE = r"""')].count("\n") + 1
        body = re.sub(r"^#include .*$", "", source, flags=re.MULTILINE).replace('extern "C" ', "")
        head = f"namespace {entry.path.parent.name}_{entry.path.stem} {{"
        seen[source] = f'{head}\n#line {line} "{entry.path.name}"\n{body}\n}}\n'
    return "\n".join([*sorted(includes), *seen.values()])


def nvcc(source: str, folder: Path) -> str:
    """What the compiler says against it; empty if nothing."""
    folder.mkdir()
    (folder / "kernels.cu").write_text(source)
    target = ["-gencode=arch=compute_90a,code=sm_90a", "-std=c++17", "-cubin", "-o", str(folder / "kernels.cubin")]
    command = ["nvcc", *target, str(folder / "kernels.cu")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.toolchain
def test_every_source_compiles(tmp_path):
    if not shutil.which("nvcc"):
        pytest.skip("tier toolchain: no nvcc (CUDA's toolkit)")
    with_source = [entry for entry in EVERY if kernel_source(entry)]
    sound = [entry for entry in with_source if entry.path.stem not in DOES_NOT_COMPILE]
    broken = [entry for entry in with_source if entry.path.stem in DOES_NOT_COMPILE]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        halves = [pool.submit(nvcc, together(sound[start::2]), tmp_path / f"sound{start}") for start in range(2)]
        fails = [pool.submit(nvcc, together([entry]), tmp_path / entry.path.stem) for entry in broken]
        complaints = [half.result() for half in halves]
    assert not any(complaints), "\n".join(complaints)
    assert fails
    assert all("error" in fail.result() for fail in fails)


# -- judged --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench():
    torch = pytest.importorskip("torch", reason="tier accelerator: torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("tier accelerator: torch sees no CUDA device")
    with judging.Bench() as bench:
        yield bench


@pytest.mark.accelerator
@pytest.mark.parametrize("entry", parameters(judging.in_order(EVERY)))
def test_entry_is_judged_rightly(bench, entry):
    """A hack is refused for its own reason, a benign twin is accepted."""
    if entry.is_open:
        pytest.xfail("the judge is known to be wrong about it")
    missing = judging.not_here_because(entry)
    if missing:
        pytest.skip(missing)
    wrong = judging.fault_beside_twin(bench, entry, bench.verdict(entry))
    assert not wrong, wrong


if __name__ == "__main__":
    sys.exit(judging.main(sys.argv[1:]))
