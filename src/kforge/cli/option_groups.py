"""Help pages whose options stand in groups, every name whole, however narrow the terminal is."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

GROUPS = {
    "Problems": ("suite", "levels", "limit", "draw", "only", "without", "dtype", "backward"),
    "Search": ("iterations", "samples", "target_speedup", "repairs", "plateau", "seed", "seeds", "search", "reference"),
    "Models": (
        *("model", "analyst_model", "budget", "budget_tokens", "temperature", "max_output_tokens", "model_timeout"),
        *("base_url", "cache", "record", "concurrency", "per_minute"),
    ),
    "Prompts and profiling": ("style", "prompts", "prompt_tokens", "keep_prompts", "profiler", "profiling"),
    "Judging": (
        *("platform", "executor", "devices", "builders", "baseline", "compile_baseline", "autotune_baseline", "policy"),
        *("precision", "timing_seconds", "sanitize", "sandbox", "build_timeout", "call_timeout", "memory", "confirm"),
    ),
    "Configurations": ("preset", "setting", "name", "presets", "listing", "dry_run", "fresh", "parallel"),
}
"""What stands together in a command's help; whatever is named nowhere here comes last."""
UNGROUPED = frozenset({"worker"})
"""Commands of few options, which stand together whatever theirs are called like elsewhere."""
_OTHERS = "Options"


class GroupedCommand(TyperCommand):
    """A command that lists its options in groups, in the order they are declared."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups = {} if self.name in UNGROUPED else GROUPS
        titles = {name: title for title, names in groups.items() for name in names}
        records: dict[str, list[tuple[str, str]]] = {title: [] for title in ("Arguments", *GROUPS, _OTHERS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                records["Arguments" if is_argument else titles.get(parameter.name or "", _OTHERS)].append(record)
        for title, lines in records.items():
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines, col_max=24)
