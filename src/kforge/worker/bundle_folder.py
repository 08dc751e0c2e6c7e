"""A bundle: a folder that carries jobs to a machine without a network, and reports back.

    DIR/
      README.txt        what to do with it, in plain words
      bundle.json       {"format": 1}
      jobs/ID.json      a job to carry out, whole: {"format": 1, "python": "3.12", "job": {...}}
      files/HASH.pkl    the live modules that jobs name
      reports/ID.json   the report on the job of that name
      errors/ID.txt     why there is none: the problem or the machine is at fault, not the program
      machine.json      what the machine over there is like, by platform

ID is the problem's name and a hash of everything that decides the verdict: problem, program, platform, settings, but
not the profiles that are wanted beside it. Equal jobs are one job, whoever asks, and are carried out once. A file
appears whole or not at all, and nothing is changed in place, so any of this may be copied at any moment; a job is open
as long as no report answers it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kforge import jsonable, live_module
from kforge.errors import HarnessError, UsageError, WireError
from kforge.profilers._names import plain_name
from kforge.types import Job, Report, text_hash
from kforge.whole_file import write_whole
from kforge.worker.report_file import read_report

FORMAT = 1
EMULATED = "emulated"
"""Among a platform's facts, where its programs run on an emulator there."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_ODD = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 40
_README = """\
This folder carries jobs of KForge to a machine that has the device, and reports back.

1. Copy the whole folder to that machine.
2. There, run   python -m kforge.worker --bundle FOLDER
   It needs Python, torch and the source tree of the same version of KForge (PYTHONPATH=.../src if it is not installed),
   cuda-core for the platform cuda, and no network. A run that was stopped goes on with the same command; what has a
   report is not judged again.
3. Copy the folder back to where it was, the new files in reports/ at least.
4. There, run   kforge resume RUN   (`kforge runs` names the runs that wait; `kforge resume waiting` takes all of them)
   It takes the reports in, asks for the next programs, and may leave new jobs here: begin again at 1.
   For an experiment, repeat the   kforge bench   command instead: it knows what all of it may cost.

  jobs/         programs to judge, one file each
  files/        what they need beside that
  reports/      what was found, one file for each job
  errors/       why a job could not be carried out; the next run of the worker tries it again
  machine.json  what the machine there is like: prompts say it to the writer. Before the first round,
                python -m kforge.worker --bundle FOLDER --describe   writes it alone

Nothing here is the only copy: a job that was deleted is written again by `kforge resume`, a report by the worker.
"""


@dataclass(frozen=True)
class BundledJob:
    """A job as it lies in a bundle."""

    job: Job
    """Its id is the file's name; a live module's file is the bundle's own."""
    python: str
    """The version it was packed with: a live module holds compiled code of it."""


