"""What all wrappers share: they look like the model inside."""

from __future__ import annotations

from kforge.models.base import Model
from kforge.models.prices import Rate, rate_of


class ModelWrapper:
    """A model around a model. Subclasses say what `complete` adds."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def rate(self) -> Rate | None:
        """What the model inside charges."""
        return rate_of(self.model)

    async def close(self) -> None:
        await self.model.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"
