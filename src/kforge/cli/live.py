"""Runs as they happen: one line per chain on a terminal, one line per attempt elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kforge.cli.colours import colour_of
from kforge.execution.base import WAIT_PREFIX
from kforge.run.context import RunEvent
from kforge.types import Attempt, Outcome, Stop, Usage, best_attempt

SLOW = ("writing", "repairing")
"""Steps that may take long and say nothing meanwhile."""
_REPEAT_SECONDS = 55.0
"""Before the same wait is printed again: less than the minute after which whoever waits is reminded."""
_FIGURES = {"step": 5, "speedup": 7, "vs best": 7, "elapsed": 7, "cost": 9}
"""Columns of figures, and what each of them needs."""
_LEAST_NAME, _LEAST_STATE, _MOST_STATE = 8, 20, 32
"""Widths of a problem's name and of a state; the longest state is an outcome and why the chain ended."""
_MOST_WAITS = 3
"""How many chains that wait for a file are named below the table."""


@dataclass
class ChainRow:
    """One chain of one run."""

    problem: str
    iterations: int
    chain: int = 0
    samples: int = 1
    step: int = 0
    activity: str = "waiting"
    awaits: str = ""
    """The file that a model waits for."""
    attempts: tuple[Attempt, ...] = ()
    stop: Stop | None = None
    began: float | None = None
    ended: float | None = None
    usage: Usage = field(default_factory=Usage)

    @property
    def elapsed(self) -> float:
        if self.began is None:
            return 0.0
        return (self.ended or time.monotonic()) - self.began

    def take(self, event: RunEvent) -> None:
        self.began = self.began or time.monotonic()
        self.step, self.activity, self.awaits = event.step, event.words, event.awaits
        if event.attempt is not None:
            self.attempts += (event.attempt,)
            self.usage += event.attempt.usage
        if event.stop is not None:
            self.stop, self.ended = event.stop, time.monotonic()

    def fail(self, reason: str) -> None:
        """Note that the run broke off."""
        self.stop, self.ended, self.activity = Stop("model", reason), time.monotonic(), reason


