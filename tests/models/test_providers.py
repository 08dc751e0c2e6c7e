"""Hosted models, through the real client libraries, against a server on the loopback interface."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from kforge.errors import ModelError, ModelRejected, ModelUnavailable
from kforge.models import prices
from kforge.models.cache import Caching
from kforge.models.factory import open_model
from kforge.models.failures import retry_after
from kforge.models.retry import Backoff, Retrying
from kforge.types import Completion, Finish, Image, Message, ModelSettings, Prompt
from provider_server import (
    ANTHROPIC,
    DIALECTS,
    INPUT,
    OUTPUT,
    RESPONSES,
    Dialect,
    Server,
    answer,
    anthropic_events,
    fail,
    reset,
    serving,
    stream,
    trickle,
)

pytestmark = pytest.mark.pure

KEY = "sk-live-0123456789abcdefghij"
SECRET = "the quick brown kernel jumps over the lazy roofline 8675309"
PROMPT = Prompt((Message("system", "You write kernels."), Message("user", SECRET)))


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def one_trust_store() -> Iterator[None]:
    """Reading the machine's certificates takes most of the time of building a client; nothing here is encrypted."""
    with pytest.MonkeyPatch.context() as patch:
        context = ssl.create_default_context()
        patch.setattr(ssl, "create_default_context", lambda *_args, **_kwargs: context)
        yield


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("KFORGE_SERVER_KEY", KEY)
    running.behaviours.clear()
    running.received.clear()
    running.connections.clear()
    return running


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.spec)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    found: Dialect = request.param
    return found


def ask(
    server: Server,
    dialect: Dialect,
    prompt: Prompt = PROMPT,
    wrap: Callable[[Any], Any] = lambda model: model,
    **how: Any,
) -> Completion:
    async def talk() -> Completion:
        model = wrap(open_model(dialect.spec, ModelSettings(base_url=server.url + dialect.path, **how)))
        try:
            completion: Completion = await model.complete(prompt)
            return completion
        finally:
            await model.close()

    return asyncio.run(talk())


def error_of(server: Server, dialect: Dialect, **how: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(server, dialect, **how)
    error = caught.value
    for told in (str(error), repr(error)):
        assert KEY not in told
        assert SECRET not in told
    assert error.__cause__ is None
    assert error.__context__ is None, "the client's error holds the request"
    return error


def test_a_reply_comes_back_with_what_it_used(server: Server, dialect: Dialect) -> None:
    server.behaviours = [dialect.says("a kernel")]
    completion = ask(server, dialect)
    assert completion.text == "a kernel", "and no thoughts in it"
    assert completion.model == dialect.spec
    assert completion.finish is Finish.STOP
    assert (completion.usage.requests, completion.usage.input_tokens, completion.usage.output_tokens) == (
        1,
        INPUT,
        OUTPUT,
    )
    assert (completion.usage.dollars, completion.usage.unpriced) == (0.0, 1), "a local server has no listed price"
    assert completion.seconds > 0
    assert KEY in "".join(server.received[0].headers.values())
    assert KEY not in server.received[0].path


def test_a_providers_key_is_not_sent_elsewhere(
    server: Server, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KFORGE_SERVER_KEY")
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, KEY)
    server.behaviours = [dialect.says("ok")]
    assert ask(server, dialect).text == "ok"
    assert KEY not in str(server.received)


def test_messages_keep_their_roles_and_order(server: Server, dialect: Dialect) -> None:
    server.behaviours = [dialect.says("ok")]
    turns = (
        Message("system", "be brief"),
        Message("user", "one"),
        Message("assistant", "two"),
        Message("user", "three"),
    )
    ask(server, dialect, Prompt(turns))
    seen = dialect.texts(server.received[0].body)
    assert [text for _, text in seen] == ["be brief", "one", "two", "three"]
    roles = [role for role, _ in seen]
    assert roles[1] == roles[3] == "user"
    assert roles[2] in ("assistant", "model")
    assert roles[0] in ("system", "developer")


def test_settings_arrive(server: Server, dialect: Dialect) -> None:
    server.behaviours = [answer(dialect.reply("ok", "stop"))]
    assert ask(server, dialect, temperature=0.25, max_output_tokens=777).text == "ok"
    assert dialect.limits(server.received[0].body) == (0.25, 777)


def test_images_arrive_byte_for_byte(server: Server, dialect: Dialect) -> None:
    server.behaviours = [dialect.says("ok")]
    images = (Image("image/png", bytes(range(256)) * 5), Image("image/jpeg", b"\xff\xd8\xff" + b"\x00" * 99))
    ask(server, dialect, Prompt((Message("user", "look", images),)))
    body = server.received[0].body
    assert dialect.images(body) == [(image.media_type, image.data) for image in images]
    assert [text for _, text in dialect.texts(body)] == ["look"]


@pytest.mark.parametrize("ending", ["length", "filtered", "refused"])
def test_a_reply_that_ended_badly_is_still_a_paid_reply(server: Server, dialect: Dialect, ending: str) -> None:
    server.behaviours = [dialect.says("half a ker", ending)]
    completion = ask(server, dialect)
    # Anthropic has no filter apart from the refusal.
    expected = "refused" if dialect is ANTHROPIC and ending == "filtered" else ending
    assert completion.finish.value == expected
    assert completion.usage.tokens == INPUT + OUTPUT
    if ending == "length":
        assert completion.text == "half a ker"


def test_empty_content_is_an_empty_reply(server: Server, dialect: Dialect) -> None:
    server.behaviours = [dialect.says("")]
    completion = ask(server, dialect)
    assert (completion.text, completion.finish, completion.usage.tokens) == ("", Finish.STOP, INPUT + OUTPUT)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_what_passes_is_worth_asking_again_and_is_asked_once(server: Server, dialect: Dialect, status: int) -> None:
    server.behaviours = [fail(status)]
    error = error_of(server, dialect)
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after is None
    assert str(status) in str(error)
    assert len(server.received) == 1, "the client library must not retry by itself"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({"retry_after": "7"}, 7.0), ({"retry_after_ms": "1500"}, 1.5), ({"retry_after": "0.5"}, 0.5)],
)
def test_the_wait_a_provider_asks_for(
    server: Server, dialect: Dialect, headers: dict[str, str], expected: float
) -> None:
    server.behaviours = [fail(429, **headers)]
    error = error_of(server, dialect)
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == expected


