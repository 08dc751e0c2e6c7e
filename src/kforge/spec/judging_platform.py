"""A platform as it is where programs are judged: on this machine, or where a bundle is carried."""

from __future__ import annotations

import copy

from kforge import registry
from kforge.agents.base import Target
from kforge.execution.executor_names import LOCAL, check_executor, parse_executor
from kforge.platforms.base import Platform
from kforge.types import ProblemForm
from kforge.worker.bundle_folder import EMULATED

_UNKNOWN = (
    "\nThe machine that will run the program has not been described: where this text says unknown, let the program ask "
    "the device.\n"
)


def judging_platform(platform: str, executor: str = LOCAL, facts: dict[str, str] | None = None) -> Platform:
    """The platform with the facts of the machine that judges: its hardware may be there and not here.

    `facts`: those of the very device that was chosen, where one was; empty if nothing is known of it.
    """
    plugin, (judge, argument) = registry.load("platforms", platform), parse_executor(executor)
    if judge.judges_here:
        return plugin
    facts = judge.facts(argument, platform) if facts is None else facts
    return _on_another_machine(plugin if EMULATED in facts else plugin.hardware(), facts)


def target_of(
    platform: str, executor: str = LOCAL, form: ProblemForm = ProblemForm(), facts: dict[str, str] | None = None
) -> Target:
    """What agents are told of a platform, with the facts of the machine that judges, for problems in a form."""
    plugin, (judge, argument) = judging_platform(platform, executor, facts), parse_executor(executor)
    is_known = judge.judges_here or (judge.facts(argument, platform) if facts is None else facts)
    guide = plugin.guide() if is_known else plugin.guide() + _UNKNOWN
    verified_as = plugin.device_class if plugin.emulated else ""
    example, backward = plugin.example(*_example_kinds(form)), plugin.backward_example()
    return Target(plugin.name, guide, example, plugin.hardware().device_class, verified_as, backward)


def _example_kinds(form: ProblemForm) -> tuple[str, ...]:
    """Which of a platform's examples show most of what such a problem needs, the best first."""
    return ("half",) if form.is_short else ()


def check_platform(platform: str, executor: str = LOCAL) -> None:
    """PluginAbsent, with what to do, where a platform cannot be used on the machine that judges, as far as that can be
    told here; UsageError for an executor, or a folder of one, that cannot be used.
    """
    registry.load("platforms", platform)
    check_executor(executor, platform)


class _Facts(dict[str, str]):
    """Facts of a machine that may not be known."""

    def __missing__(self, name: str) -> str:
        return "unknown"


def _on_another_machine(platform: Platform, facts: dict[str, str]) -> Platform:
    """A copy of the platform whose guide says nothing of this machine."""
    other = copy.copy(platform)
    other.facts = lambda number=0: _Facts(facts)  # type: ignore[method-assign]
    return other
