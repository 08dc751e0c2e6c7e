"""What went wrong with a hosted model, in KForge's own words: can asking again help, and what is there to do?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from kforge.errors import ModelError, ModelRejected, ModelUnavailable
from kforge.models import keys
from kforge.models.secret_filter import scrub
from kforge.types import Prompt

_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
"""Client errors that pass; so does every server error."""


@dataclass(frozen=True)
class FailedRequest:
    """Who was asked what."""

    spec: str
    """The model as the user named it."""
    prompt: Prompt
    base_url: str = ""

    @property
    def provider(self) -> str:
        return self.spec.partition(":")[0]

    @property
    def key(self) -> str:
        """How to speak of the key in use."""
        if self.base_url:
            return keys.SERVER_KEY
        return next(iter(keys.variables(self.provider)), f"the key of {self.provider}")


def explain(error: Exception, request: FailedRequest) -> ModelError:
    """The error to raise instead of a client library's."""
    from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError, UserError

    if isinstance(error, ModelHTTPError):
        return _http(error, request)
    if isinstance(error, (ModelConnectionError, OSError)):
        kind = type(error.__cause__ or error).__name__
        return ModelUnavailable(f"{request.spec}: the connection failed ({kind})")
    if isinstance(error, ModelAPIError):
        return ModelUnavailable(
            f"{request.spec}: the provider's reply cannot be read: {scrub(error.message, request.prompt)}",
            retry_after=error.retry_after,
        )
    if isinstance(error, UserError):
        return ModelRejected(f"{request.spec}: {scrub(error.message, request.prompt)}")
    # Client libraries trip over replies of the wrong shape in many ways; none of them is worth a crash.
    return ModelUnavailable(f"{request.spec}: the provider's reply has the wrong shape ({type(error).__name__})")


def retry_after(headers: Mapping[str, str] | None, now: datetime | None = None) -> float | None:
    """Seconds a provider asks to wait: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    headers = {name.lower(): value.strip() for name, value in (headers or {}).items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())


def _http(error: Any, request: FailedRequest) -> ModelError:
    from pydantic_ai.exceptions import (
        ModelAuthenticationError,
        ModelContextWindowExceededError,
        ModelNotFoundError,
        ModelQuotaExceededError,
    )

    status = error.status_code
    detail = _detail(error.body, request.prompt)
    if isinstance(error, ModelQuotaExceededError):
        return ModelRejected(f"{request.spec}: the account behind {request.key} has no credit left (HTTP {status})")
    if isinstance(error, ModelContextWindowExceededError):
        return ModelRejected(
            f"{request.spec}: the prompt does not fit the model (HTTP {status}); lower the prompt ceiling, or take a "
            f"model with a larger context window"
        )
    if isinstance(error, ModelAuthenticationError) or status in (401, 403):
        return ModelRejected(f"{request.spec}: {_about_the_key(status, request)}")
    if isinstance(error, ModelNotFoundError) or status == 404:
        return ModelRejected(f"{request.spec}: {_about_the_name(error, request)}")
    if status in _WORTH_ANOTHER_TRY or status >= 500:
        wait = retry_after(error.headers)
        return ModelUnavailable(
            f"{request.spec}: {_about_the_load(status)} (HTTP {status}){detail}",
            retry_after=error.retry_after if wait is None else wait,
        )
    return ModelRejected(f"{request.spec}: the provider refuses the request (HTTP {status}){detail}")


def _about_the_key(status: int, request: FailedRequest) -> str:
    what = "refuses the key" if status == 401 else "does not allow this key to use the model"
    cure = f"check {request.key}" if " " in request.key else f"set a valid one: export {request.key}=your-key"
    return f"the provider {what} (HTTP {status}); {cure}"


def _about_the_name(error: Any, request: FailedRequest) -> str:
    name = request.spec.partition(":")[2]
    hint = f"; did you mean {error.suggested_model_id}?" if error.suggested_model_id else ""
    where = " at that base URL (check it, too)" if request.base_url else ""
    return f"the provider knows no model {name!r}{where} (HTTP {error.status_code}){hint}"


def _about_the_load(status: int) -> str:
    if status == 429:
        return "the provider's rate limit is reached"
    return "the provider is overloaded" if status in (503, 529) else "the provider failed"


def _detail(body: object, prompt: Prompt) -> str:
    """What the provider said, fit to be shown, with a colon before it."""
    message = scrub(_message(body), prompt)
    return f": {message}" if message else ""


def _message(body: object) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, list):
        return next((text for item in body if (text := _message(item))), "")
    if isinstance(body, dict):
        message = body.get("message")
        return message if isinstance(message, str) else _message(body.get("error"))
    return ""
