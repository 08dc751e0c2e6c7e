"""Profiling in one word: none, text or image, and the profilers that it means on a platform."""

from __future__ import annotations

from typing import Literal, get_args

from kforge.errors import PluginAbsent
from kforge.platforms.base import Platform
from kforge.profilers import _names as naming

ProfilingMode = Literal["none", "text", "image"]
NONE, TEXT, IMAGE = get_args(ProfilingMode)
_ANYWHERE = "trace_view"
"""Takes pictures of a program on any device."""


def profilers_for(mode: str, platform: Platform, here: bool = True) -> tuple[str, ...]:
    """The profilers that a word means: text is what the platform has of its own that shows no pictures, image one that
    does. PluginAbsent if no picture can be taken. `here`: the platform is on this machine.
    """
    if mode == NONE:
        return ()
    if mode == TEXT:
        return tuple(name for name in platform.profilers if not naming.find(name).pictures)
    if not here:
        return (_picture_profilers(platform)[0],)
    works = [name for name in _picture_profilers(platform) if not naming.find(name).unavailable_reason()]
    if not works:
        raise PluginAbsent(f"profiling {IMAGE} on platform {platform.name}: {_no_pictures_reason(platform)}")
    return (works[0],)


def no_profile_reason(mode: str, platform: Platform, here: bool = True) -> str:
    """Why that word would show nothing on a platform; empty if it would."""
    if mode == NONE:
        return ""
    if here and platform.emulated:
        return f"programs for {platform.name} are verified in emulation on this machine, and never profiled"
    if mode == TEXT:
        return (
            "" if profilers_for(TEXT, platform) else f"{platform.name} has no profiler of its own that shows only text"
        )
    return _no_pictures_reason(platform) if here else ""


def _picture_profilers(platform: Platform) -> list[str]:
    own = [name for name in platform.profilers if naming.find(name).pictures]
    return list(dict.fromkeys([*own, _ANYWHERE]))


def _no_pictures_reason(platform: Platform) -> str:
    """Why no profiler can take pictures on this machine; empty if one can."""
    reasons = {name: naming.find(name).unavailable_reason() for name in _picture_profilers(platform)}
    return "" if "" in reasons.values() else "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