def test_a_wait_may_be_a_date() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert retry_after({"Retry-After": format_datetime(now + timedelta(seconds=90), usegmt=True)}, now) == 90
    assert retry_after({"Retry-After": format_datetime(now - timedelta(seconds=90), usegmt=True)}, now) == 0
    for nonsense in ("soon", "-3", "inf", "nan", ""):
        assert retry_after({"retry-after": nonsense}, now) is None
    assert retry_after(None) is None


@pytest.mark.parametrize(
    ("behaviour", "how"),
    [(reset, {}), (trickle, {"timeout_seconds": 5.0}), (answer(b'{"id": '), {}), (answer(b"[]"), {})],
    ids=["reset", "stall", "malformed", "wrong shape"],
)
def test_broken_replies_are_worth_asking_again(server: Server, dialect: Dialect, behaviour: Any, how: Any) -> None:
    # The client's library is loaded by the first request, which takes long on a busy machine, and is no stall.
    server.behaviours = [dialect.says("ok"), behaviour]
    assert ask(server, dialect).text == "ok"
    error = error_of(server, dialect, **how)
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after is None
    assert len(server.received) == 2
    assert ("no whole reply within 5 s" in str(error)) == (behaviour is trickle)


@pytest.mark.parametrize("kept", [0, 1, -3, -2, -1])
def test_a_stream_that_breaks_off_is_no_reply(server: Server, kept: int) -> None:
    events = anthropic_events(ANTHROPIC.reply("a whole kernel", "stop"))
    server.behaviours = [stream(*events[:kept])]
    if kept == -1:
        assert ask(server, ANTHROPIC).text == "a whole kernel", "all but the farewell has come"
    else:
        assert isinstance(error_of(server, ANTHROPIC), ModelUnavailable)


def test_an_overload_may_be_told_in_the_stream(server: Server) -> None:
    overload = {"type": "error", "error": {"type": "overloaded_error", "message": f"Overloaded by {SECRET}"}}
    events = anthropic_events(ANTHROPIC.reply("a whole kernel", "stop"))
    server.behaviours = [stream(*events[:3], overload)]
    assert isinstance(error_of(server, ANTHROPIC), ModelUnavailable)


def test_nobody_listening_is_worth_asking_again(server: Server, dialect: Dialect) -> None:
    nowhere = dataclasses.replace(server, url="http://127.0.0.1:9")
    assert isinstance(error_of(nowhere, dialect), ModelUnavailable)


def test_a_wrong_key_names_the_variable(server: Server, dialect: Dialect) -> None:
    server.behaviours = [fail(401, f"Incorrect API key provided: {KEY}")]
    error = error_of(server, dialect)
    assert isinstance(error, ModelRejected)
    assert "export KFORGE_SERVER_KEY=" in str(error)