class BundleFolder:
    """The files of one bundle. The folder is made when something is first put into it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def reports(self) -> Path:
        return self.path / "reports"

    def check(self) -> None:
        """UsageError where this cannot be, or become, a bundle; nothing is written."""
        marker = self.path / "bundle.json"
        try:
            if not self.path.exists():
                return
            if not self.path.is_dir():
                raise UsageError(f"{self.path} is a file; a bundle is a folder")
            if not marker.exists():
                if any(self.path.iterdir()):
                    raise UsageError(f"{self.path} holds other things than a bundle; name a new folder or an empty one")
                return
            data = json.loads(marker.read_text(encoding="utf-8"))
            stored_format = data.get("format") if isinstance(data, dict) else None
        except OSError as error:
            raise UsageError(f"{error.filename or self.path}: {error.strerror}") from None
        except ValueError:
            raise UsageError(f"{marker} is damaged; delete it, and it is written again") from None
        if stored_format != FORMAT:
            raise UsageError(
                f"{self.path} is a bundle of format {stored_format}; this KForge reads and writes {FORMAT}"
            )

    def put(self, job: Job) -> None:
        """Leave a job to be carried out. The same one again is the same file, with the profiles that either wants."""
        path = self._job_file(self.name(job))
        job = self._with_profiles_asked_before(job, path)
        encoded = jsonable.encode(job)
        name = _identity(encoded)
        if job.problem.payload:
            encoded["problem"]["payload"] = self._put_payload(job)
        data = json.dumps({"format": FORMAT, "python": PYTHON, "job": {**encoded, "id": name}}, indent=1).encode()
        if not (self.path / "README.txt").exists():
            self._write("README.txt", _README.encode())
        if not path.exists() or path.read_bytes() != data:
            self._write(f"jobs/{name}.json", data)

    def has_job(self, job: Job) -> bool:
        """Whether the job was left here before."""
        return self._job_file(self.name(job)).exists()

    def _with_profiles_asked_before(self, job: Job, path: Path) -> Job:
        """The job, with the profiles that the same job in this file asks for as well, and of slower programs too."""
        try:
            before = self._read_job(path).job
        except WireError:
            return job
        wanted = {plain_name(name): name for name in (*job.settings.profilers, *before.settings.profilers)}
        least = min(each.profile_above for each in (before, job) if each.settings.profilers or not wanted)
        return replace(job, settings=replace(job.settings, profilers=tuple(wanted.values())), profile_above=least)

    def jobs(self) -> Iterator[BundledJob | str]:
        """Every job, or a sentence about a file that holds none."""
        for path in sorted((self.path / "jobs").glob("*.json")):
            try:
                yield self._read_job(path)
            except WireError as error:
                yield f"{path}: {error}; `kforge resume` writes it again once it is deleted"

    def report(self, job: Job) -> Report | None:
        """The report on a job, about the job's own problem and program; None if there is none yet.

        WireError says why the file that is there does not count.
        """
        report = read_report(self.reports / f"{self.name(job)}.json", job)
        if report is None or report.verdict.evidence is None:
            return None
        # The problem over there has another path, and the program may have come from another attempt.
        evidence = replace(report.verdict.evidence, problem=job.problem, candidate=job.candidate)
        return replace(report, job=job.id, verdict=replace(report.verdict, evidence=evidence))

    def error(self, job: Job) -> str:
        """Why the last try to carry a job out gave no report; empty if there was none."""
        try:
            return self._error_file(self.name(job)).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def set_error(self, job: Job, reason: str) -> None:
        """Note why a job gave no report; an empty reason takes the note away."""
        if reason:
            self._write(f"errors/{self.name(job)}.txt", f"{reason}\n".encode())
        else:
            self._error_file(self.name(job)).unlink(missing_ok=True)

    def waiting_count(self) -> int:
        """How many jobs have no report."""
        return sum(isinstance(item, BundledJob) and not self.has_report(item.job) for item in self.jobs())

    def has_report(self, job: Job) -> bool:
        """Whether there is a report that counts."""
        try:
            return self.report(job) is not None
        except WireError:
            return False

    def facts(self, platform: str) -> dict[str, str]:
        """What is known of the machine over there; empty if nothing is."""
        return self._machine().get(platform, {})

    def set_facts(self, facts: dict[str, dict[str, str]]) -> None:
        """Write down what this machine is like, by platform; what is known of other platforms stays."""
        known = {"format": FORMAT, "platforms": {**self._machine(), **facts}}
        self._write("machine.json", json.dumps(known, indent=1).encode())

    @staticmethod
    def name(job: Job) -> str:
        """What a job's files are called here."""
        return _identity(jsonable.encode(job))

    def _job_file(self, name: str) -> Path:
        return self.path / "jobs" / f"{name}.json"

    def _error_file(self, name: str) -> Path:
        return self.path / "errors" / f"{name}.txt"

    def _read_job(self, path: Path) -> BundledJob:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            stored_format, python, encoded = data["format"], str(data["python"]), data["job"]
            if stored_format != FORMAT:
                raise WireError(f"a job of format {stored_format}; this KForge reads {FORMAT}")
            if _identity(encoded) != path.stem:
                if _identity(encoded, ()) == path.stem:
                    raise WireError("left by an earlier version of KForge, which named it in another way")
                raise WireError("damaged: it does not hold the job that its name says")
        except OSError as error:
            raise WireError(f"cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise WireError("damaged: it is no whole job") from None
        try:
            job = jsonable.decode(Job, encoded)
        except WireError as error:
            raise WireError(f"of another version of KForge: {error}") from None
        if job.problem.payload:
            payload_path = self.path.absolute() / _payload_place(job)
            job = replace(job, problem=replace(job.problem, payload=str(payload_path)))
        return BundledJob(job, python)

    def _machine(self) -> dict[str, dict[str, str]]:
        try:
            data = json.loads((self.path / "machine.json").read_text(encoding="utf-8"))
            return {
                str(name): {str(key): str(value) for key, value in facts.items()}
                for name, facts in data["platforms"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            # Not there, or damaged: nothing is known, and the worker writes it again.
            return {}

    def _put_payload(self, job: Job) -> str:
        """Copy a live module's file into the bundle; its place there."""
        place = _payload_place(job)
        if not (self.path / place).exists():
            self._write(place, live_module.read(job.problem.payload, job.problem.payload_hash))
        return place

    def _write(self, place: str, data: bytes) -> None:
        path = self.path / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            marker = self.path / "bundle.json"
            if not marker.exists():
                write_whole(marker, json.dumps({"format": FORMAT}).encode())
            write_whole(path, data)
        except OSError as error:
            raise HarnessError(f"{path}: {os.strerror(error.errno or 0)}: it could not be written there") from None


def _payload_place(job: Job) -> str:
    return f"files/{live_module.file_name(job.problem.payload_hash)}"


def _identity(encoded: Any, beside: tuple[str, ...] = ("profilers",)) -> str:
    """The name of a job in its JSON form, from all that decides the verdict: not where things lie, who asks, or which
    profiles are wanted `beside` it.
    """
    problem, candidate = dict(encoded["problem"]), encoded["candidate"]
    for name in ("path", "payload"):
        problem.pop(name, None)
    settings = {name: value for name, value in encoded["settings"].items() if name not in beside}
    decides = [problem, candidate["source"], candidate["platform"], settings]
    digest = text_hash(json.dumps(decides, sort_keys=True))
    return f"{_ODD.sub('_', problem['name'])[:_LONGEST_NAME]}-{digest}"
