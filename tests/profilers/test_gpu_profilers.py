"""The profilers for GPUs: what they read, what they run, and why they are absent; most of it without a GPU."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import math
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kforge.profilers import (
    _ceilings,
    _cuda_tools,
    _ncu_table,
    _sass_text,
    digest,
    ncu,
    nsys,
    roofline,
    sass,
    torch_trace,
)
from kforge.profilers._kernel_names import is_library, short_name
from kforge.profilers.base import NothingSeen, StandaloneRun
from kforge.types import ErrorNorm, Outcome, Profile, Verdict
from planted import FOLDER, LIMITERS, table

FIXTURES = FOLDER.parent
VERDICT = Verdict(Outcome.CORRECT, "fine", errors=(ErrorNorm("natural", 0.0, 1e-4, 0.0),))


def tool(folder, name, script):
    """A program of this name on the PATH."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def context(home, device="cuda", timed=1e5, program=("true",)):
    """A bench whose `alone` really runs the command, in a folder of its own."""

    def standalone(command, files=(), seconds=120.0):
        words = [word.replace("{home}", str(home)) for word in command]
        done = subprocess.run([*words, *program], capture_output=True, text=True, check=False, timeout=seconds)
        found = {
            str(path.relative_to(home)): path.read_bytes()
            for name in files
            for path in home.glob(name)
            if path.is_file()
        }
        return StandaloneRun(done.returncode, done.stdout, done.stderr, found, 0.0)

    timing = SimpleNamespace(candidate_ns=(timed,)) if timed else None
    return SimpleNamespace(
        standalone=standalone,
        platform=SimpleNamespace(device=device, name=device),
        verdict=SimpleNamespace(timing=timing),
        earlier={},
    )


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.pure
@pytest.mark.parametrize(
    ("name", "plain", "library"),
    [
        ("tiny(const float *, float *, int)", "tiny", False),
        ("_Z11uncoalescedPKfPfii", "uncoalesced", False),
        (
            "void at::native::reduce_kernel<(int)512, (int)1, at::native::Op<float>>(T3)",
            "at::native::reduce_kernel",
            True,
        ),
        ("void (anonymous namespace)::rows<float, 4>(float const*)", "rows", False),
        ("triton_poi_fused_gelu_0", "triton_poi_fused_gelu_0", False),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT", True),
        ("", "unnamed", False),
        ("`; rm -rf <b>", "-rf", False),
        ("`a;b`", "_a_b_", False),
    ],
)
def test_a_kernel_goes_by_a_short_name(name, plain, library):
    assert short_name(name) == plain
    assert is_library(name) is library


@pytest.mark.pure
@given(st.text(max_size=300))
def test_any_name_becomes_one_that_can_be_printed(name):
    plain = short_name(name)
    assert 0 < len(plain) <= 48
    assert "`" not in plain
    assert "\n" not in plain


# -- ncu ---------------------------------------------------------------------------------------------------------------


@pytest.mark.pure
def test_counters_are_read_in_base_units_whatever_the_table_says():
    [kernel] = _ncu_table.kernels(table("memory_bound"))
    assert (kernel.name, kernel.launches, kernel.time_ns) == ("memory_bound", 1, 537_504.0)
    assert kernel.numbers["dram_bytes"] == 1_073_758_720 + 1_052_991_232
    assert kernel.numbers["load_sectors"] == 16
    assert kernel.numbers["load_use"] == 1.0
    head, units, row = (line for line in table("memory_bound").splitlines() if line.startswith('"'))
    where = head.split('","').index("gpu__time_duration.sum")
    cells, names = row.split('","'), units.split('","')
    cells[where], names[where] = "537.504", "us"
    scaled = "\n".join([head, '","'.join(names), '","'.join(cells)])
    assert _ncu_table.kernels(scaled)[0].time_ns == pytest.approx(537_504.0)


@pytest.mark.pure
def test_launches_of_one_kernel_are_taken_together():
    [kernel] = _ncu_table.kernels(table("tiny"))
    assert kernel.launches == 20
    assert 2000 < kernel.time_ns / 20 < 2600
    assert kernel.numbers["grid_size"] == 16
    assert sum(value for name, value in kernel.numbers.items() if name.startswith("stall/")) <= 1