@pytest.mark.parametrize(
    ("spec", "address", "variable"),
    [
        ("openai:gpt-5", "OPENAI_BASE_URL", "OPENAI_API_KEY"),
        ("anthropic:claude-sonnet-4-6", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
        ("google-gla:gemini-2.5-pro", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY"),
    ],
)
def test_a_wrong_key_names_the_providers_own_variable(
    server: Server, monkeypatch: pytest.MonkeyPatch, spec: str, address: str, variable: str
) -> None:
    monkeypatch.setenv(address, server.url)
    monkeypatch.setenv(variable, KEY)
    server.behaviours = [fail(401, f"Incorrect API key provided: {KEY}")]

    async def talk() -> None:
        model = open_model(spec)
        try:
            await model.complete(PROMPT)
        finally:
            await model.close()

    with pytest.raises(ModelRejected, match=f"export {variable}=") as caught:
        asyncio.run(talk())
    assert KEY not in str(caught.value)


def test_an_unknown_model_is_named(server: Server, dialect: Dialect) -> None:
    server.behaviours = [fail(404, f"no such model, and you said: {SECRET}")]
    error = error_of(server, dialect)
    assert isinstance(error, ModelRejected)
    assert repr(dialect.spec.partition(":")[2]) in str(error)


def test_a_refused_request_says_why_without_the_prompt(server: Server, dialect: Dialect) -> None:
    server.behaviours = [fail(400, f"max_tokens: 9999999 is too large; you sent '{SECRET}' with {KEY}")]
    error = error_of(server, dialect)
    assert isinstance(error, ModelRejected)
    assert "9999999 is too large" in str(error)
    for word in ("brown kernel", "lazy", "8675309", "0123456789"):
        assert word not in str(error)


def test_no_credit_is_not_worth_asking_again(server: Server) -> None:
    body = {"error": {"message": "You exceeded your quota", "type": "insufficient_quota", "code": "insufficient_quota"}}
    server.behaviours = [answer(body, 429)]
    error = error_of(server, RESPONSES)
    assert isinstance(error, ModelRejected)
    assert "no credit" in str(error)


def test_retrying_gets_through_a_bad_day(server: Server, dialect: Dialect) -> None:
    good = dialect.says("at last")
    server.behaviours = [fail(429, retry_after="3"), fail(529), reset, answer(b"{"), good]
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    completion = ask(server, dialect, wrap=lambda model: Retrying(model, Backoff(), sleep=sleep, chance=lambda: 0.5))
    assert completion.text == "at last"
    assert waits == [3.5, 1.0, 2.0, 4.0]
    assert len(server.received) == 5


def test_one_connection_serves_many_requests_and_close_ends_it(server: Server, dialect: Dialect) -> None:
    server.behaviours = [dialect.says("ok")]

    async def talk() -> None:
        model = open_model(dialect.spec, ModelSettings(base_url=server.url + dialect.path))
        for _ in range(3):
            await model.complete(PROMPT)
        await model.close()
        await model.close()

    asyncio.run(talk())
    assert len(server.received) == 3
    assert len(server.connections) == (3 if dialect.streamed else 1), "the server ends a stream with its connection"


def test_nothing_private_reaches_logs_or_the_cache(
    server: Server, dialect: Dialect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.behaviours = [fail(400, f"you said {SECRET}, {KEY}"), dialect.says("fine")]
    caplog.set_level(logging.DEBUG)
    error_of(server, dialect)
    completion = ask(server, dialect, wrap=lambda model: Caching(model, tmp_path / "cache"))
    assert completion.text == "fine"
    kept = list((tmp_path / "cache").iterdir())
    assert len(kept) == 1
    for told in (caplog.text, *(path.read_text() for path in kept), *(path.name for path in kept)):
        assert KEY not in told
        assert SECRET not in told
    assert (kept[0].stat().st_mode & 0o777, kept[0].parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_listed_price_is_charged(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go to this machine; only the price list is told that they went to the provider."""
    listed = prices.dollars
    monkeypatch.setattr(
        "kforge.models.hosted.dollars", lambda used, names, _address: listed(used, names, "https://api.anthropic.com")
    )
    server.behaviours = [ANTHROPIC.says("ok")]
    usage = ask(server, ANTHROPIC).usage
    assert usage.unpriced == 0
    rate = prices.listed_rate("claude-sonnet-4-6", "https://api.anthropic.com")
    assert rate is not None
    assert usage.dollars == pytest.approx(INPUT * rate.input + OUTPUT * rate.output)
    assert usage.dollars > 0
