"""Judge with nothing but Python and torch.

python -m kforge.worker --jobs jobs.jsonl --out DIR     a batch
python -m kforge.worker --bundle DIR                    the open jobs of a bundle that `kforge forge` wrote
python -m kforge.worker --bundle DIR --describe         only write down what this machine is like
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kforge.errors import KForgeError, UsageError
from kforge.types import Settings
from kforge.visible_text import visible
from kforge.worker.bundle_folder import BundleFolder
from kforge.worker.bundle_work import OpenJobs, describe
from kforge.worker.device_selection import DeviceSelection, device_numbers
from kforge.worker.jobs import Done, read_jobs, run_jobs

_CONTINUES = "the same command continues"


class _Count:
    """Prints a line for each job that is done."""

    def __init__(self) -> None:
        self.done = 0
        self.whole = 0

    def tell(self, done: Done) -> None:
        self.done += 1
        what = done.report.verdict.outcome.value if done.report else f"error: {done.error}"
        speedup = done.report.verdict.speedup if done.report else None
        fast = f" {speedup:.2f}x" if speedup else ""
        again = " (from an earlier run)" if done.resumed else ""
        print(visible(f"[{self.done}/{self.whole}] {done.job.id}: {what}{fast}{again}"), flush=True)


def main() -> int:
    """0 if every job has a report, 2 if not, 130 if it was stopped."""
    arguments = _arguments()
    count = _Count()
    try:
        return _run_bundle(arguments, count) if arguments.bundle else _run_batch(arguments, count)
    except KForgeError as error:
        print(f"kforge.worker: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; {count.done} of {count.whole} done; {_CONTINUES}", file=sys.stderr)
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kforge.worker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=Path, help="JSON Lines file, one job a line")
    parser.add_argument("--out", type=Path, help="folder for the reports of --jobs; jobs with a report are skipped")
    parser.add_argument("--platform", help="platform to judge --jobs on (default: cpu); a bundle's jobs name theirs")
    parser.add_argument(
        "--sandbox", choices=("auto", "bubblewrap", "unshare", "process"), help="for --jobs that name none"
    )
    parser.add_argument("--bundle", type=Path, help="folder that `kforge forge --executor bundle:DIR` wrote")
    parser.add_argument("--describe", action="store_true", help="with --bundle: write machine.json and run nothing")
    parser.add_argument("--builders", type=_at_least_one, default=0, help="programs in hand at once for each device")
    parser.add_argument(
        "--devices", type=_devices, default=(), help="numbers of the devices to judge on: 0 or 0,1 (default: all)"
    )
    arguments = parser.parse_args()
    batch = [name for name in ("jobs", "out", "platform", "sandbox") if getattr(arguments, name) is not None]
    if arguments.bundle is not None and batch:
        parser.error(f"--{batch[0]} belongs to --jobs; a bundle's jobs say it themselves")
    if arguments.bundle is None and (arguments.jobs is None or arguments.out is None):
        parser.error("name a bundle with --bundle, or a batch with --jobs and --out")
    if arguments.describe and arguments.bundle is None:
        parser.error("--describe writes into a bundle: name it with --bundle")
    return arguments


def _run_batch(arguments: argparse.Namespace, count: _Count) -> int:
    platform = arguments.platform or "cpu"
    jobs = read_jobs(arguments.jobs, Settings(sandbox=arguments.sandbox or "auto"), platform)
    count.whole = len(jobs)
    results = run_jobs(
        jobs,
        arguments.out,
        platform,
        count.tell,
        builders=arguments.builders,
        devices=arguments.devices,
    )
    return 2 if any(done.report is None for done in results) else 0


def _run_bundle(arguments: argparse.Namespace, count: _Count) -> int:
    folder = BundleFolder(arguments.bundle)
    folder.check()
    if arguments.describe:
        print(f"{folder.path / 'machine.json'}: {', '.join(describe(folder)) or 'no platform can be used here'}")
        return 0
    if not folder.path.is_dir():
        raise UsageError(f"{folder.path}: no such folder; `kforge forge --executor bundle:DIR` writes one")
    jobs = OpenJobs(folder)
    for fault in jobs.faults:
        print(f"kforge.worker: {fault}", file=sys.stderr)
    count.whole = len(jobs)
    if not len(jobs):
        print(f"no job waits in {folder.path} ({jobs.answered} have their reports)")
        return 2 if jobs.faults else 0
    describe(folder)
    results = jobs.carry_out(count.tell, DeviceSelection(arguments.devices, arguments.builders))
    written = sum(done.report is not None for done in results)
    print(f"reports written to {folder.reports}: {written}; carry the folder back, then: kforge resume RUN")
    return 2 if jobs.faults or written < len(results) else 0


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _devices(text: str) -> tuple[int, ...]:
    try:
        return device_numbers(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
