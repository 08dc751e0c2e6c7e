"""Models and offline agents that are open: each once, however many runs use it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from kforge.agents.base import Target
from kforge.agents.offline.factory import Offline, open_offline
from kforge.models.base import Model
from kforge.models.budget_account import BudgetAccount
from kforge.models.factory import open_model
from kforge.models.rate_limit import Limited
from kforge.types import ModelSettings


@dataclass(frozen=True)
class ModelAccess:
    """How models are reached; none of it changes what is asked."""

    cache: str = ""
    """A folder of replies to share between runs; empty for none."""
    record: str = ""
    """A file to append every exchange to, prompts included; empty for none."""
    concurrency: int = 8
    """Requests at once."""
    per_minute: int | None = None
    """Requests a minute."""
    models: dict[str, Model] = field(default_factory=dict)
    """Models of the caller's own, by name; the caller closes them."""
    account: BudgetAccount | None = None
    """What several runs together may spend."""
    notify: Callable[[str], None] = lambda _: None
    """Told when a request is tried again, and why."""


class ModelPool:
    """Opens models by name and settings, within their limits, and the offline agents of a platform."""

    def __init__(self, access: ModelAccess = ModelAccess()) -> None:
        self._access = access
        self._models: dict[tuple[str, ModelSettings], Limited] = {}
        self._offline: dict[str, Offline] = {}

    def model(self, name: str, settings: ModelSettings) -> Limited:
        """The model of that name; UsageError or PluginAbsent if there is none. Nothing is sent."""
        if (name, settings) not in self._models:
            self._models[name, settings] = self._open(name, settings)
        return self._models[name, settings]

    def offline(self, target: Target) -> Offline:
        """The offline agents for a target: one warm compiler for all runs."""
        if target.name not in self._offline:
            self._offline[target.name] = open_offline(target)
        return self._offline[target.name]

    async def close(self) -> None:
        """Close what was opened here, all of it; the caller's own models stay open."""
        async with contextlib.AsyncExitStack() as closing:
            for (name, _), model in self._models.items():
                if name not in self._access.models:
                    closing.push_async_callback(model.close)
            for offline in self._offline.values():
                closing.push_async_callback(offline.close)

    def _open(self, name: str, settings: ModelSettings) -> Limited:
        given = self._access.models.get(name)
        if isinstance(given, Limited):
            return given
        model = given or open_model(name, settings)
        for (other, _), known in self._models.items():
            if other == name:
                # The same model asked in another way shares its limits.
                return known.around(model)
        return Limited(model, self._access.concurrency, self._access.per_minute)
