"""From a model's name on the command line to the model. Nothing is sent."""

from __future__ import annotations

from collections.abc import Callable

from kforge.errors import UsageError
from kforge.models.base import Model
from kforge.models.command import Command
from kforge.models.forms import unknown
from kforge.models.hosted import Hosted
from kforge.models.mailbox import Mailbox
from kforge.models.picture_filter import Sighted
from kforge.models.picture_sizes import limits_of
from kforge.models.recordings import Replay
from kforge.types import ModelSettings

_OPENERS: dict[str, Callable[[str, ModelSettings], Model]] = {
    "command": Command,
    "mailbox": lambda rest, _settings: Mailbox(rest),
    "replay": lambda rest, _settings: Replay(rest),
}
"""By the word before the colon; every other word is a provider's name."""


def open_model(spec: str, settings: ModelSettings = ModelSettings()) -> Model:
    """The bare model of that name; a hosted one gets pictures in the size that its provider takes.

    Raises UsageError for a name that makes no sense or a key that is missing, PluginAbsent for a provider whose client
    library is not installed.
    """
    if spec == "builtin":
        raise UsageError("builtin is no model: the offline agents need none. Choose them where a run is asked for")
    kind, colon, rest = spec.partition(":")
    if not (kind and colon and rest.strip()):
        raise unknown(spec)
    opener = _OPENERS.get(kind)
    return opener(rest, settings) if opener else _hosted(spec, settings)


def _hosted(spec: str, settings: ModelSettings) -> Model:
    model = Hosted(spec, settings)
    return Sighted(model, limits_of(spec), model.reads_pictures)
