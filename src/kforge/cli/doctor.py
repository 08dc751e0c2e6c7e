"""`kforge doctor`: what this machine has, and what it lacks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import json
import os
import platform as machine
import shutil
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kforge import registry
from kforge.cli.screen import Screen
from kforge.errors import KForgeError
from kforge.execution import nvrtc_availability
from kforge.execution.base import ExecutorPlugin
from kforge.models import keys
from kforge.models.base import ModelPlugin
from kforge.platforms._nvidia.run_time_compiler import nvrtc_version
from kforge.profilers.base import Profiler
from kforge.worker.sandbox import levels

_TOOLS = (
    ("g++", "Debian and Ubuntu: apt-get install g++"),
    ("clang++", "Debian and Ubuntu: apt-get install clang"),
    ("ninja", "for load_inline: pip install ninja"),
    ("nvcc", "NVIDIA's CUDA toolkit"),
)


def run(as_json: bool) -> int:
    """0 if at least one platform can be used."""
    report = examine()
    if as_json:
        print(json.dumps(report))
    else:
        _print(Screen(), report)
    return 0 if any(not item["absent"] for item in report["platforms"].values()) else 2


def examine() -> dict[str, Any]:
    """Everything, as plain data: name -> {absent: reason or empty, detail: ...}."""
    sandbox = {
        level: {"absent": levels.unavailable_reason(level), "detail": _SANDBOX[level]} for level in levels.LEVELS
    }
    return {
        "python": machine.python_version(),
        "torch": importlib.metadata.version("torch") if importlib.util.find_spec("torch") else None,
        "platforms": _examine_each("platforms", _platform),
        "compilers": {**{name: _tool(name, cure) for name, cure in _TOOLS}, "nvrtc": _run_time_compiler()},
        "profilers": _examine_each("profilers", lambda name: _state(registry.load("profilers", name))),
        "sandbox": sandbox,
        "models": {**_providers(), **_examine_each("models", lambda name: _state(registry.load("models", name)))},
        "executors": _examine_each("executors", lambda name: _state(registry.load("executors", name))),
        "search": _examine_each("search", _search),
        "sandbox_used": levels.choose("auto"),
    }


def _examine_each(kind: registry.KindName, examine_one: Callable[[str], dict[str, str]]) -> dict[str, dict[str, str]]:
    """The plug-ins of a kind; one that cannot be loaded or asked is absent, and why."""
    plugins = {}
    for name in registry.names(kind):
        try:
            plugins[name] = examine_one(name)
        except KForgeError as error:
            plugins[name] = {"absent": str(error), "detail": ""}
        except Exception as error:
            # A third party's: it must not hide what there is besides.
            plugins[name] = {"absent": f"{type(error).__name__}: {error}", "detail": ""}
    return plugins


def _platform(name: str) -> dict[str, str]:
    plugin = registry.load("platforms", name)
    facts = plugin.facts()
    detail = ", ".join(
        facts[key] for key in ("processor", "cores", "vectors") if facts.get(key, "unknown") != "unknown"
    )
    return {
        "absent": plugin.unavailable_reason() or _torch_missing(),
        "detail": detail.replace(f", {facts.get('cores')},", f", {facts.get('cores')} cores,"),
    }


def _state(plugin: Profiler | ModelPlugin | ExecutorPlugin) -> dict[str, str]:
    return {"absent": plugin.unavailable_reason(), "detail": plugin.what}


def _search(name: str) -> dict[str, str]:
    summary = inspect.getdoc(registry.load("search", name)) or ""
    return {"absent": "", "detail": summary.partition("\n")[0]}


_SANDBOX = {
    "bubblewrap": "own view of the file system, no network, own processes",
    "unshare": "the same, made with the kernel's own calls",
    "process": "resource limits only; the user's files are readable",
}


def _providers() -> dict[str, dict[str, str]]:
    """The offline agents, and whose key is set; never a key itself."""
    providers = {"builtin": {"absent": _torch_missing(), "detail": "the offline agents: no key, no network, no model"}}
    for provider in ("openai", "anthropic", "google"):
        names = keys.variables(provider)
        held = next((name for name in names if os.environ.get(name)), "")
        providers[provider] = {"absent": "" if held else f"no key (export {names[0]}=...)", "detail": f"{held} is set"}
    return providers


def _torch_missing() -> str:
    return "" if importlib.util.find_spec("torch") else "torch is not installed (pip install torch)"


def _tool(name: str, cure: str) -> dict[str, str]:
    path = shutil.which(name)
    return {"absent": "" if path else f"not found ({cure})", "detail": path or ""}


def _run_time_compiler() -> dict[str, str]:
    """Whether programs for CUDA are compiled here before they travel to another machine."""
    detail = f"{nvrtc_version()}: programs for cuda are compiled here before they go to a bundle or a cluster"
    return {"absent": nvrtc_availability.unavailable_reason(), "detail": detail}


def _print(console: Console, report: dict[str, Any]) -> None:
    console.print(f"Python {report['python']}, torch {report['torch'] or 'not installed'}", highlight=False)
    for kind in ("platforms", "compilers", "profilers", "sandbox", "models", "executors", "search"):
        console.print(f"\n[bold]{kind}[/]")
        table = Table.grid(padding=(0, 2))
        for name, item in report[kind].items():
            used = " (used)" if kind == "sandbox" and name == report["sandbox_used"] else ""
            mark = "[red]no [/]" if item["absent"] else "[green]yes[/]"
            table.add_row("  " + mark, name + used, f"[dim]{escape(item['absent'] or item['detail'])}[/]")
        console.print(table)
