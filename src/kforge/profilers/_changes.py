"""How a signal differs from the attempt before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kforge.profilers._signal_rule import SignalRule
from kforge.types import Digest, Signal

GONE = "gone"

_AGREES = 1.25
"""How far a timed signal may move from what the speedup says: beyond that, the machine moved and not the program."""
_QUOTED = re.compile(r"`([^`]*)`")


def with_change(signal: Signal, previous: Digest | None, rule: SignalRule) -> Signal:
    """The signal with its change. One that was not listed before may have been left out: that is not called new."""
    before = _listed_signal(previous, signal.name)
    if before is None or previous is None:
        return signal
    if signal.value is None or before.value is None:
        was, now = _first_word(before.words), _first_word(signal.words)
        return replace(signal, change="unchanged" if was == now else f"was {was}, now {now}")
    if rule.others and before.value == signal.value:
        return replace(signal, change="" if _quoted_texts(before) == _quoted_texts(signal) else rule.others)
    if rule.is_alike(before.value, signal.value):
        return signal
    return replace(signal, change=f"was {rule.written(before.value)}, now {rule.written(signal.value)}")


def without_doubtful_change(signal: Signal, previous: Digest | None, rule: SignalRule, speedup: float | None) -> Signal:
    """The signal without its change where that contradicts the speedup: times of two moments do not compare."""
    before, reference = _listed_signal(previous, signal.name), _listed_signal(previous, "speedup")
    if rule.follows_speed is None or before is None or not before.value or not signal.value:
        return signal
    if reference is None or not reference.value or not speedup:
        return signal
    moved = (signal.value / before.value) ** rule.follows_speed
    gained = speedup / reference.value
    same_way = (moved - 1) * (gained - 1) >= 0
    return signal if same_way and 1 / _AGREES <= moved / gained <= _AGREES else replace(signal, change="")


def ended_signals(
    previous: Digest | None, rules: Mapping[str, SignalRule], known: set[str], tools: set[str]
) -> list[Signal]:
    """Signals of the attempt before that no longer matter, where that is news and the tool that would show them ran."""
    ended = []
    for before in previous.signals if previous is not None else ():
        rule = rules.get(before.name)
        if rule is None or not rule.gone or rule.source not in tools:
            continue
        if before.value is not None and before.name not in known and before.change != GONE:
            ended.append(Signal(before.name, rule.gone.format(was=rule.written(before.value)), change=GONE))
    return ended


def _listed_signal(previous: Digest | None, name: str) -> Signal | None:
    signals = previous.signals if previous is not None else ()
    return next((item for item in signals if item.name == name and item.change != GONE), None)


def _quoted_texts(signal: Signal) -> list[str]:
    """What a signal names, by its text: lines move from one program to the next."""
    return _QUOTED.findall(signal.words)


def _first_word(text: str) -> str:
    return text.split(" ", 1)[0]
