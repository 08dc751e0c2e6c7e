"""The offline agents, ready for use."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.agents.base import Target
from kforge.agents.offline.lowering_client import Lowering
from kforge.agents.offline.recipe import language_of
from kforge.agents.offline.rules import RulesAnalyst
from kforge.agents.offline.writer import OfflineWriter
from kforge.errors import PluginAbsent


@dataclass(frozen=True)
class Offline:
    """Both agents, and the process they share."""

    writer: OfflineWriter
    analyst: RulesAnalyst
    lowering: Lowering

    async def close(self) -> None:
        await self.lowering.close()


_PLATFORMS = ("cpu", "cuda", "triton")


def check_offline(target: Target) -> None:
    """PluginAbsent, with what to do, where the offline agents cannot write for a target."""
    if not language_of(target.device_class) or target.name not in _PLATFORMS:
        raise PluginAbsent(f"builtin writes for CPUs and NVIDIA GPUs, not for {target.name}: name a model with --model")
    if target.verified_as:
        raise PluginAbsent(f"builtin writes for {target.name} only where its device is: name a model with --model")


def open_offline(target: Target) -> Offline:
    """The agents behind the model name `builtin`; nothing is started before the first program is asked for."""
    check_offline(target)
    lowering = Lowering()
    return Offline(OfflineWriter(lowering), RulesAnalyst(), lowering)
