"""The command line and batches: exit statuses, resuming, and a host that has only Python and torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from faults import program

HERE = Path(__file__).parents[1]
KFORGE = [sys.executable, "-m", "kforge.cli.app"]
PROBLEM = HERE / "catalogue/problems/scale_relu.py"
ROWS = """import torch
import torch.nn as nn
ROWS = 128
KFORGE = {"workloads": [{"ROWS": 256}, {"ROWS": 64, "weight": 3}], "dynamic": {"ROWS": (1, 512)}}
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1) if x.shape[0] > 100 else torch.zeros_like(x) * x
def get_inputs():
    return [torch.randn(ROWS, 1024)]
def get_init_inputs():
    return []
"""
QUICK = {"compile_baseline": False, "timing_seconds": 0.05, "seeds": 2}


def kforge(*words, **options):
    return subprocess.run([*KFORGE, *map(str, words)], capture_output=True, text=True, check=False, **options)


def jobs_file(tmp_path, *candidates):
    lines = []
    for number, source in enumerate(candidates):
        (tmp_path / f"c{number}.py").write_text(source)
        lines.append(
            json.dumps({"id": f"job{number}", "problem": str(PROBLEM), "candidate": f"c{number}.py", "settings": QUICK})
        )
    path = tmp_path / "jobs.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.pure
def test_the_command_line_starts_without_torch():
    code = "import sys, kforge.cli.app, kforge; assert 'torch' not in sys.modules and 'rich.console' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.pure
@pytest.mark.parametrize(
    "words", [["--help"], ["evaluate", "--help"], ["audit", "--help"], ["doctor", "--help"], ["--version"]]
)
def test_help(kforge_here, words):
    done = kforge_here(*words)
    assert done.returncode == 0
    assert done.stdout.strip()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evaluate"], "name a problem and a candidate"),
        (["evaluate", "nowhere.py", "nothing.py"], "nowhere.py: cannot be read"),
        (["evaluate", str(PROBLEM), "nothing.py"], "nothing.py: No such file"),
        (["evaluate", str(PROBLEM), "x.py", "--policy", "lax"], "strict"),
        (["evaluate", str(PROBLEM), "x.py", "--precision", "int3"], "precision"),
        (["evaluate", "--jobs", "x.jsonl"], "--out"),
        (["evaluate", "--jobs", "nowhere.jsonl", "--out", "out"], "nowhere.jsonl"),
        (["evaluate", "--replay", "nowhere.json"], "nowhere.json"),
        (["audit", "nowhere"], "nowhere"),
    ],
)
def test_usage_errors_exit_with_2_and_say_what_is_wrong(kforge_here, words, says):
    done = kforge_here(*words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.pure
def test_an_unknown_platform_lists_the_known(kforge_here, tmp_path):
    (tmp_path / "c.py").write_text("class ModelNew: pass")
    done = kforge_here("evaluate", PROBLEM, tmp_path / "c.py", "--platform", "abacus")
    assert done.returncode == 2
    assert "there are: cpu" in done.stderr


@pytest.mark.toolchain
def test_exit_status_and_sentence_of_a_verdict(tmp_path):
    (tmp_path / "bad.py").write_text(program(native="float q = undefined_name;"))
    done = kforge("evaluate", PROBLEM, tmp_path / "bad.py", "--timing-seconds", "0")
    assert done.returncode == 1
    assert "compilation_failure" in done.stdout
    assert "undefined_name" in done.stdout


@pytest.mark.toolchain
def test_doctor(kforge_here):
    done = kforge_here("doctor", "--json")
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["platforms"]["cpu"]["absent"] == ""
    for level in ("bubblewrap", "unshare", "process"):
        entry = found["sandbox"][level]
        assert entry["absent"] or entry["detail"]
    assert kforge_here("doctor").returncode == 0


@pytest.mark.cpu
def test_audit(kforge_here, tmp_path):
    good = kforge_here("audit", PROBLEM)
    assert good.returncode == 0
    assert "sound" in good.stdout
    flat = PROBLEM.read_text().replace("return F.leaky_relu(x, self.slope) * self.scale", "return torch.ones(3) * 2")
    (tmp_path / "flat.py").write_text(flat)
    (tmp_path / "broken.py").write_text(PROBLEM.read_text().replace("return [torch.randn", "return [torch.rnadn"))
    bad = kforge_here("audit", tmp_path / "flat.py", "--json")
    assert bad.returncode == 1
    assert any("input-independent" in reason for reason in json.loads(bad.stdout)["degenerate"])
    worse = kforge_here("audit", tmp_path / "broken.py")
    assert worse.returncode == 2
    assert "broken.py:" in worse.stdout.replace("\n", "")


@pytest.mark.cpu
def test_audit_looks_at_every_workload_and_says_which_there_are(kforge_here, tmp_path):
    (tmp_path / "rows.py").write_text(ROWS)
    found = json.loads(kforge_here("audit", tmp_path / "rows.py", "--json").stdout)
    assert found["workloads"] == [{"workload": "ROWS = 256", "weight": 1.0}, {"workload": "ROWS = 64", "weight": 3.0}]
    assert found["dynamic"] == [{"size": "ROWS", "low": 1, "high": 512, "step": 1}]
    assert found["error"] is None
    constant = [reason for reason in found["degenerate"] if "near-constant" in reason]
    assert constant
    assert all(reason.endswith(" (ROWS = 64)") for reason in constant)
    shown = " ".join(kforge_here("audit", tmp_path / "rows.py").stdout.split())
    assert "workloads: ROWS = 256 (weight 0.25); ROWS = 64 (weight 0.75)" in shown
    assert "any size: ROWS from 1 to 512" in shown


@pytest.mark.toolchain
def test_a_batch_is_resumed_where_it_stopped(kforge_warm, tmp_path):
    jobs = jobs_file(tmp_path, program(), program(after="y = y + 1"), program(top="import no_such_package"))
    out = tmp_path / "out"
    done = kforge_warm("evaluate", "--jobs", jobs, "--out", out)
    assert done.returncode == 1, done.stderr
    outcomes = {path.stem: json.loads(path.read_text())["verdict"]["outcome"] for path in out.glob("*.json")}
    assert outcomes == {"job0": "correct", "job1": "mismatch", "job2": "compilation_failure"}
    stamp = (out / "job0.json").stat().st_mtime_ns
    (out / "job1.json").unlink()
    (out / "job2.json").write_text("{ half a rep")
    again = kforge_warm("evaluate", "--jobs", jobs, "--out", out)
    assert "from an earlier run" in again.stdout
    assert (out / "job0.json").stat().st_mtime_ns == stamp
    assert json.loads((out / "job2.json").read_text())["verdict"]["outcome"] == "compilation_failure"
    (tmp_path / "c0.py").write_text(program(top="# another program"))
    kforge_warm("evaluate", "--jobs", jobs, "--out", out)
    assert (out / "job0.json").stat().st_mtime_ns != stamp


@pytest.mark.toolchain
def test_one_bad_problem_does_not_block_the_rest(kforge_warm, tmp_path):
    jobs = jobs_file(tmp_path, program())
    broken = tmp_path / "broken.py"
    broken.write_text(PROBLEM.read_text().replace("return F.leaky_relu", "return F.leeky_relu"))
    line = {"id": "odd", "problem": str(broken), "candidate": "c0.py", "settings": QUICK}
    jobs.write_text(json.dumps(line) + "\n" + jobs.read_text())
    done = kforge_warm("evaluate", "--jobs", jobs, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "leeky_relu" in done.stdout
    assert (tmp_path / "out/job0.json").exists()
    assert not (tmp_path / "out/odd.json").exists()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "jobs.jsonl:1"),
        ('{"problem": "p.py"}', "candidate"),
        ('{"problem": "nowhere.py", "candidate": "c.py"}', "nowhere.py"),
        ('{"problm": 1}', "no field 'problm'"),
        ('["a"]', "a job is a JSON object"),
    ],
)
def test_a_bad_jobs_file_names_the_line(kforge_here, tmp_path, line, says):
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text(line)
    done = kforge_here("evaluate", "--jobs", jobs, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "jobs.jsonl:1" in done.stderr
    assert says in done.stderr


@pytest.mark.toolchain
def test_interrupting_a_batch_loses_nothing_and_leaves_nothing(tmp_path):
    jobs = jobs_file(tmp_path, *[program(top=f"# {number}") for number in range(40)])
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*KFORGE, "evaluate", "--jobs", str(jobs), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    deadline = time.monotonic() + 120
    while len(list(out.glob("*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues" in said
    assert len(list(out.glob("*.json"))) >= 2
    assert not list(out.glob(".*"))
    time.sleep(0.5)
    leftover = [entry for entry in tmp_path.iterdir() if entry.name.startswith("kforge-")]
    assert leftover == []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            assert str(tmp_path).encode() not in text or b"pytest" in text, text


BARE = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("typer", "rich", "click", "numpy", "cloudpickle", "pydantic", "hypothesis"):
            raise ModuleNotFoundError(f"no {name} on this host", name=name)
sys.meta_path.insert(0, Block())
sys.argv = ["worker", *sys.argv[1:]]
import runpy, warnings
warnings.simplefilter("ignore")
runpy.run_module("kforge.worker", run_name="__main__")
"""


@pytest.mark.toolchain
def test_the_worker_needs_only_python_and_torch(tmp_path):
    jobs = jobs_file(tmp_path, program(), program(after="y = y + 1"))
    done = subprocess.run(
        [sys.executable, "-c", BARE, "--jobs", str(jobs), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "[2/2] job1: mismatch" in done.stdout
    report = json.loads((tmp_path / "out/job0.json").read_text())
    assert report["verdict"]["outcome"] == "correct"
