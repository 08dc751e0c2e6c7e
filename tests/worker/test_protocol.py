"""The records that judge and runner say to each other: each survives the wire, and nothing else gets through it."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kforge.errors import PlatformFault, WireError
from kforge.worker.judge.runner_handle import ProgramError, RunnerHandle, RunnerLost, acknowledge
from kforge.worker.protocol import calls, compiler, keeper, program
from kforge.worker.protocol.base import (
    PLATFORM_PHASE,
    REQUESTS,
    Acknowledged,
    PeerFailure,
    PeerRequest,
    RaisedError,
    RunnerFinding,
    answer_from_wire,
    answer_to_wire,
    findings_from_wire,
    request_from_wire,
    request_to_wire,
)
from kforge.worker.wire import Channel, PeerBroke

pytestmark = pytest.mark.pure

KINDS = sorted(REQUESTS.values(), key=lambda kind: kind.operation)
ANSWERS = sorted({kind.answer for kind in KINDS} | {PeerFailure}, key=lambda kind: kind.__name__)
FINDINGS = [RunnerFinding("network", "socket.connect")]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**320, 10**330)
    | st.floats()
    | texts
    | st.sampled_from(["NaN", "Infinity", "finish", "T"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""Anything that JSON as Python reads it can say."""
trees = st.recursive(
    st.just(["T", 0]) | st.just(["n"]), lambda inner: st.builds(lambda items: ["l", items], st.lists(inner, max_size=2))
)


def strategy(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return trees
    if hint is str:
        return texts
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if origin is list:
        return st.lists(strategy(arguments[0]), max_size=3)
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return st.lists(strategy(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(strategy, arguments))
    if origin is dict:
        return st.dictionaries(texts, strategy(arguments[1]), max_size=3)
    if origin is not None:
        return st.one_of(*map(strategy, arguments))
    if hasattr(hint, "_make"):
        return st.tuples(*map(strategy, typing.get_type_hints(hint).values())).map(hint._make)
    return records(hint) if dataclasses.is_dataclass(hint) else st.from_type(hint)


def records(kind: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: strategy(hints[field.name]) for field in dataclasses.fields(kind)})


def carried(message: dict[str, Any]) -> dict[str, Any]:
    """A message as the other side of a channel receives it."""
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    try:
        other.send(message)
        return ours.receive(5.0)[0]
    finally:
        ours.close()
        other.close()


def mutated(draw: Any, value: Any) -> Any:
    """The same but for one place, where anything is."""
    if isinstance(value, (list, tuple)) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [mutated(draw, item) if number == at else item for number, item in enumerate(value)]
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: mutated(draw, value[key])}
    return draw(values)


@st.composite
def hostile_messages(draw: Any) -> tuple[type[PeerRequest[Any]], dict[str, Any]]:
    """A request, and what a runner answers that may be its answer, or nearly, or nothing of the kind."""
    kind = draw(st.sampled_from(KINDS))
    answer = draw(records(draw(st.sampled_from([kind.answer, kind.answer, PeerFailure, *ANSWERS]))))
    message = json.loads(json.dumps(answer_to_wire(answer, FINDINGS)))
    for _ in range(draw(st.integers(0, 3))):
        key = draw(st.sampled_from([*sorted(message), "more"]))
        if draw(st.booleans()):
            message.pop(key, None)
        else:
            message[key] = mutated(draw, message.get(key))
    return kind, message


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(KINDS).flatmap(records))
def test_every_request_survives_the_wire(request: PeerRequest[Any]) -> None:
    assert request_from_wire(carried(request_to_wire(request))) == request


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(ANSWERS).flatmap(records), st.lists(strategy(RunnerFinding), max_size=3))
def test_every_answer_survives_the_wire(answer: Any, findings: list[RunnerFinding]) -> None:
    message = carried(answer_to_wire(answer, findings))
    kind = Acknowledged if isinstance(answer, PeerFailure) else type(answer)
    assert answer_from_wire(kind, message) == answer
    assert findings_from_wire(message) == findings


def test_there_is_a_record_for_each_operation_under_a_name_of_its_own() -> None:
    told = [getattr(module, name) for module in (program, calls, compiler, keeper) for name in vars(module)]
    defined = {kind for kind in told if isinstance(kind, type) and issubclass(kind, PeerRequest)} - {PeerRequest}
    assert set(REQUESTS.values()) == defined
    assert all(REQUESTS[kind.operation] is kind for kind in defined)


