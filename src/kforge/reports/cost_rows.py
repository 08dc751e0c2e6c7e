"""The table of what each problem cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kforge.metrics.cost import Cost, cost
from kforge.reports import number_format
from kforge.reports.findings import StudyFindings
from kforge.reports.left_out import group_name

COST_NOTE = (
    "Everything tried, confirmations not included. Models: from a question to its reply, waiting in a queue included. "
    "The columns after it are the phases of verdicts, then profiles; device held: how long nobody else could measure "
    "on it."
)


def cost_table(findings: StudyFindings) -> tuple[list[str], list[list[str]]]:
    """Heads and rows, with all of them together in the last; columns that have nothing to say are left out."""
    trials = [trial for trial in findings.study.trials if trial.history]
    costs = [cost(trial) for trial in trials]
    if not costs:
        return [], []
    total = sum(costs, Cost())
    columns = [(head, show) for head, show, known in _columns(total) if known]
    labels = [
        [trial.cell.problem, group_name(findings, trial.cell.platform, trial.cell.configuration)] for trial in trials
    ]
    rows = [
        [*label, *(show(item) for _, show in columns)]
        for label, item in zip([*labels, ["all", ""]], [*costs, total], strict=True)
    ]
    return ["problem", "configuration", *(head for head, _ in columns)], rows


def _columns(total: Cost) -> Sequence[tuple[str, Callable[[Cost], str], bool]]:
    """Heads, what they show of a cost, and whether there is anything to show."""
    return (
        ("programs", lambda item: str(item.programs), True),
        ("questions", lambda item: str(item.requests), total.requests > 0),
        ("tokens in", lambda item: number_format.amount(item.input_tokens), total.input_tokens > 0),
        ("tokens out", lambda item: number_format.amount(item.output_tokens), total.output_tokens > 0),
        ("models", lambda item: number_format.seconds(item.model_seconds), total.requests > 0),
        *((name, _phase(name), True) for name in total.phases),
        ("profiles", lambda item: number_format.seconds(item.profile_seconds), total.profile_seconds > 0),
        ("device held", lambda item: number_format.seconds(item.device_seconds), total.device_seconds > 0),
    )


def _phase(name: str) -> Callable[[Cost], str]:
    return lambda item: number_format.seconds(item.phases.get(name, 0.0))
