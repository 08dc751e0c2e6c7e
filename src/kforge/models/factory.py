"""From a model's name on the command line to the model. Nothing is sent."""

from __future__ import annotations

from kforge import registry
from kforge.errors import PluginAbsent, UsageError
from kforge.models.base import Model
from kforge.models.forms import unknown_model_error
from kforge.models.hosted import Hosted
from kforge.models.picture_filter import Sighted
from kforge.models.picture_sizes import limits_of
from kforge.types import ModelSettings


def open_model(spec: str, settings: ModelSettings = ModelSettings()) -> Model:
    """The bare model of that name: a plug-in's, by the word before the colon, or else a provider's.

    A hosted one gets pictures in the size that its provider takes. Raises UsageError for a name that makes no sense or
    a key that is missing, PluginAbsent for a plug-in or a provider that lacks something on this machine.
    """
    if spec == "builtin":
        raise UsageError("builtin is no model: the offline agents need none. Choose them where a run is asked for")
    name, colon, argument = spec.partition(":")
    if not (name and colon and argument.strip()):
        raise unknown_model_error(spec)
    return _plugin_model(name, argument, settings) if name in registry.names("models") else _hosted(spec, settings)


def _plugin_model(name: str, argument: str, settings: ModelSettings) -> Model:
    plugin = registry.load("models", name)
    reason = plugin.unavailable_reason()
    if reason:
        raise PluginAbsent(f"model {name}: {reason}")
    return plugin.open(argument, settings)


def _hosted(spec: str, settings: ModelSettings) -> Model:
    model = Hosted(spec, settings)
    return Sighted(model, limits_of(spec), model.reads_pictures)
