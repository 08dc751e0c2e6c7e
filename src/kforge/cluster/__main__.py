"""A worker or a scheduler with nothing but Python, torch, distributed and KForge: what `kforge worker` does too.

python -m kforge.cluster worker --scheduler tls://head:8786 --platforms cuda,triton
python -m kforge.cluster scheduler tls://head:8786
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kforge.cluster.address import parse_address
from kforge.errors import KForgeError, PluginAbsent
from kforge.visible_text import visible
from kforge.worker.device_selection import device_numbers

MISSING = "Dask is not installed: pip install 'kforge-kernels[cluster]'"
_BETWEEN_SECONDS, _HARD_END_SECONDS = 0.5, 10.0


@dataclass(frozen=True)
class WorkerOptions:
    """What a worker is asked to be."""

    scheduler: str
    platforms: str
    devices: str = ""
    builders: int = 0
    tls: Path | None = None
    insecure: bool = False
    name: str = ""


def require_dask() -> None:
    """PluginAbsent, with the cure, where Dask is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise PluginAbsent(MISSING)


def run_worker(options: WorkerOptions, say: Callable[[str], None]) -> int:
    """Work until Ctrl-C. UsageError, PluginAbsent for what keeps it from that."""
    require_dask()
    address = parse_address(options.scheduler, options.tls, options.insecure)
    # They import torch and Dask.
    from kforge.cluster.description import describe_worker
    from kforge.cluster.device_host import DeviceHost
    from kforge.cluster.worker_process import serve

    platforms = tuple(name.strip() for name in options.platforms.split(",") if name.strip())
    description = describe_worker(platforms, device_numbers(options.devices), options.builders)
    for group in description.groups:
        say(f"{group.platform}: {len(group.devices)} x {group.model}, {group.slots} at once, {description.sandbox}")
    return serve(address, DeviceHost(description), options.name, say)


def run_scheduler(address: str, tls: Path | None, insecure: bool, say: Callable[[str], None]) -> int:
    """Schedule until Ctrl-C."""
    require_dask()
    from kforge.cluster.scheduler_process import serve_scheduler

    def started(where: str) -> None:
        say(f"scheduler at {where}")
        say(f"start workers with: kforge worker --scheduler {where} --platforms PLATFORM")

    asyncio.run(serve_scheduler(parse_address(address, tls, insecure), started))
    return 0


def end_with_input() -> None:
    """End this process when its standard input does: whoever started it is gone."""

    def watch() -> None:
        # Not through sys.stdin, whose lock would be held when the interpreter ends.
        while os.read(0, 1 << 16):
            pass
        # Once ends a scheduler; twice, a worker in the middle of what nobody waits for any longer.
        for seconds in (_BETWEEN_SECONDS, _HARD_END_SECONDS):
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="kforge-input").start()


def main() -> int:
    """0 when it was told to stop, 2 for what keeps it from working, 130 where it was broken off."""
    arguments = _arguments()
    if arguments.until_input_ends:
        end_with_input()
    try:
        if arguments.what == "scheduler":
            return run_scheduler(arguments.address, arguments.tls, arguments.insecure, _say)
        options = WorkerOptions(
            arguments.scheduler,
            arguments.platforms,
            arguments.devices,
            arguments.builders,
            arguments.tls,
            arguments.insecure,
            arguments.name,
        )
        return run_worker(options, _say)
    except KForgeError as error:
        print(f"kforge.cluster: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _say(words: str) -> None:
    print(visible(words), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m kforge.cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    worker = commands.add_parser("worker", help="judge for whoever asks")
    worker.add_argument("--scheduler", required=True, help="its address: tls://head:8786")
    worker.add_argument("--platforms", required=True, help="what to judge for: cuda,triton")
    worker.add_argument("--devices", default="", help="numbers of the devices to judge on: 0 or 0,1 (default: all)")
    worker.add_argument("--builders", type=int, default=0, help="programs in hand at once for each device")
    worker.add_argument("--name", default="", help="what it is called (default: its host and process)")
    scheduler = commands.add_parser("scheduler", help="the scheduler of a cluster")
    scheduler.add_argument("address", help="where to listen: tls://head:8786")
    for command in (worker, scheduler):
        command.add_argument("--tls", type=Path, help="folder of the cluster's certificates")
        command.add_argument("--insecure", action="store_true", help="plain TCP beyond this machine")
        command.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
