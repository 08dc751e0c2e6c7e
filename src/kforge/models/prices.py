"""What models charge, from the price list that comes with genai-prices. An unknown price stays unknown.

Prices are looked up by the address that requests go to, so that a local server is never charged like the hosted model
whose name it uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.models.base import Model
from kforge.types import Prompt

if TYPE_CHECKING:
    from genai_prices.types import AbstractUsage

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for text and code, where nobody has counted yet."""


@dataclass(frozen=True)
class Rate:
    """Dollars per token, at the lowest tier."""

    input: float
    output: float


FREE = Rate(0.0, 0.0)
"""For models that answer without asking anybody."""


def rate_of(model: Model) -> Rate | None:
    """What a model charges, wrapped or not; None if that is not known."""
    rate = getattr(model, "rate", None)
    return rate if isinstance(rate, Rate) else None


def tokens_in(text: str) -> int:
    """About how many tokens a text has."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def input_tokens(prompt: Prompt) -> int:
    """At least about how many tokens a prompt has; its images are left out."""
    return sum(tokens_in(message.text) for message in prompt.messages)


def listed_rate(model: str, address: str) -> Rate | None:
    """The listed price of a model at an address."""
    from genai_prices.types import Usage as Tokens

    each = 1000
    paid_in = dollars(Tokens(input_tokens=each), (model,), address)
    paid_out = dollars(Tokens(output_tokens=each), (model,), address)
    return None if paid_in is None or paid_out is None else Rate(paid_in / each, paid_out / each)


def dollars(used: AbstractUsage, models: tuple[str, ...], address: str) -> float | None:
    """What that much costs at an address, for the first of these names that is on the list; None if none is."""
    from genai_prices import calc_price

    for model in models:
        try:
            return float(calc_price(used, model, provider_api_url=address).total_price)
        except (LookupError, ValueError):
            continue
    return None