class WaitNotices:
    """Prints why nothing goes on, whole: once for all that wait for the same, and again every minute."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed: dict[str, float] = {}

    def take(self, words: str) -> None:
        """Print it, if these words say that something waits and were not printed a moment ago."""
        now = time.monotonic()
        if words.startswith(WAIT_PREFIX) and now - self._printed.get(words, -1e9) >= _REPEAT_SECONDS:
            self._printed[words] = now
            self._console.print(words, style="dim", highlight=False, markup=False, soft_wrap=True)


class LiveRuns:
    """Draws rows while runs go on. Use it as a context manager."""

    def __init__(self, console: Console, quiet: bool = False) -> None:
        self._console = console
        self._rows: list[ChainRow] = []
        self._quiet = quiet
        self._waits = WaitNotices(console)
        self._live: Live | None = None
        if console.is_terminal and not quiet:
            self._live = Live(self, console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> LiveRuns:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def add(self, problem: str, iterations: int, samples: int = 1, past: tuple[Attempt, ...] = ()) -> list[ChainRow]:
        """Rows for the chains of a run; `past` is what an earlier process did of it."""
        rows = [ChainRow(problem, iterations, chain, samples) for chain in range(samples)]
        for row in rows:
            row.attempts = tuple(attempt for attempt in past if attempt.move.chain == row.chain)
            row.step = len(row.attempts)
            row.usage = sum((attempt.usage for attempt in row.attempts), Usage())
        self._rows += rows
        return rows

    def take(self, rows: list[ChainRow], event: RunEvent) -> None:
        """Show what happened in a run whose rows these are."""
        row = rows[event.chain]
        row.take(event)
        if not self._quiet:
            self._waits.take(event.words)
        if self._live is None and not self._quiet:
            if event.attempt is not None:
                self._console.print(_attempt_line(row, event.attempt), highlight=False, soft_wrap=True)
            elif event.awaits:
                line = f"[dim]{escape(f'{_name(row)}: waiting for {event.awaits}')}[/]"
                self._console.print(line, highlight=False, soft_wrap=True)
            elif event.words in SLOW:
                name = escape(_name(row))
                self._console.print(f"[dim]{name}: {event.words} program {event.step}[/]", highlight=False)

    def __rich__(self) -> Group:
        waiting = [row for row in self._rows if row.awaits and row.stop is None][:_MOST_WAITS]
        waits = [_wait_line(row, self._console.width) for row in waiting]
        return Group(self._table(self._visible_rows(len(waits))), *waits)

    def _table(self, rows: list[ChainRow]) -> Table:
        """Figures whole, and what is left of the width for names and states: fixed, so that no column jumps."""
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
        left = self._console.width - sum(_FIGURES.values()) - len(_FIGURES) - 2
        longest = max((len(_name(row)) for row in rows), default=0)
        state = max(_LEAST_STATE, min(_MOST_STATE, left - longest))
        name_width = max(_LEAST_NAME, min(longest, left - state))
        table.add_column("problem", width=name_width, no_wrap=True)
        table.add_column("state", width=state, no_wrap=True)
        for name, width in _FIGURES.items():
            table.add_column(name, justify="right", min_width=width, no_wrap=True)
        for row in rows:
            table.add_row(escape(_name(row, name_width)), *_cells(row))
        return table

    def _visible_rows(self, lines_below: int) -> list[ChainRow]:
        """As many rows as the terminal has lines for: those at work and the last ones done."""
        room = max(3, self._console.height - 4 - lines_below)
        if len(self._rows) <= room:
            return self._rows
        last = max((number for number, row in enumerate(self._rows) if row.began), default=0)
        first = max(0, min(last + 2, len(self._rows)) - room)
        return self._rows[first : first + room]


def _cells(row: ChainRow) -> list[str]:
    best = best_attempt(row.attempts)
    state = _state(row)
    return [
        state,
        f"{min(row.step, row.iterations)}/{row.iterations}",
        speedup(best.verdict.speedup if best else None),
        speedup(best.verdict.speedup_vs_best if best else None),
        f"{row.elapsed:.0f} s",
        cost(row.usage),
    ]


def _wait_line(row: ChainRow, width: int) -> Text:
    """Which file a chain waits for, in one line: of a long path the end, which no other has."""
    head = f"{_name(row)} waits for "
    room = max(20, width - len(head))
    path = row.awaits if len(row.awaits) <= room else f"...{row.awaits[3 - room :]}"
    return Text(f"{head}{path}", style="cyan", no_wrap=True, overflow="ellipsis")


def _name(row: ChainRow, width: int | None = None) -> str:
    """The problem and, where there are several, the chain; what is cut to a width is the problem."""
    chain = f" #{row.chain + 1}" if row.samples > 1 else ""
    if width is None or len(row.problem) + len(chain) <= width:
        return row.problem + chain
    return f"{row.problem[: width - len(chain) - 1]}…{chain}"


def _state(row: ChainRow) -> str:
    if row.stop is None:
        return f"[cyan]{escape(row.activity[:40])}[/]" if row.began else "[dim]waiting[/]"
    if row.stop.reason == "waiting":
        return "[cyan]waits for a report[/]"
    if best_attempt(row.attempts) is not None:
        return f"[green]done[/] [dim]({row.stop.reason})[/]"
    last = row.attempts[-1].verdict.outcome.value if row.attempts else row.stop.reason
    return f"[red]{last}[/] [dim]({row.stop.reason})[/]"


def speedup(value: float | None) -> str:
    """A speedup for people: two digits, or a dash where nothing was measured."""
    return "-" if value is None else f"{value:.2f}x"


def cost(usage: Usage) -> str:
    """Dollars; `+?` says that the price of some replies is not known."""
    if not usage.requests:
        return "$0"
    return f"${usage.dollars:.4f}" + ("+?" if usage.unpriced else "")


def _attempt_line(row: ChainRow, attempt: Attempt) -> str:
    verdict = attempt.verdict
    colour = colour_of(verdict.outcome)
    number = f"{attempt.move.step}/{row.iterations}"
    detail = verdict.headline if verdict.outcome is not Outcome.CORRECT else ""
    left = f"{escape(_name(row))}  {number:>5}  {attempt.move.intent.value:<9} "
    middle = f"[{colour}]{verdict.outcome.value:<19}[/]{speedup(verdict.speedup):>8}  "
    return left + middle + f"{row.elapsed:5.0f} s  {cost(row.usage)}  [dim]{escape(detail)}[/]"
