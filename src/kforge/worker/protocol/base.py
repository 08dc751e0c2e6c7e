"""The form of messages: a request names its operation, and an answer comes with what was noticed on the way.

On the wire a message is a JSON object with a field for each of its record's. Both sides check what they read: what a
runner writes may be anything. Fields that a record does not have are left out.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from kforge import jsonable
from kforge.errors import WireError

AnswerT = TypeVar("AnswerT")
REQUESTS: dict[str, type[PeerRequest[Any]]] = {}
"""Operation -> the record of its request, of the modules that were imported."""
_OPERATION, _SUCCEEDED, _FINDINGS = "operation", "succeeded", "findings"
_MOST_FINDINGS, _LONGEST_FINDING = 50, 500


class PeerRequest(Generic[AnswerT]):
    """Something that is asked of a runner, of its keeper or of the zygote, and answered with an `AnswerT`."""

    operation: ClassVar[str]
    answer: ClassVar[type[Any]]
    """The record of its answer."""

    def __init_subclass__(cls, operation: str, **options: Any) -> None:
        super().__init_subclass__(**options)
        bases: tuple[Any, ...] = cls.__orig_bases__  # type: ignore[attr-defined]
        (cls.answer,) = (typing.get_args(base)[0] for base in bases if typing.get_origin(base) is PeerRequest)
        cls.operation = operation
        REQUESTS[operation] = cls


@dataclass(frozen=True)
class Acknowledged:
    """The request was carried out, and there is nothing to say of it."""


class RaisedError(NamedTuple):
    """An exception, described where it was raised."""

    kind: str
    """The name of its type."""
    message: str
    where: tuple[str, ...] = ()
    """Lines of the program that it came through, the last ones."""
    text: str = ""
    """Its message and those of what caused it, with any compiler output that came with them."""


@dataclass(frozen=True)
class PeerFailure:
    """What was asked could not be done: the program raised, or the process could not be started."""

    phase: str
    """Where in the program's life."""
    error: RaisedError


PLATFORM_PHASE = "platform"
"""The phase of a failure that is the platform's own: its code raised before there was a program."""


class RunnerFinding(NamedTuple):
    """Something that a runner noticed its program do."""

    rule: str
    what: str


def request_to_wire(request: PeerRequest[Any]) -> dict[str, Any]:
    return {_OPERATION: request.operation, **vars(request)}


def request_from_wire(message: dict[str, Any]) -> PeerRequest[Any]:
    """WireError for what is no request."""
    kind = REQUESTS.get(str(message.get(_OPERATION)))
    if kind is None:
        raise WireError("a message that names no known operation")
    return jsonable.decode(kind, message, ignore_unknown=True)


def answer_to_wire(answer: Any, findings: typing.Sequence[RunnerFinding] = ()) -> dict[str, Any]:
    """`answer`: the record that the request's class names, or a PeerFailure."""
    return {_SUCCEEDED: not isinstance(answer, PeerFailure), _FINDINGS: findings, **vars(answer)}


def answer_from_wire(kind: type[AnswerT], message: dict[str, Any]) -> AnswerT | PeerFailure:
    """An answer of this kind, or why there is none; WireError for anything else."""
    succeeded = message.get(_SUCCEEDED)
    if not isinstance(succeeded, bool):
        raise WireError("a message that is no answer")
    if succeeded:
        return jsonable.decode(kind, message, ignore_unknown=True)
    return jsonable.decode(PeerFailure, message, ignore_unknown=True)


def findings_from_wire(message: dict[str, Any]) -> list[RunnerFinding]:
    """What came with an answer, the first of many; WireError where that makes no sense."""
    findings = jsonable.decode(_Findings, message, ignore_unknown=True).findings
    return [RunnerFinding(rule, what[:_LONGEST_FINDING]) for rule, what in findings[:_MOST_FINDINGS]]


@dataclass(frozen=True)
class _Findings:
    findings: list[RunnerFinding]
