"""What a shell offers behind an option. Nothing heavy is imported here."""

from __future__ import annotations


def platform_names(incomplete: str) -> list[str]:
    """Platforms whose names begin as was typed."""
    from kforge import registry

    return [name for name in registry.names("platforms") if name.startswith(incomplete)]


def profiler_names(incomplete: str) -> list[str]:
    """Profilers whose names begin as was typed."""
    from kforge import registry

    return [name for name in registry.names("profilers") if name.startswith(incomplete)]