@pytest.mark.pure
def test_without_the_bytes_in_a_sector_the_sectors_of_a_request_tell():
    text = table("uncoalesced").replace("smsp__sass_average_data_bytes_per_sector", "no_such_counter")
    [kernel] = _ncu_table.kernels(text)
    assert kernel.numbers["load_use"] == 0.5
    [wide] = _ncu_table.kernels(table("memory_bound").replace("smsp__sass_average_data_bytes", "no_such_counter"))
    assert wide.numbers["load_use"] == 1.0


@pytest.mark.pure
@pytest.mark.parametrize("text", ["", "ok\n", '"ID","Kernel Name"\n', '"ID","Kernel Name"\n"",""\n"0","k"\n'])
def test_no_table_is_no_profile(text):
    with pytest.raises(NothingSeen):
        ncu.profile_of(text)


CELLS = st.sampled_from(["", "n/a", "nan", "-1", "1,024", "inf", '"', "9" * 400, "2.5"])


@pytest.mark.pure
@given(st.lists(st.lists(CELLS, min_size=4, max_size=5), max_size=5))
def test_a_table_of_nonsense_gives_sound_numbers_or_none(rows):
    body = "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
    head = '"ID","Kernel Name","gpu__time_duration.sum","l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"'
    try:
        profile = ncu.profile_of(f"{head}\n{body}")
    except NothingSeen:
        return
    assert all(math.isfinite(value) and value >= 0 for value in profile.metrics.values())
    assert profile.metrics["time_ns"] > 0


@pytest.mark.pure
def test_ncu_looks_at_one_call_with_the_clocks_as_they_are(tmp_path, monkeypatch):
    home, tools = tmp_path / "home", tmp_path / "tools"
    home.mkdir()
    tools.mkdir()
    recorded = FOLDER / "bank_conflicts.csv"
    fake = f'echo "$@" > {home}/words\nwhile [ "$1" != --log-file ]; do shift; done\ncp {recorded} "$2"\necho chatter'
    tool(tools, "ncu", fake)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    profile = ncu.Ncu().collect(context(home))
    words = (home / "words").read_text()
    for needed in (
        "--profile-from-start off",
        "--clock-control none",
        f"--launch-count {ncu.MOST_LAUNCHES}",
        "--csv --page raw",
    ):
        assert needed in words
    assert words.rstrip().endswith("true")
    assert profile.metrics["share/bank_conflicts"] == 1.0
    assert profile.raw[0].name == "ncu.csv"
    assert profile.raw[0].data == recorded.read_bytes()
    assert "bank conflicts 97 % of shared-memory wavefronts" in profile.text
    with pytest.raises(NothingSeen, match="platform cpu has none"):
        ncu.Ncu().collect(context(home, device="cpu"))


@pytest.mark.pure
def test_all_that_is_read_of_a_table_is_asked_for():
    asked = set(_ncu_table.COUNTERS)
    stalls = re.compile(next(name for name in asked if name.startswith("regex:")).removeprefix("regex:"))
    for recorded in FOLDER.glob("*.csv"):
        whole = recorded.read_text().splitlines()
        start = next(number for number, line in enumerate(whole) if line.startswith('"ID",'))
        rows = list(csv.reader(whole[start:]))
        kept = [
            place
            for place, name in enumerate(rows[0])
            if name in ("ID", "Kernel Name") or name in asked or stalls.match(name)
        ]
        cut = "\n".join(",".join(f'"{row[place]}"' for place in kept) for row in rows)
        assert ncu.profile_of(cut).metrics == ncu.profile_of("\n".join(whole)).metrics


def traced(launches, **shares):
    return Profile("torch_trace", {"launches": launches, **{f"share/{name}": part for name, part in shares.items()}})


@pytest.mark.pure
def test_of_many_launches_those_of_the_costliest_kernels_are_looked_at():
    many = {"gemm_kernel": 0.5, "at::native::reduce_kernel": 0.2, "Memcpy DtoD": 0.15, "norm": 0.12, "rest": 0.03}
    assert ncu.costliest(traced(40.0, **many)) == ("gemm_kernel", "reduce_kernel", "norm")
    assert ncu.costliest(traced(40.0, **{"odd~name": 0.5, **many})) == (), "what is left is not the costliest"
    assert ncu.costliest(traced(ncu.MOST_LAUNCHES, **many)) == ()
    assert ncu.costliest(None) == ()
    words = ncu.Ncu().command(("gemm_kernel", "norm"))
    assert words[words.index("--kernel-name") + 1] == "regex:^(gemm_kernel|norm)"
    table = (FOLDER / "bank_conflicts.csv").read_text()
    profile = ncu.profile_of(table, names=("bank_conflicts",))
    assert profile.metrics["cut"] == 1.0
    assert "costliest kernels, bank_conflicts" in profile.text


