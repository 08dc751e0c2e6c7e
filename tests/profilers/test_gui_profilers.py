"""Profilers with pictures: the trace viewer, Instruments, a user's command; and pictures on their way to a model."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import os
import re
import stat
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import makers
from kforge.agents.prompt_maker import PromptMaker
from kforge.cli.profile_command import profile
from kforge.errors import ModelRejected, ModelUnavailable, UnknownPlugin, UsageError
from kforge.models.factory import open_model
from kforge.models.picture_filter import Sighted, without_pictures
from kforge.models.picture_sizes import PictureLimits, fit_pictures, limits_of, size_of
from kforge.models.scripted import Scripted
from kforge.profilers import _browser, _names, _window_driver, _xctrace_record, instruments, screenshot, trace_view
from kforge.profilers._window_page import page, views
from kforge.profilers._window_trace import busy, timeline, totals
from kforge.profilers._xctrace_table import rows, schemas
from kforge.profilers.base import NothingSeen
from kforge.types import (
    Artefact,
    Completion,
    Image,
    Intent,
    Job,
    Message,
    ModelSettings,
    Move,
    Outcome,
    Problem,
    Profile,
    Prompt,
    Report,
    Settings,
)

HERE = Path(__file__).parents[1]
EXPORTS = HERE / "fixtures" / "instruments"

needs_browser = pytest.mark.skipif(not _browser.find(), reason="tier browser: no Chromium (apt-get install chromium)")


def png(width: int = 4, height: int = 3, noise: bool = False) -> bytes:
    """A whole PNG file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    line = os.urandom(3 * width) if noise else b"\x40\x80\xc0" * width
    lines = b"".join(b"\0" + (os.urandom(3 * width) if noise else line) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 1)) + chunk(b"IEND", b"")


def event(name: str, start: float, length: float, cat: str = "cpu_op", **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "pid": 1, "tid": 1, "ts": start, "dur": length, "name": name, "args": {}, **more}


def cpu_trace() -> list[dict[str, Any]]:
    """Two calls of 100 µs: an operator of 30 with one of 20 inside, then a function of 40."""
    found = []
    for start in (1000.0, 1110.0):
        found += [
            event("kforge_call", start, 100, "user_annotation"),
            event("aten::linear", start + 10, 30),
            event("aten::mm", start + 15, 20),
            event("native: gelu", start + 50, 40),
        ]
    return [*found, event("aten::zero_", 900, 50)]


def gpu_trace() -> list[dict[str, Any]]:
    """One call: a kernel of 60 µs, a gap of 20, one of 5 on another stream, which a copy overlaps."""

    def on_device(name: str, start: float, length: float, stream: int, cat: str = "kernel") -> dict[str, Any]:
        return event(name, start, length, cat, pid=0, tid=stream, args={"device": 0, "stream": stream})

    return [
        event("kforge_call", 0, 120, "user_annotation"),
        event("cudaLaunchKernel", 2, 5, "cuda_runtime"),
        on_device("void tile<float, 4>(float const*)", 10, 60, 7),
        on_device("void tail(int)", 90, 5, 20),
        on_device("Memcpy DtoH (Device -> Pageable)", 92, 8, 7, "gpu_memcpy"),
        event("kforge_call", 0, 120, "gpu_user_annotation"),
    ]


def packed(events: list[dict[str, Any]]) -> dict[str, Any]:
    return {"trace": base64.b64encode(gzip.compress(json.dumps({"traceEvents": events}).encode())).decode()}