def outcome(read: Callable[[], Any]) -> Any:
    """What reading gives, or the error that it ends in: one that ends the talk, and no other."""
    try:
        return read()
    except (WireError, PeerBroke, RunnerLost, ProgramError) as error:
        return error


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=300)
@given(hostile_messages())
@example((program.RunStandalone, {**answer_to_wire(program.StandaloneAnswer(0, "", "", 1.0)), "seconds": 10**400}))
@example((keeper.StopProcesses, {**answer_to_wire(keeper.StoppedProcesses(True, False)), "succeeded": 1}))
def test_whatever_a_runner_answers_is_an_answer_or_ends_the_talk(
    asked: tuple[type[PeerRequest[Any]], dict[str, Any]],
) -> None:
    kind, message = asked
    answer = outcome(lambda: answer_from_wire(kind.answer, message))
    assert isinstance(answer, (kind.answer, PeerFailure, WireError))
    assert isinstance(outcome(lambda: findings_from_wire(message)), (list, WireError))
    assert isinstance(outcome(lambda: acknowledge(message)), (type(None), PeerBroke))
    handle = RunnerHandle(None, None)  # type: ignore[arg-type]
    told = outcome(lambda: handle._read(object.__new__(kind), message))
    assert isinstance(told, (kind.answer, ProgramError, RunnerLost))
    if isinstance(told, RunnerLost):
        assert told.kind == "protocol"
        assert len(str(told)) < 300


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize("change", [{"blocks": [[1, None]]}, {"succeeded": False}, {"findings": 3}])
def test_descriptors_that_come_with_nonsense_are_closed(change: dict[str, Any]) -> None:
    ours, theirs = Channel.pair()
    other, handle = Channel(theirs), RunnerHandle(ours, None)  # type: ignore[arg-type]
    with open(os.devnull) as file:
        other.send({**answer_to_wire(calls.MemoryBlocks([], False)), **change}, (file.fileno(),))
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(RunnerLost, match="makes no sense"):
            handle.ask_for_descriptors(calls.ShareMemory([], []), 5.0)
        assert len(os.listdir("/proc/self/fd")) == before
    ours.close()
    other.close()


def test_what_an_answer_says_beyond_its_fields_does_not_matter() -> None:
    message = {**answer_to_wire(program.PatchedNames([])), "operation": "finish", "more": {"of": ["it"]}}
    assert answer_from_wire(program.PatchedNames, carried(message)) == program.PatchedNames([])


def test_of_many_findings_the_first_are_kept_and_long_ones_are_cut() -> None:
    found = findings_from_wire(carried(answer_to_wire(Acknowledged(), [RunnerFinding("network", "x" * 600)] * 99)))
    assert len(found) == 50
    assert {len(finding.what) for finding in found} == {500}


@pytest.mark.parametrize(
    ("kind", "field", "value", "says"),
    [
        (calls.TimedOutputs, "which", [0, True], r"TimedOutputs\.which\[1\]: expected int, got True"),
        (calls.TimedOutputs, "addresses", [0, 2.5], r"TimedOutputs\.addresses\[1\]: expected int"),
        (calls.TimedOutputs, "described", [[["T", 0], [["Tensor"]]]], r"described\[0\]\.leaves\[0\]: expected 5 items"),
        (calls.TimedOutputs, "described", {"0": 1}, r"described: expected a list, got dict"),
        (keeper.Ending, "status", "0", r"Ending\.status: expected int, got '0'"),
    ],
)
def test_what_does_not_fit_is_named(kind: type, field: str, value: Any, says: str) -> None:
    answers = {
        calls.TimedOutputs: calls.TimedOutputs([], [], []),
        keeper.Ending: keeper.Ending(0, ("sleep",), 5, "hello"),
    }
    with pytest.raises(WireError, match=says):
        answer_from_wire(kind, carried({**answer_to_wire(answers[kind]), field: value}))


def test_a_structure_too_deep_to_be_printed_is_refused_like_any_other() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(WireError, match="expected int, got list"):
        answer_from_wire(calls.PeakMemory, {"succeeded": True, "peak_bytes": deep})


def test_a_process_that_could_not_be_started_says_why() -> None:
    with pytest.raises(PeerBroke, match="OSError: no namespace"):
        acknowledge(carried(answer_to_wire(PeerFailure("start", RaisedError("OSError", "no namespace")))))


def test_what_a_platform_raises_before_there_is_a_program_is_told_as_its_fault() -> None:
    failure = PeerFailure(PLATFORM_PHASE, RaisedError("PlatformFault", "platform odd: \x1b[2Jstopwatch raised"))
    with pytest.raises(PlatformFault, match=r"^platform odd: [^\x1b]*stopwatch raised$"):
        acknowledge(carried(answer_to_wire(failure)))


def test_a_request_of_an_unknown_operation_is_refused() -> None:
    with pytest.raises(WireError, match="no known operation"):
        request_from_wire({"operation": "dance"})
