"""`python -m kforge.worker --jobs jobs.jsonl --out DIR`: judge a batch with nothing but Python and torch."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kforge.errors import KForgeError
from kforge.types import Settings
from kforge.worker.jobs import Done, read_jobs, run_jobs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kforge.worker", description=__doc__)
    parser.add_argument("--jobs", type=Path, required=True, help="JSON Lines file, one job a line")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the reports; jobs with a report are skipped"
    )
    parser.add_argument("--platform", default="cpu", help="platform to judge on (default: cpu)")
    parser.add_argument("--sandbox", default="auto", choices=("auto", "bubblewrap", "unshare", "process"))
    arguments = parser.parse_args()
    counted = 0

    def tell(done: Done) -> None:
        nonlocal counted
        counted += 1
        what = done.report.verdict.outcome.value if done.report else f"error: {done.error}"
        speedup = done.report.verdict.speedup if done.report else None
        fast = f" {speedup:.2f}x" if speedup else ""
        again = " (from an earlier run)" if done.resumed else ""
        print(f"[{counted}/{len(jobs)}] {done.job.id}: {what}{fast}{again}", flush=True)

    try:
        jobs = read_jobs(arguments.jobs, Settings(sandbox=arguments.sandbox), arguments.platform)
        results = run_jobs(jobs, arguments.out, arguments.platform, tell)
    except KForgeError as error:
        print(f"kforge.worker: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; {counted} of {len(jobs)} done; the same command continues", file=sys.stderr)
        return 130
    if any(done.report is None for done in results):
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