@pytest.mark.pure
def test_where_no_kernel_goes_by_the_traced_names_the_first_launches_are_looked_at(tmp_path, monkeypatch):
    home, tools = tmp_path / "home", tmp_path / "tools"
    home.mkdir()
    tools.mkdir()
    recorded = FOLDER / "bank_conflicts.csv"
    fake = (
        'case "$*" in *--kernel-name*) echo "==WARNING== No kernels were profiled."; exit 0;; esac\n'
        f'while [ "$1" != --log-file ]; do shift; done\ncp {recorded} "$2"'
    )
    tool(tools, "ncu", fake)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    seen = context(home)
    seen.earlier["torch_trace"] = traced(40.0, called_otherwise=1.0)
    assert ncu.Ncu().collect(seen).metrics["share/bank_conflicts"] == 1.0


@pytest.mark.pure
@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("==WARNING== No kernels were profiled.", "no kernel ran"),
        ("==ERROR== Failed to find section X", "gave no table (status 3): ==ERROR== Failed to find section X"),
        ("", "it said nothing"),
    ],
)
def test_ncu_says_why_it_saw_nothing(tmp_path, monkeypatch, said, why):
    tool(tmp_path, "ncu", f"echo '{said}'; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(NothingSeen) as caught:
        ncu.Ncu().collect(context(tmp_path))
    assert why in str(caught.value)


@pytest.mark.pure
def test_counters_kept_to_administrators_are_known_beforehand(tmp_path, monkeypatch):
    parameters = tmp_path / "params"
    parameters.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "ERR_NVGPUCTRPERM" in _cuda_tools.counters_denied_reason(parameters)
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert _cuda_tools.counters_denied_reason(parameters) == ""
    assert _cuda_tools.counters_denied_reason(tmp_path / "none") == ""


@pytest.mark.pure
@pytest.mark.parametrize("plugin", [ncu.PLUGIN, nsys.PLUGIN, sass.PLUGIN])
def test_a_tool_that_is_not_here_says_where_it_comes_from(plugin, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_cuda_tools, "toolkit", lambda: "")
    assert "is not installed (" in plugin.unavailable_reason()


@pytest.mark.pure
@pytest.mark.parametrize("plugin", [ncu.PLUGIN, nsys.PLUGIN, sass.PLUGIN, torch_trace.PLUGIN])
def test_without_a_gpu_they_say_so(plugin, tmp_path, monkeypatch):
    for name in ("ncu", "nsys", "cuobjdump"):
        tool(tmp_path, name, "true")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def none():
        raise _cuda_tools.driver.NoDriver("no NVIDIA driver")

    monkeypatch.setattr(_cuda_tools.driver, "gpus", none)
    assert "no NVIDIA driver" in plugin.unavailable_reason()
    monkeypatch.setattr(_cuda_tools.driver, "gpus", lambda: ())
    assert "CUDA_VISIBLE_DEVICES" in plugin.unavailable_reason()
    monkeypatch.setattr(_cuda_tools.driver, "gpus", lambda: ("one",))
    assert plugin.unavailable_reason() == ""


# -- torch_trace -------------------------------------------------------------------------------------------------------


def event(cat, name, ts, dur, tid=1, correlation=None):
    arguments = {} if correlation is None else {"correlation": correlation}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": arguments}


def packed(events):
    return {"trace": base64.b64encode(gzip.compress(json.dumps({"traceEvents": events}).encode())).decode()}


def one_call(at, first=1):
    """An own kernel, a gap of 10 us, a kernel of torch's, a copy; in microseconds, as traces are."""
    return [
        event("user_annotation", "kforge_call", at, 100.0),
        event("cuda_driver", "cuLaunchKernelEx", at + 5, 4.0, correlation=first),
        event("cpu_op", "aten::add", at + 10, 8.0),
        event("cuda_runtime", "cudaLaunchKernel", at + 12, 5.0, correlation=first + 1),
        event("cuda_runtime", "cudaMemcpyAsync", at + 30, 2.0, correlation=first + 2),
        event("kernel", "softmax_rows(float const*, int)", at + 20, 30.0, 7, first),
        event("kernel", "some_kernel", at + 60, 10.0, 7, first + 1),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", at + 70, 10.0, 7, first + 2),
        event("cuda_runtime", "cudaDeviceSynchronize", at + 40, 55.0, correlation=first + 3),
    ]


@pytest.mark.pure
def test_a_trace_tells_busy_idle_own_and_copied_time():
    flush = [
        event("kernel", "at::native::fill", 900.0, 50.0, 7, 99),
        event("cuda_runtime", "cudaLaunchKernel", 890.0, 2.0, correlation=99),
    ]
    profile = torch_trace.profile_of(packed([*flush, *one_call(1000.0), *one_call(2000.0, 11)]), timed_ns=100_000.0)
    seen = profile.metrics
    assert seen["calls"] == 2
    assert seen["busy_ns"] == pytest.approx(50_000)
    assert seen["span_ns"] == pytest.approx(60_000)
    assert seen["gap_share"] == pytest.approx(1 / 6)
    assert seen["idle_share"] == pytest.approx(0.5)
    assert (seen["launches"], seen["copies"]) == (2, 1)
    assert seen["library_share"] == pytest.approx(0.2)
    assert seen["copy_share"] == pytest.approx(0.2)
    assert seen["share/softmax_rows"] == pytest.approx(0.6)
    assert seen["launching_ns"] == pytest.approx(9000)
    assert "softmax_rows (own)" in profile.text
    assert "some_kernel (library)" in profile.text
    assert "2 kernels and 1 copy" in profile.text
    assert profile.raw[0].name == "trace.json.gz"
    assert json.loads(gzip.decompress(profile.raw[0].data))["traceEvents"]
    assert torch_trace.profile_of(packed(one_call(0.0))).metrics["idle_share"] == pytest.approx(1 / 6)


@pytest.mark.pure
def test_what_runs_at_once_is_busy_once():
    events = [
        event("user_annotation", "kforge_call", 0.0, 100.0),
        event("kernel", "a", 10.0, 40.0, 7),
        event("kernel", "b", 20.0, 10.0, 8),
    ]
    assert torch_trace.profile_of(packed(events)).metrics["busy_ns"] == pytest.approx(40_000)


@pytest.mark.pure
@pytest.mark.parametrize(
    "reply",
    [
        {"absent": "torch sees no GPU"},
        packed([]),
        packed([event("kernel", "a", 0.0, 1.0)]),
        {"trace": base64.b64encode(b"no gzip").decode()},
        {"trace": base64.b64encode(gzip.compress(b"{}")).decode()},
        {"trace": base64.b64encode(gzip.compress(b'{"traceEvents": 3}')).decode()},
        {"trace": "not base64!"},
        packed([event("user_annotation", "kforge_call", 0.0, "long"), event("kernel", "a", 0.0, 1.0)]),
        packed([event("user_annotation", "kforge_call", 0.0, float("inf")), event("kernel", "a", 0.0, 1.0)]),
    ],
)
def test_a_reply_that_is_no_trace_is_refused(reply):
    with pytest.raises((NothingSeen, ValueError)):
        torch_trace.profile_of(reply)


@pytest.mark.cpu
def test_the_probe_says_that_there_is_no_gpu():
    import torch

    from kforge.profilers import _trace_probe

    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert _trace_probe.look(SimpleNamespace(), {"calls": 1}) == {"absent": "torch sees no GPU"}


@pytest.mark.cpu
def test_torchs_own_traces_have_the_calls_where_they_are_looked_for(tmp_path):
    import torch

    from kforge.profilers import _trace_events, _trace_probe

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(2):
            with torch.profiler.record_function(_trace_events.CALL):
                torch.relu(torch.randn(100))
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    written = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    events = [_trace_probe._cut(item) for item in written if item.get("cat") in _trace_probe._KEPT]
    assert _trace_probe._CALL == _trace_events.CALL
    assert len(_trace_events.calls(events)) == 2
    relu = next(item for item in events if item["name"] == "aten::relu")
    assert _trace_events._Operators(events).is_inside_operator({"ts": relu["ts"], "dur": 0.0, "tid": relu["tid"]})
    assert not _trace_events._Operators(events).is_inside_operator({"ts": 0.0, "dur": 0.0, "tid": relu["tid"]})


@pytest.mark.pure
def test_a_trace_is_not_collected_off_the_gpu(tmp_path):
    with pytest.raises(NothingSeen, match="platform cpu has none"):
        torch_trace.TorchTrace().collect(context(tmp_path, device="cpu"))


# -- nsys --------------------------------------------------------------------------------------------------------------


NSYS = """case "$1" in
profile)
  for word in "$@"; do case "$word" in --output=*) out="${{word#--output=}}" ;; esac; done
  echo "$@" > {home}/words; echo trace > "$out.nsys-rep"
  while [ "$1" != true ]; do shift; done; "$@" ;;
stats)
  while [ "$1" != --output ]; do shift; done
  for file in {tables}/*.csv; do cp "$file" "$2_$(basename "$file" | sed s/stats_//)"; done ;;
esac"""


@pytest.mark.pure
def test_nsys_is_run_in_two_steps_and_its_tables_are_read(tmp_path, monkeypatch):
    home, tools = tmp_path / "home", tmp_path / "tools"
    home.mkdir()
    tools.mkdir()
    tool(tools, "nsys", NSYS.format(home=home, tables=FIXTURES / "nsys"))
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    profile = nsys.Nsys().collect(context(home, timed=125_000.0))
    seen = profile.metrics
    assert "--capture-range=cudaProfilerApi" in (home / "words").read_text()
    assert (seen["busy_ns"], seen["launches"], seen["copies"]) == (100_000, 7, 1)
    assert seen["idle_share"] == pytest.approx(0.2)
    assert seen["library_share"] == pytest.approx(0.2)
    assert seen["copy_share"] == pytest.approx(0.2)
    assert seen["launching_ns"] == 28_000
    assert seen["share/softmax_rows"] == pytest.approx(0.5)
    assert "cudaLaunchKernel 7 x 4 µs" in profile.text
    assert {item.name for item in profile.raw} >= {"cuda_gpu_kern_sum.csv", "nsys.nsys-rep"}


@pytest.mark.pure
def test_nsys_that_fails_says_so(tmp_path, monkeypatch):
    tool(tmp_path, "nsys", "echo 'no such option' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(NothingSeen, match="no such option"):
        nsys.Nsys().collect(context(tmp_path))
    with pytest.raises(NothingSeen, match="nothing ran"):
        nsys.profile_of(dict.fromkeys(("cuda_gpu_kern_sum", "cuda_api_sum"), "SKIPPED: no CUDA data"))


# -- sass --------------------------------------------------------------------------------------------------------------


def code(name="planted.sass"):
    return (FIXTURES / "sass" / name).read_text(encoding="utf-8")


@pytest.mark.pure
def test_device_code_tells_registers_spills_and_the_width_of_loads():
    found = {function.name: function for function in _sass_text.functions(code("resources.txt"), code())}
    assert found["memory_bound"].loads == {128: 1}
    assert found["memory_bound"].stores == {128: 1}
    assert found["no_tensor_cores"].loads == {16: 2}
    assert found["no_tensor_cores"].shared_bytes == 8448
    assert found["no_tensor_cores"].count("tensor") == 0
    assert found["spilling"].registers == 32
    assert found["spilling"].stack_bytes == 616
    assert found["spilling"].count("spill") > 0
    assert found["atomics"].count("atomic") == 1
    assert found["tiny"].count("spill") == found["tiny"].count("atomic") == 0
    profile = sass.profile_of(code("resources.txt"), code())
    assert profile.metrics["load_bits"] == 128
    assert profile.metrics["tensor_instructions"] == 0
    assert "spilling: 32 registers, 0 bytes static shared memory, 616 bytes of stack" in profile.text
    assert "1 of 128 bits" in profile.text


@pytest.mark.pure
@pytest.mark.parametrize(
    ("instruction", "kind"),
    [
        ("HMMA.16816.F32 R4, R8, R10, R4", "tensor"),
        ("HGMMA.64x128x16.F32.BF16 R24, gdesc[UR4], R24, gsb0", "tensor"),
        ("QGMMA.64x64x32.F32.E4M3.E4M3 R24, gdesc[UR8], R24", "tensor"),
        ("@P0 IMMA.16832.S8.S8 R4, R8.ROW, R10.COL, R4", "tensor"),
        ("DMMA.884 R4, R8, R10, R4", "tensor"),
        ("HFMA2.MMA R3, -RZ, RZ, 0, 0", "fma"),
        ("@!UP1 REDG.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5", "atomic"),
        ("ATOMS.ADD R4, [R2], R5", "atomic"),
        ("MUFU.EX2 R4, R5", "special"),
        ("DFMA R4, R6, R8, R4", "fp64"),
        ("LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64]", "asynchronous"),
        ("STL.64 [R1+0x8], R4", "spill"),
    ],
)
def test_instructions_are_told_apart(instruction, kind):
    text = f"\t\tFunction : k\n        /*0010*/                   {instruction} ;\n"
    [function] = _sass_text.functions("", text)
    assert function.counts == {kind: 1}


@pytest.mark.pure
def test_the_disassembler_runs_beside_the_program(tmp_path, monkeypatch):
    home, tools = tmp_path / "home", tmp_path / "tools"
    home.mkdir()
    tools.mkdir()
    script = f'case "$1" in -sass) cat {FIXTURES}/sass/planted.sass ;; *) cat {FIXTURES}/sass/resources.txt ;; esac'
    tool(tools, "cuobjdump", script)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    leave = ("sh", "-c", f"mkdir {home}/cubins && echo code > {home}/cubins/a.cubin")
    profile = sass.Sass().collect(context(home, program=leave))
    assert profile.metrics["functions"] == 6
    assert {item.name for item in profile.raw} == {"resources.txt", "code.sass"}


@pytest.mark.pure
def test_a_program_without_device_code_is_told_apart_from_one_that_failed(tmp_path, monkeypatch):
    tool(tmp_path, "cuobjdump", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(NothingSeen, match="left none that could be seen"):
        sass.Sass().collect(context(tmp_path))
    with pytest.raises(NothingSeen, match=r"did not run alone \(status 5\): oh"):
        sass.Sass().collect(context(tmp_path, program=("sh", "-c", "echo oh >&2; exit 5")))


# -- roofline ----------------------------------------------------------------------------------------------------------


GPU = _ceilings.Ceilings(
    bandwidth=((1 << 22, 5e12), (1 << 30, 4.1e12)),
    flops=5e13,
    overhead_ns=3500.0,
    rates=(("bfloat16", 7e14), ("float16", 7.2e14), ("float32", 5e13), ("tf32", 4e14)),
    launch_ns=1500.0,
)
PRODUCT = roofline.Work(2 * 4096**3, 4096**2, 4 * 2 * 4096**2, 4 * 4096**2, "float32")


@pytest.mark.pure
def test_the_arithmetic_that_is_allowed_picks_the_ceiling():
    plain = roofline.RooflinePoint(PRODUCT, GPU, 4e6, PRODUCT.bytes_min)
    assert plain.bound == "compute"
    assert plain.compute_ns == pytest.approx(2 * 4096**3 / 5e4 + 4096**2 / 5e4)
    assert not plain.tensor_allowed
    assert "float32's without tensor cores: this problem allows no lower precision" in plain.text()
    loose = roofline.RooflinePoint(PRODUCT, GPU, 4e6, PRODUCT.bytes_min, arithmetic="tf32")
    assert loose.tensor_allowed
    assert loose.metrics()["tensor_allowed"] == 1.0
    assert loose.metrics()["arithmetic/tf32"] == 1.0
    assert loose.metrics()["launch_ns"] == 1500.0
    assert loose.metrics()["ceiling_gflops"] == pytest.approx(4e5, rel=0.01)
    assert loose.metrics()["headroom"] > 5 * plain.metrics()["headroom"]
    assert "held against tf32's on tensor cores" in loose.text()
    assert "float8 was not measured" in roofline.RooflinePoint(PRODUCT, GPU, 4e6, 1, arithmetic="float8").text()


@pytest.mark.pure
@pytest.mark.parametrize(
    ("dtype", "precision", "kind"),
    [
        ("torch.float32", "", "float32"),
        ("torch.float32", "tf32", "tf32"),
        ("torch.float32", "bfloat16", "bfloat16"),
        ("torch.float16", "", "float16"),
        ("torch.bfloat16", "tf32", "bfloat16"),
    ],
)
def test_on_a_gpu_the_bytes_of_a_call_and_the_settings_decide(tmp_path, monkeypatch, dtype, precision, kind):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def ask(request, of):
        asked.append((request, of))
        if of == "reference":
            return {"exact": 10**12, "estimated": 10, "read_bytes": 1 << 22, "output_bytes": 0, "dtype": dtype}
        return {
            "bandwidth": [list(pair) for pair in GPU.bandwidth],
            "flops": GPU.flops,
            "overhead_ns": GPU.overhead_ns,
            "rates": [list(pair) for pair in GPU.rates],
            "launch_ns": GPU.launch_ns,
        }

    timing = SimpleNamespace(candidate_ns=(5e7,), baseline_ns=(6e7,), clock_excess=0.0)
    evidence = SimpleNamespace(settings=SimpleNamespace(precision=precision))
    looked = SimpleNamespace(
        verdict=SimpleNamespace(timing=timing, evidence=evidence),
        platform=SimpleNamespace(device="cuda", name="cuda", facts=lambda: {"processor": "a GPU"}),
        working_bytes=1 << 40,
        ask=ask,
    )
    seen = roofline.Roofline().collect(looked).metrics
    assert asked[1][0]["device"] == "cuda"
    assert asked[1][0]["sizes"] == _ceilings.GPU_SIZES
    assert seen["ceiling_gbs"] == pytest.approx(5e3)
    assert seen[f"arithmetic/{kind}"] == 1.0
    assert seen["tensor_allowed"] == float(kind != "float32")
    roofline.Roofline().collect(looked)
    assert [of for _, of in asked] == ["reference", "machine", "reference"]


@pytest.mark.pure
def test_a_ceiling_of_one_arithmetic_is_raised_alone():
    raised = GPU.with_seen_rates(1 << 22, 1.0, 9e14, "float16")
    assert raised.rate("float16") == 9e14
    assert raised.rate("bfloat16") == 7e14
    assert raised.flops == GPU.flops
    best = _ceilings.merge_highest(GPU, raised)
    assert best.rate("float16") == 9e14
    assert best.launch_ns == 1500.0


# -- on the device -----------------------------------------------------------------------------------------------------


@pytest.mark.accelerator
def test_ncu_names_the_planted_limiters_here(tmp_path):
    if not shutil.which("nvcc") or ncu.PLUGIN.unavailable_reason():
        pytest.skip(ncu.PLUGIN.unavailable_reason() or "nvcc is not here")
    program = tmp_path / "planted"
    subprocess.run(["nvcc", "-O3", "-arch=native", str(FOLDER / "planted.cu"), "-o", str(program)], check=True)

    class Everything(ncu.Ncu):
        launches = 40

    began = time.monotonic()
    seen = context(tmp_path, program=(str(program),)).standalone(
        Everything().command(), files=("ncu.csv",), seconds=300
    )
    print(f"ncu took {time.monotonic() - began:.1f} s for 29 launches")
    text = seen.files["ncu.csv"].decode()
    right = {}
    for kernel in _ncu_table.kernels(text):
        profile = ncu.profile_of(_only(text, kernel.name))
        found = digest.digest((profile,), VERDICT).signals
        right[kernel.name] = bool(found) and found[0].words.split()[0] == LIMITERS[kernel.name]
    print(right)
    assert set(right) == set(LIMITERS)
    assert sum(right.values()) >= 9


def _only(text, kernel):
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return "\n".join([*lines[:2], *(line for line in lines[2:] if f'"{kernel}(' in line)])


@pytest.mark.accelerator
def test_the_ceilings_of_this_gpu_make_sense():
    import torch

    from kforge.profilers import _work_probe

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    request = {"of": "machine", "device": "cuda", "sizes": list(_ceilings.GPU_SIZES)}
    began = time.monotonic()
    found = _ceilings.read(_work_probe.look(None, request))
    print(f"{time.monotonic() - began:.1f} s: {found}")
    assert found.rate("float16") > 1.5 * found.rate("float32")
    assert found.rate("tf32") > 1.2 * found.rate("float32")
    assert found.bytes_per_second(1 << 22) > 0
    assert 1e11 < found.memory < 1e14
    assert 500 < found.overhead_ns < 50_000
    assert 100 < found.launch_ns < 50_000


@pytest.mark.accelerator
@pytest.mark.filterwarnings("ignore:.*Profiler clears events")
def test_a_real_trace_is_read(tmp_path):
    import torch

    from kforge.profilers import _trace_probe

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    a = torch.randn(2048, 2048, device="cuda")
    subject = SimpleNamespace(call=lambda: torch.relu(a @ a), home=str(tmp_path))
    profile = torch_trace.profile_of(_trace_probe.look(subject, {"calls": 3}))
    print(profile.text)
    assert profile.metrics["calls"] == 3
    assert profile.metrics["launches"] >= 2
    assert profile.metrics["library_share"] == pytest.approx(1.0)
    assert not list(Path(tmp_path).iterdir())
