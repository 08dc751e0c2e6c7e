"""What a platform's method raises, told so that its author finds it: the platform, the method, the traceback's end."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from kforge.errors import KForgeError, PlatformFault

_LINES = 8


@contextmanager
def platform_method(platform: str, method: str) -> Iterator[None]:
    """Around a call of a platform's method: PlatformFault for what it raises, unless that is an error of KForge's."""
    try:
        yield
    except KForgeError:
        raise
    except Exception as error:
        trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
        lines = "".join(traceback.format_exception(type(error), error, trace, chain=False)).splitlines()
        trace_text = "\n".join(f"  {line}" for line in lines[-_LINES:])
        message = f"platform {platform}: {method} raised {type(error).__name__}: {error}\n{trace_text}"
        raise PlatformFault(message) from error