@pytest.mark.pure
class TestTimeline:
    def test_a_bar_counts_without_what_it_calls(self) -> None:
        seen = timeline(cpu_trace())
        assert [(total.name, total.times, round(total.own)) for total in totals(seen)] == [
            ("gelu", 1, 40_000),
            ("aten::mm", 1, 20_000),
            ("aten::linear", 1, 10_000),
        ]
        assert {bar.name: bar.depth for bar in seen.bars} == {
            "a call of the program": 0,
            "aten::linear": 1,
            "aten::mm": 2,
            "gelu": 1,
        }
        assert busy(seen) == pytest.approx(70_000)

    def test_a_devices_streams_come_first_and_its_time_counts_once(self) -> None:
        seen = timeline(gpu_trace())
        assert seen.on_device
        assert seen.rows == ("GPU 0, stream 7", "GPU 0, stream 20", "CPU thread")
        assert [total.name for total in totals(seen)] == ["tile", "Memcpy DtoH", "tail"]
        assert busy(seen) == pytest.approx(70_000)

    def test_the_quietest_calls_are_shown(self) -> None:
        lengths = [(0.0, 900.0), (1000.0, 10.0), (1020.0, 12.0), (1040.0, 11.0), (1060.0, 500.0)]
        seen = timeline([event("kforge_call", start, length, "user_annotation") for start, length in lengths])
        assert [round(end - start) for start, end in seen.calls] == [10_000, 12_000, 11_000]
        assert seen.middle[1] - seen.middle[0] == pytest.approx(11_000)

    @pytest.mark.parametrize("bad", ["soon", None, True, float("nan"), float("inf")])
    def test_a_time_that_is_none_is_refused(self, bad: Any) -> None:
        with pytest.raises(ValueError, match="a time that is none"):
            timeline([event("kforge_call", bad, 1, "user_annotation")])

    def test_an_empty_trace_is_refused(self) -> None:
        with pytest.raises(ValueError, match="without a call"):
            timeline([])

    def test_views_are_the_whole_and_the_longest(self) -> None:
        titles = [view.title for view in views(timeline(cpu_trace()))]
        assert titles == [
            "Overview: 2 calls",
            "Zoom on 1 gelu: 57 % of the work of a call",
            "Zoom on 2 aten::mm: 29 % of the work of a call",
        ]
        zoom = views(timeline(cpu_trace()))[1]
        assert zoom.start < timeline(cpu_trace()).bars[zoom.marked].start

    def test_no_name_can_leave_its_place_in_the_page(self) -> None:
        wicked = "native: </script><script>alert(1)</script>\u202e<!--\x00"
        events = [event("kforge_call", 0, 10, "user_annotation"), event(wicked, 1, 5)]
        text = page(timeline(events), "t </title>")
        inside = text.split('type="application/json">')[1].split("</script>")[0]
        assert "<" not in inside
        assert "\u202e" not in json.loads(inside)["names"][1]
        assert json.loads(inside)["title"] == "t </title>"
        assert "http://" not in text
        assert "https://" not in text
        assert "default-src 'none'" in text


