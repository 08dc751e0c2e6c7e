"""An experiment as it goes on: a bar, what is in hand, and a line for each cell that ends."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kforge.cli.colours import colour_of
from kforge.cli.live import WaitNotices, cost, speedup
from kforge.experiments.progress import News, Progress
from kforge.types import Cell, Experiment, Outcome, Usage

_MOST_ROWS = 10
_ENDS = {"stopped": "yellow", "waiting": "cyan", "failed": "red", "put off": "yellow"}


class LiveBench:
    """Draws progress while an experiment goes on. Use it as a context manager."""

    def __init__(self, console: Console, experiment: Experiment, spent: Usage = Usage(), quiet: bool = False) -> None:
        self.progress = Progress(experiment, spent)
        self._console, self._quiet = console, quiet
        self._several = (len(experiment.platforms) > 1, len(experiment.configurations) > 1, len(experiment.seeds) > 1)
        self._last: dict[Cell, str] = {}
        self._put_off: dict[str, int] = {}
        self._troubles: set[str] = set()
        self._waits = WaitNotices(console)
        self._live: Live | None = None
        if console.is_terminal and not quiet:
            self._live = Live(self, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveBench:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        for reason, count in self._put_off.items():
            cells = "1 cell was" if count == 1 else f"{count} cells were"
            self._say(f"[yellow]{cells} put off[/]: {escape(reason)}")

    def take(self, news: News) -> None:
        """Show what happened to a cell."""
        self.progress.take(news)
        if news.event is not None and not self._quiet:
            self._waits.take(news.event.words)
        if news.event is not None and news.event.attempt is not None:
            self._last[news.cell] = news.event.attempt.verdict.outcome.value
        if news.end == "put off":
            self._put_off[news.reason] = self._put_off.get(news.reason, 0) + 1
        elif news.end is not None and news.end != "earlier":
            self._say(self._line(news))
            self._last.pop(news.cell, None)

    def note(self, message: str) -> None:
        """Note that a request is tried again; the same trouble is said once."""
        trouble = message.partition("; asking again")[0]
        if trouble in self._troubles:
            return
        self._troubles.add(trouble)
        self._console.print(message, style="dim", highlight=False, markup=False, soft_wrap=True)

    def _say(self, line: str) -> None:
        if not self._quiet:
            self._console.print(line, highlight=False, soft_wrap=True)

    def _line(self, news: News) -> str:
        progress = self.progress
        width = len(str(progress.total))
        head = f"{progress.done:>{width}}/{progress.total}  {escape(self._name(news.cell))}  "
        if news.end in _ENDS:
            return head + f"[{_ENDS[news.end]}]{news.end}[/]  {escape(news.reason)}"
        verdict = news.verdict
        if verdict is None:
            return head + f"[red]{self._last.get(news.cell, 'nothing written')}[/]  {self._pace()}"
        best = "" if verdict.speedup_vs_best is None else f", {speedup(verdict.speedup_vs_best)} vs best"
        figures = speedup(verdict.speedup) + best
        if verdict.speedup is None:
            figures = "emulated" if verdict.emulated else "not timed"
        if verdict.outcome is not Outcome.CORRECT:
            figures = "when it was judged once more"
        return head + f"[{colour_of(verdict.outcome)}]{verdict.outcome.value}[/]  {figures}  {self._pace()}"

    def _name(self, cell: Cell) -> str:
        platforms, configurations, seeds = self._several
        parts = [cell.problem]
        parts += [cell.platform] if platforms else []
        parts += [cell.configuration] if configurations else []
        parts += [f"seed {cell.seed}"] if seeds else []
        return "  ".join(parts)

    def _pace(self) -> str:
        left = self.progress.seconds_left
        parts = [] if left is None or self.progress.done == self.progress.total else [f"{duration(left)} left"]
        parts += [cost(self.progress.usage)] if self.progress.usage.requests else []
        return f"[dim]{', '.join(parts)}[/]"

    def __rich__(self) -> Group:
        progress = self.progress
        bar = Table.grid(padding=(0, 2, 0, 0))
        left = progress.seconds_left
        figures = [f"{progress.done}/{progress.total}", f"{progress.correct} correct", duration(progress.seconds)]
        figures += ["" if left is None else f"{duration(left)} left", cost(progress.usage)]
        bar.add_row(ProgressBar(progress.total, progress.done, width=30), *figures)
        rows = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
        for cell, doing in list(progress.at_work.items())[:_MOST_ROWS]:
            rows.add_row(Text(f"  {self._name(cell)}", style="dim"), Text(doing, style="cyan"))
        more = len(progress.at_work) - _MOST_ROWS
        return Group(bar, rows, Text(f"  and {more} more", style="dim")) if more > 0 else Group(bar, rows)


def duration(seconds: float) -> str:
    """A duration for people: 40 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
