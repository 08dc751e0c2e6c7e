"""A platform as it is where programs are judged: on this machine, or where a bundle is carried."""

from __future__ import annotations

import copy

from kforge import registry
from kforge.agents.base import Target
from kforge.errors import PluginAbsent
from kforge.execution.executor_names import LOCAL, folder_of
from kforge.platforms.base import Platform
from kforge.worker.bundle_folder import EMULATED, BundleFolder

_UNKNOWN = (
    "\nThe machine that will run the program has not been described: where this text says unknown, let the program ask "
    "the device.\n"
)


def judging_platform(platform: str, executor: str = LOCAL) -> Platform:
    """The platform with the facts of the machine that judges: its hardware may be there and not here."""
    plugin: Platform = registry.load("platforms", platform)
    folder = folder_of(executor)
    if folder is None:
        return plugin
    facts = BundleFolder(folder).facts(platform)
    return _on_another_machine(plugin if EMULATED in facts else plugin.hardware(), facts)


def target_of(platform: str, executor: str = LOCAL) -> Target:
    """What agents are told of a platform, with the facts of the machine that judges."""
    plugin, folder = judging_platform(platform, executor), folder_of(executor)
    guide = plugin.guide() if folder is None or BundleFolder(folder).facts(platform) else plugin.guide() + _UNKNOWN
    verified_as = plugin.device_class if plugin.emulated else ""
    return Target(plugin.name, guide, plugin.example(), plugin.hardware().device_class, verified_as)


def check_platform(platform: str, executor: str = LOCAL) -> None:
    """PluginAbsent, with what to do, where a platform cannot be used on this machine; UsageError for a bundle's folder
    that cannot be one. What a bundle's machine lacks is for its worker to say.
    """
    plugin: Platform = registry.load("platforms", platform)
    folder = folder_of(executor)
    if folder is not None:
        BundleFolder(folder).check()
        return
    reason = plugin.unavailable_reason()
    if reason:
        raise PluginAbsent(f"platform {platform}: {reason}")


class _Facts(dict[str, str]):
    """Facts of a machine that may not be known."""

    def __missing__(self, name: str) -> str:
        return "unknown"


def _on_another_machine(platform: Platform, facts: dict[str, str]) -> Platform:
    """A copy of the platform whose guide says nothing of this machine."""
    other = copy.copy(platform)
    other.facts = lambda number=0: _Facts(facts)  # type: ignore[method-assign]
    return other