@pytest.mark.pure
class TestBrowser:
    def test_none_is_a_sentence_with_the_cure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_browser, "find", lambda: "")
        assert "apt-get install chromium" in trace_view.PLUGIN.unavailable_reason()
        made = trace_view.profile_of(packed(cpu_trace()), "t")
        assert made.images == ()
        assert "no pictures: no Chromium was found" in made.text
        assert [item.name for item in made.raw] == ["trace.html", "trace.json.gz"]

    @pytest.mark.parametrize(
        ("script", "words"),
        [("echo cannot show it >&2; exit 1", "cannot show it"), ("sleep 60", "within"), ("exit 0", "said nothing")],
    )
    def test_one_that_takes_no_picture_is_quoted(
        self, script: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = fake(tmp_path, "chromium", script)
        monkeypatch.setattr(_browser, "find", lambda: str(program))
        monkeypatch.setattr(_browser, "_SECONDS", 0.3)
        with pytest.raises(_browser.NoPicture, match=words):
            _browser.pictures("<p>", ["a"])

    def test_it_gets_no_key_and_no_network(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        script = 'env > "$0.env"; printf "%s\\n" "$@" > "$0.words"'
        program = fake(tmp_path, "chromium", script)
        monkeypatch.setattr(_browser, "find", lambda: str(program))
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        with pytest.raises(_browser.NoPicture):
            _browser.pictures("<p>", ["view=0&still"])
        assert "sk-secret" not in Path(f"{program}.env").read_text()
        words = Path(f"{program}.words").read_text()
        assert "--host-resolver-rules=MAP * ~NOTFOUND" in words
        assert re.search(r"--window-size=1456,768\n(.|\n)*file:///\S+page.html#view=0&still", words)


@needs_browser
@pytest.mark.pure
class TestPictures:
    def test_each_view_is_a_picture_of_its_own_in_the_right_size(self) -> None:
        made = trace_view.profile_of(packed(gpu_trace()), "gpu")
        assert len(made.images) == len(views(timeline(gpu_trace()))) == 3
        assert {size_of(image.data) for image in made.images} == {(1456, 768)}
        assert len({image.data for image in made.images}) == len(made.images)
        assert all(20_000 < len(image.data) < 1_000_000 for image in made.images)
        assert "picture 3: Zoom on 2 Memcpy DtoH" in made.text

    def test_the_page_draws_what_it_was_given_and_follows_the_hand(self, tmp_path: Path) -> None:
        """Every bar and legend entry has a box; the wheel, the pointer, a double click and keys do what they say."""
        seen = timeline(cpu_trace())
        file = tmp_path / "page.html"
        by_hand = """<script>
            const told = [], span = () => Math.round(view.to - view.from);
            const send = (target, kind, what) => target.dispatchEvent(new window[kind](what.type, what));
            const [x, y, , , index] = boxes.find((box) => data.names[data.bars[box[4]][4]] === "gelu");
            const there = { clientX: x + 3, clientY: y + 3, cancelable: true };
            told.push(span());
            send(canvas, "WheelEvent", { type: "wheel", deltaY: -500, ...there }); told.push(span());
            send(window, "KeyboardEvent", { type: "keydown", key: "0" }); told.push(span());
            send(window, "MouseEvent", { type: "mousemove", ...there });
            told.push(tip.style.display, tip.textContent.split("\\n")[0]);
            send(canvas, "MouseEvent", { type: "dblclick", ...there }); told.push(span(), view.marked === index);
            const before = view.from;
            send(canvas, "MouseEvent", { type: "mousedown", ...there });
            send(window, "MouseEvent", { type: "mousemove", clientX: x - 97, clientY: y + 3 });
            told.push(view.from > before);
            document.body.dataset.told = told.join();
        </script></body>"""
        file.write_text(page(seen, "a <title>").replace("</body>", by_hand), encoding="utf-8")
        command = [_browser.find(), *_browser._QUIET, "--no-sandbox", f"--user-data-dir={tmp_path / 'p'}", "--dump-dom"]
        done = subprocess.run(
            [*command, file.as_uri()], capture_output=True, text=True, timeout=_browser._SECONDS, check=True
        )
        shown = done.stdout
        assert re.search(r'data-drawn="(\d+)"', shown).group(1) == str(len(seen.bars) + len(totals(seen)))
        assert "<title>a &lt;title&gt;</title>" in shown
        whole = round(views(seen)[0].end - views(seen)[0].start)
        told = re.search(r'data-told="([^"]*)"', shown).group(1).split(",")
        assert told == [
            str(whole),
            str(round(whole / 2.718281828)),
            str(whole),
            "block",
            "gelu",
            "52000",
            "true",
            "true",
        ]


@needs_browser
@pytest.mark.toolchain
def test_a_real_candidate_is_pictured(judge: Any, scale_relu: Any, honest: Any) -> None:
    settings = Settings(
        compile_baseline=False, timing_seconds=0.05, seeds=2, profilers=("torch_profiler", "trace_view")
    )
    report = judge.report(Job("j", scale_relu, honest, settings))
    assert report.verdict.outcome is Outcome.CORRECT, report.verdict.detail
    beside, made = report.profiles
    assert not beside.absent
    assert not made.absent
    assert len(made.images) >= 2
    assert {size_of(image.data) for image in made.images} == {(1456, 768)}
    assert 0 < made.metrics["busy_share"] <= 1
    assert re.search(r"% .* scale_relu$", made.text, re.MULTILINE), "the program's own function is in the trace"


# -- Instruments -----------------------------------------------------------------------------------------------------


def fake(folder: Path, name: str, script: str) -> Path:
    """A program that does what the script says."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.pure
class TestExports:
    def test_contents(self) -> None:
        assert schemas((EXPORTS / "toc.xml").read_text()) == (
            "tick",
            "metal-application-command-buffer-submissions",
            "metal-gpu-intervals",
            "metal-gpu-state-intervals",
        )

    def test_values_are_found_by_reference(self) -> None:
        table = rows((EXPORTS / "metal_gpu_intervals.xml").read_text())
        assert len(table) == 15
        assert table[3]["duration"].number == 400_000
        assert table[3]["event-label"].text == "softmax_rows"
        assert table[3]["process"].part("pid") == "4242"
        assert "bytes" not in table[0], "a sentinel is no value"

    def test_a_reference_into_another_value(self) -> None:
        schema = "<schema><col><mnemonic>process</mnemonic></col><col><mnemonic>pid</mnemonic></col></schema>"
        first = '<row><process id="1" fmt="p (7)"><pid id="2" fmt="7">7</pid></process><pid ref="2"/></row>'
        both = f"<trace-query-result><node>{schema}{first}</node><node>{schema}{first}</node></trace-query-result>"
        assert [row["pid"].text for row in rows(both)] == ["7", "7"]

    def test_an_export_that_broke_off_counts_to_its_last_row(self) -> None:
        whole = (EXPORTS / "metal_gpu_intervals.xml").read_text()
        assert len(rows(whole[: whole.rindex("<row>") + 40])) == 14

    @pytest.mark.parametrize(
        "bad",
        [
            "",
            "no XML",
            "<trace-query-result><node>",
            '<!DOCTYPE x [<!ENTITY a "b">]><trace-query-result/>',
            "<trace-query-result><node><schema><col><mnemonic>a</mnemonic></col></schema><row><b ref='9'/></row></node>"
            "</trace-query-result>",
        ],
    )
    def test_nonsense_is_refused(self, bad: str) -> None:
        with pytest.raises(ValueError, match="export"):
            rows(bad)

    def test_activities_are_those_of_the_process(self) -> None:
        seen = instruments.activities(rows((EXPORTS / "metal_gpu_intervals.xml").read_text()), 4242)
        assert len(seen) == 12
        assert {item.name for item in seen} == {"softmax_rows", "scale & shift", "Blit Command 0"}
        made = instruments.profile_of(seen, 4)
        assert made.metrics["busy_ns"] == pytest.approx(470_000)
        assert made.metrics["launches"] == 3
        assert made.metrics["latency_ns"] == 50_000
        assert "softmax_rows (Compute)" in made.text.splitlines()[3]
        assert made.text.splitlines()[3].split()[0] == "77"

    def test_nothing_of_this_process_is_said(self) -> None:
        table = rows((EXPORTS / "metal_gpu_intervals.xml").read_text())
        with pytest.raises(NothingSeen, match="nothing of this process"):
            instruments.profile_of(instruments.activities(table, 1), 4)


class Mac:
    """Programs by the names of a Mac's, which note how they are called."""

    def __init__(self, folder: Path, picture: bytes) -> None:
        self.folder = folder
        self.log = folder / "calls"
        (folder / "picture").write_bytes(picture)
        self.make(
            "xcrun",
            f"""
case "$3" in --find) exit 0;; esac
case "$2" in
record) for word in "$@"; do [ "$last" = --output ] && mkdir "$word"; last="$word"; done
        echo "Starting recording with the Metal System Trace template. Attaching to: python3.11";;
export) case "$*" in *--toc*) cat {EXPORTS}/toc.xml;; *) cat {EXPORTS}/metal_gpu_intervals.xml;; esac;;
esac""",
        )
        self.make("osascript", 'case "$2" in *"open POSIX file"*) echo 40,40,1456,768;; esac')
        self.make("screencapture", f'for word in "$@"; do last="$word"; done; cp {folder}/picture "$last"')
        self.make("sips", "")

    def make(self, name: str, script: str) -> None:
        note = (
            f'for word in "{name}" "$@"; do printf "%s\\037" "$word" >> {self.log}; done; printf "\\036" >> {self.log}'
        )
        fake(self.folder, name, f"{note}\n{script}")

    def calls(self) -> list[list[str]]:
        return [record.split("\x1f")[:-1] for record in self.log.read_text().split("\x1e")[:-1]]


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
    made = Mac(tmp_path, png(2912, 1536))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(instruments.platform, "system", lambda: "Darwin")
    return made


def context(device: str = "mps", **more: Any) -> Any:
    asked: list[dict[str, Any]] = []

    def ask(request: dict[str, Any], of: str = "candidate") -> dict[str, Any]:
        asked.append(request)
        return more.get("reply", {"calls": 4})

    return SimpleNamespace(
        platform=SimpleNamespace(device=device, name="metal"),
        problem=SimpleNamespace(name="p", source="# the problem"),
        verdict=SimpleNamespace(evidence=SimpleNamespace(candidate=SimpleNamespace(source="# the candidate"))),
        process_id=4242,
        ask=ask,
        asked=asked,
    )


@pytest.mark.pure
class TestInstruments:
    def test_it_records_exports_and_takes_pictures(self, mac: Mac) -> None:
        assert instruments.PLUGIN.unavailable_reason() == ""
        looked_at = context()
        made = instruments.PLUGIN.collect(looked_at)
        assert [image.data for image in made.images] == [png(2912, 1536)] * 2
        assert made.metrics["launches"] == 3
        assert looked_at.asked == [{"seconds": 0.0}, {"seconds": 4.0}], "warmed up, then called while recorded"
        calls = [call for call in mac.calls() if call[1:2] != ["--find"]]
        record, toc, table, opened, shot, small, zoom, second, _, close = calls
        assert record[:7] == ["xcrun", "xctrace", "record", "--template", "Metal System Trace", "--attach", "4242"]
        assert record[7:9] == ["--time-limit", "4s"]
        trace = record[record.index("--output") + 1]
        assert toc == ["xcrun", "xctrace", "export", "--input", trace, "--toc"]
        xpath = '/trace-toc/run[@number="1"]/data/table[@schema="metal-gpu-intervals"]'
        assert table[-2:] == ["--xpath", xpath]
        assert opened[0] == "osascript"
        assert opened[-1] == trace
        assert shot[:6] == ["screencapture", "-x", "-t", "png", "-R", "40,40,1456,768"]
        assert small[:3] == ["sips", "--resampleHeightWidthMax", "1456"]
        assert 'keystroke "+"' in zoom[2]
        assert second[0] == "screencapture"
        assert 'keystroke "w"' in close[2]

    @pytest.mark.parametrize(
        ("program", "script", "words"),
        [
            ("osascript", "echo 'osascript is not allowed assistive access. (-1719)' >&2; exit 1",
             "Privacy & Security > Accessibility"),
            ("screencapture", "echo could not create image from rect >&2; exit 1", "Screen & System Audio Recording"),
            ("screencapture", "exit 0", "wrote no picture"),
            ("osascript", "echo nothing", "window was not found"),
        ],
    )  # fmt: skip
    def test_without_a_screen_the_text_remains(self, mac: Mac, program: str, script: str, words: str) -> None:
        mac.make(program, script)
        made = instruments.PLUGIN.collect(context())
        assert made.images == ()
        assert made.metrics["launches"] == 3
        assert f"no pictures: {program}" in made.text or "no pictures: Instruments" in made.text
        assert words in made.text

    def test_a_recording_that_fails_says_why_and_the_cure(self, mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
        mac.make("xcrun", "echo 'Failed to attach: operation not permitted' >&2; exit 2")
        with pytest.raises(NothingSeen, match=r"status 2\): Failed to attach.*DevToolsSecurity -enable"):
            instruments.PLUGIN.collect(context())

    def test_an_export_that_gives_nothing(self, mac: Mac, tmp_path: Path) -> None:
        mac.make("xcrun", "exit 133")
        with pytest.raises(NothingSeen, match=r"gave nothing \(status 133\)"):
            _xctrace_record.contents(tmp_path / "a.trace", tmp_path)

    def test_elsewhere_it_is_absent(self, mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(NothingSeen, match="does not use it"):
            instruments.PLUGIN.collect(context("cpu"))
        (mac.folder / "xcrun").unlink()
        assert "install Xcode" in instruments.PLUGIN.unavailable_reason()
        monkeypatch.setattr(instruments.platform, "system", lambda: "Linux")
        assert instruments.PLUGIN.unavailable_reason() == "needs macOS"
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(_window_driver.NotDriven, match="macOS only"):
            _window_driver.pictures(Path("a.trace"), Path())


# -- a command of the user's -----------------------------------------------------------------------------------------


@pytest.mark.pure
class TestScreenshot:
    def collect(self, tmp_path: Path, code: str, reply: Any = None) -> Profile:
        script = tmp_path / "take.py"
        script.write_text(f"import os, pathlib, sys\nout = pathlib.Path(os.environ['KFORGE_OUT'])\n{code}\n")
        tool = _names.find(f"screenshot:{sys.executable} {script}")
        assert tool.unavailable_reason() == ""
        return tool.collect(context("cpu", reply=packed(cpu_trace()) if reply is None else reply))

    def test_pictures_and_words_come_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_API_KEY", "sk-secret")
        (tmp_path / "a.png").write_bytes(png())
        made = self.collect(
            tmp_path,
            f"data = pathlib.Path({str(tmp_path / 'a.png')!r}).read_bytes()\n"
            "(out / '2.png').write_bytes(data)\n(out / '1.JPG').write_bytes(b'\\xff\\xd8\\xff rest')\n"
            "(out / '3.png').write_bytes(b'no picture')\n(out / 'note.txt').write_text('x')\n"
            "for name in ('TRACE', 'CANDIDATE', 'PROBLEM'):\n"
            "    print(name, pathlib.Path(os.environ['KFORGE_' + name]).read_text()[:20])\n"
            "print(os.environ['KFORGE_PLATFORM'], os.environ.get('SOME_API_KEY'))",
        )
        assert [image.media_type for image in made.images] == ["image/jpeg", "image/png"]
        assert made.images[1].data == png()
        for words in ('TRACE {"traceEvents":', "CANDIDATE # the candidate", "PROBLEM # the problem", "metal None"):
            assert words in made.text
        assert "3.png is left out: it is no PNG or JPEG file" in made.text

    def test_a_program_without_a_trace_can_still_be_pictured(self, tmp_path: Path) -> None:
        (tmp_path / "a.png").write_bytes(png())
        code = f"import shutil; shutil.copy({str(tmp_path / 'a.png')!r}, out); assert 'KFORGE_TRACE' not in os.environ"
        made = self.collect(tmp_path, code, {"trace": "nonsense"})
        assert len(made.images) == 1
        assert "there was no trace for the command" in made.text

    @pytest.mark.parametrize(
        ("code", "words"),
        [("print('nothing to see')", "left no picture.*nothing to see"), ("sys.exit('broke: no screen')", "no screen")],
    )
    def test_no_picture_says_why(self, tmp_path: Path, code: str, words: str) -> None:
        with pytest.raises(NothingSeen, match=words):
            self.collect(tmp_path, code)

    def test_one_that_hangs_is_ended(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(screenshot, "_SECONDS", 0.2)
        with pytest.raises(NothingSeen, match="did not end"):
            screenshot.run(["sleep", "60"], tmp_path, dict(os.environ))

    def test_too_many_and_too_large_are_left_out(self, tmp_path: Path) -> None:
        for number in range(9):
            (tmp_path / f"{number}.png").write_bytes(png())
        (tmp_path / "a.png").write_bytes(png() + bytes(5 << 20))
        (tmp_path / "b.png").symlink_to(tmp_path / "0.png")
        images, problems = screenshot.read_pictures(tmp_path)
        assert len(images) == 8
        assert [problem.partition(" is ")[0] for problem in problems] == ["8.png", "a.png"]

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("screenshot", "screenshot:COMMAND"),
            ("screenshot:", "screenshot:COMMAND"),
            ("screenshot:nosuch_program x", "no program"),
            ("screenshot:'open", "quotation"),
        ],
    )
    def test_a_command_that_cannot_be_is_absent(self, name: str, words: str) -> None:
        assert words in _names.find(name).unavailable_reason()


@pytest.mark.pure
def test_names_as_people_write_them() -> None:
    assert _names.find("trace-view") is _names.find("trace_view") is trace_view.PLUGIN
    assert _names.plain_name("screenshot:a-b c_d") == "screenshot:a-b c_d"
    with pytest.raises(UnknownPlugin, match="nothing behind a colon"):
        _names.find("trace-view:x")
    with pytest.raises(UnknownPlugin, match="trace_view"):
        _names.find("no-such")


# -- pictures on their way to a model --------------------------------------------------------------------------------


def shown(*images: bytes) -> Prompt:
    return Prompt(
        (Message("system", "be brief"), Message("user", "look", tuple(Image("image/png", i) for i in images)))
    )


@pytest.mark.pure
class TestPicturesToModels:
    def test_sizes_are_read_from_the_file(self) -> None:
        assert size_of(png(300, 20)) == (300, 20)
        assert size_of(b"GIF89a" + struct.pack("<HH", 7, 9)) == (7, 9)
        jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08" + struct.pack(">HH", 40, 60) + bytes(12)
        assert size_of(jpeg) == (60, 40)
        webp = b"RIFF    WEBPVP8X" + bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")
        assert size_of(webp) == (100, 50)
        for broken in (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xc0", b"RIFF    WEBPVP8 "):
            assert size_of(broken) is None

    def test_what_the_trace_viewer_makes_is_right_for_all(self) -> None:
        picture = Image("image/png", png(_browser.WIDTH, _browser.HEIGHT))
        for spec in ("anthropic:a", "openai:b", "google:c", "local:d"):
            assert fit_pictures([picture], limits_of(spec)) == ((picture,), ())

    def test_a_large_one_is_scaled_down(self) -> None:
        pytest.importorskip("PIL", reason="Pillow is not installed")
        [made], problems = fit_pictures([Image("image/png", png(2912, 1536))], limits_of("anthropic:x"))
        assert problems == ()
        width, height = size_of(made.data)
        assert width * height <= 1_160_000
        assert max(width, height) <= 1568
        assert width / height == pytest.approx(2912 / 1536, rel=0.01)

    def test_one_of_too_many_bytes_becomes_a_jpeg(self) -> None:
        pictures = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
        noise = png(300, 300, noise=True)
        [made], _ = fit_pictures([Image("image/png", noise)], PictureLimits(each=100_000))
        assert made.media_type == "image/jpeg"
        assert len(made.data) <= 100_000
        assert pictures.open(io.BytesIO(made.data)).size == (300, 300)

    def test_without_pillow_only_what_would_be_refused_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)
        large, huge = Image("image/png", png(2912, 1536)), Image("image/png", png(9000, 1))
        kept, problems = fit_pictures([large, huge], PictureLimits())
        assert kept == (large,)
        assert problems[0].startswith("picture 2: 9000 x 1 pixels are too many")
        assert "pip install pillow" in problems[0]

    def test_together_they_fit_a_request(self) -> None:
        picture = Image("image/png", png())
        kept, problems = fit_pictures([picture] * 3, PictureLimits(together=2 * len(picture.data)))
        assert len(kept) == 2
        assert "larger than a request may be" in problems[0]

    def test_a_model_that_reads_none_gets_the_text_and_a_note(self) -> None:
        asked: list[Prompt] = []
        model = Sighted(Scripted(lambda prompt: asked.append(prompt) or "ok"), PictureLimits(), reads=False)
        assert asyncio.run(model.complete(shown(png(), png()))).text == "ok"
        [prompt] = asked
        assert not any(message.images for message in prompt.messages)
        assert prompt.messages[0].text == "be brief"
        assert "Note: 2 pictures were left out (this model reads no pictures)" in prompt.messages[1].text

    def test_pictures_within_the_limits_arrive_untouched(self) -> None:
        asked: list[Prompt] = []
        model = Sighted(Scripted(lambda prompt: asked.append(prompt) or "ok"), PictureLimits())
        asyncio.run(model.complete(shown(png(), b"not a picture at all")))
        assert asked == [shown(png(), b"not a picture at all")]

    @pytest.mark.parametrize("kind", [ModelRejected, ModelUnavailable])
    def test_a_refusal_of_pictures_is_asked_again_without_once(self, kind: type[Exception]) -> None:
        asked: list[Prompt] = []
        model = Sighted(Picky(asked, kind("local:x: image input is not supported (HTTP 500)")), PictureLimits())
        for _ in range(2):
            assert asyncio.run(model.complete(shown(png()))).text == "fine"
        assert [len(prompt.messages[1].images) for prompt in asked] == [1, 0, 0]

    def test_another_refusal_is_passed_on(self) -> None:
        asked: list[Prompt] = []
        model = Sighted(Picky(asked, ModelRejected("x: the provider refuses the key (HTTP 401)")), PictureLimits())
        with pytest.raises(ModelRejected, match="401"):
            asyncio.run(model.complete(shown(png())))
        assert len(asked) == 1

    def test_a_hosted_model_is_opened_that_way(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = open_model("local:x", ModelSettings(base_url="http://127.0.0.1:9/v1"))
        assert isinstance(model, Sighted)
        assert model.name == "local:x"
        assert without_pictures(shown()).messages == shown().messages


class Picky:
    """A model that refuses pictures in its own words."""

    name, rate = "picky", None

    def __init__(self, asked: list[Prompt], error: Exception) -> None:
        self.asked = asked
        self.error = error

    async def complete(self, prompt: Prompt) -> Completion:
        self.asked.append(prompt)
        if any(message.images for message in prompt.messages):
            raise self.error
        return Completion("fine", "picky")

    async def close(self) -> None:
        pass


@pytest.mark.pure
@pytest.mark.parametrize("style", ["structured", "plain"])
def test_the_analyst_is_asked_what_it_sees_and_where(style: str) -> None:
    problem = Problem.from_file(HERE / "catalogue" / "problems" / "scale_relu.py")
    first = makers.attempt(1, 1.2)
    for images, expected in (((Image("image/png", png()),) * 2, True), ((), False)):
        seen = replace(first, profiles=(Profile("trace_view", text="T", images=images),))
        situation = makers.situation(problem, Move(0, 2, Intent.OPTIMISE, 1), (seen,))
        prompt = PromptMaker(style).analyse(situation).prompt
        assert prompt.messages[-1].images == images
        assert ("bottleneck" in prompt.messages[-1].text and "where" in prompt.messages[-1].text) is expected


@pytest.mark.cpu
class TestCommand:
    """`kforge profile`, without the judging."""

    @pytest.fixture
    def reported(self, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
        from kforge.cli import profile as command

        jobs: list[Job] = []

        class Executor:
            async def close(self) -> None:
                pass

            async def run(self, job: Job, _: Any) -> Report:
                jobs.append(job)
                raw = (Artefact("trace.html", "text/html", b"<p>"),)
                pictured = Profile("trace_view", {"calls": 3.0}, "[words]", (Image("image/png", png()),) * 2, raw=raw)
                profiles = (pictured, pictured, Profile("perf", absent="needs Linux"))
                return Report(job.id, "p", "c", "cpu", makers.verdict(1.5), profiles)

        monkeypatch.setattr(command, "open_executor", lambda *_: Executor())
        return jobs

    def run(self, *words: str) -> Any:
        app = typer.Typer()
        app.command()(profile)
        return CliRunner().invoke(app, ["bundled:level1/1", str(HERE / "catalogue/benign/example_style.py"), *words])

    def test_pictures_become_files_and_the_page_is_opened(
        self, reported: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[str] = []
        monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
        monkeypatch.setenv("DISPLAY", ":0")
        done = self.run("--profiler", "trace-view", "--out", str(tmp_path / "new"), "--open")
        assert done.exit_code == 0, done.output
        assert reported[0].settings.profilers == ("trace_view",)
        names = ["trace_view-2.1.png", "trace_view-2.2.png", "trace_view-2.trace.html"]
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
            [*names, *(name.replace("-2", "") for name in names)]
        )
        assert (tmp_path / "new" / "trace_view.1.png").read_bytes() == png()
        assert opened == [(tmp_path / "new" / name).as_uri() for name in ("trace_view.trace.html", names[2])]
        for words in ("[words]", "absent: needs Linux", "trace_view.2.png"):
            assert words in done.output

    def test_without_a_screen_the_path_is_named(
        self, reported: list[Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kforge.cli.profile._has_screen", lambda: False)
        done = self.run("--open", "--out", str(tmp_path), "--json")
        assert "no browser could be started; open " in done.stderr
        told = json.loads(done.stdout)
        assert told["profiles"][0]["files"][0] == str(tmp_path / "trace_view.1.png")
        assert told["profiles"][2]["absent"] == "needs Linux"
        assert reported[0].settings.profilers == ("torch_profiler", "roofline", "compiler_remarks")

    def test_an_unknown_profiler_is_refused_before_anything_runs(self, reported: list[Job]) -> None:
        done = self.run("--profiler", "nosuch")
        assert isinstance(done.exception, UsageError)
        assert "nosuch" in str(done.exception)
        assert reported == []
