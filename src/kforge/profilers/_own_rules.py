"""The rules that profilers bring along for their own signals."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from kforge import registry
from kforge.errors import KForgeError
from kforge.profilers._facts import Facts, RuleResult
from kforge.profilers._signal_rule import SignalRule

_log = logging.getLogger(__name__)


def rules_of(tools: Iterable[str]) -> dict[str, SignalRule]:
    """The rules of these profilers, by signal; none of one that is not installed here."""
    known = registry.names("profilers")
    # A profile may come from another machine: its tool's name is looked up, and never taken for a path.
    return {rule.name: _guard_rule(rule, tool) for tool in tools if tool in known for rule in _rules(tool)}


def _rules(tool: str) -> tuple[SignalRule, ...]:
    try:
        return registry.load("profilers", tool).rules
    except KForgeError:
        return ()


def _guard_rule(rule: SignalRule, tool: str) -> SignalRule:
    """The rule under its own name and its tool's, and one that does not end a run where it cannot read a profile."""

    def find(facts: Facts) -> RuleResult:
        try:
            hit = rule.find(facts)
        except Exception as error:
            _log.warning("%s: its signal %s cannot be read: %s: %s", tool, rule.name, type(error).__name__, error)
            return None
        return hit and (hit[0], replace(hit[1], name=rule.name))

    return replace(rule, find=find, source=rule.source or tool)
