"""The store: what goes in comes out equal, on SQLite and on PostgreSQL."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from kforge import jsonable
from kforge.errors import ProblemError, RunBusy, StoreError, UsageError
from kforge.store import runs
from kforge.store.experiments import CellState, Experiments
from kforge.store.store import Store
from kforge.types import (
    Attempt,
    BaselineTime,
    Candidate,
    Completion,
    Configuration,
    Digest,
    Donor,
    ErrorNorm,
    Evidence,
    Experiment,
    Finish,
    Image,
    Intent,
    Message,
    Move,
    Outcome,
    Problem,
    Profile,
    Prompt,
    Recommendation,
    RunSpec,
    Session,
    Settings,
    Signal,
    Timing,
    Usage,
    Verdict,
    best_attempt,
)

pytestmark = pytest.mark.pure

HERE = Path(__file__).parents[1]
PROBLEM = Problem("1_gelu", "class Model: ...", level=1, number=1, sizes={"cpu": {"ROWS": 8}})
SPEC = RunSpec(PROBLEM, models=("openai:x", "builtin"))

# --- values ---------------------------------------------------------------------------------------------------------

words = st.text(max_size=12)
numbers = st.floats(allow_nan=False, width=32)
positive = st.floats(0.01, 1e6)
counts = st.integers(0, 2**40)
facts = st.dictionaries(words, words, max_size=2)
lines = st.lists(words, max_size=2).map(tuple)
usages = st.builds(Usage, counts, counts, counts, st.floats(0, 1e6), counts)
completions = st.builds(Completion, words, words, usages, st.sampled_from(Finish), positive)
pictures = st.builds(Image, st.sampled_from(["image/png", "image/webp"]), st.binary(max_size=30))
problems = st.just(PROBLEM) | st.builds(
    Problem, words, words, st.none() | st.integers(1, 3), sizes=st.just({"cpu": {"N": 3}}), payload_hash=words
)
candidates = st.builds(Candidate, words, st.sampled_from(["cpu", "cuda"]), st.none() | words, words)
long_words = st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=12), st.sampled_from([1, 5000]))
profiles = st.builds(
    Profile, words, st.dictionaries(words, numbers, max_size=2), long_words, st.lists(pictures, max_size=2).map(tuple)
)
digests = st.builds(Digest, st.lists(st.builds(Signal, words, words, st.none() | numbers), max_size=2).map(tuple))
asked = st.builds(Settings, seeds=st.integers(1, 9), seed=st.none() | counts, profilers=lines)
evidences = st.builds(
    Evidence, problems, candidates, asked, facts, facts, lines, lines, lines, lines, lines, st.just({"build": 0.5})
)
times = st.builds(
    lambda low, speed, name: Timing(
        name, low + speed, (low, low + 2 * speed), None, (1.0, 2.5), (3.0,), 5, 9, (BaselineTime("compile", 2.0),)
    ),
    positive,
    positive,
    st.sampled_from(["eager", "compile"]),
)
norms = st.lists(st.builds(ErrorNorm, words, numbers, numbers, numbers), min_size=1, max_size=2).map(tuple)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    outcome = draw(st.sampled_from(Outcome))
    correct = outcome is Outcome.CORRECT
    return Verdict(
        outcome,
        draw(st.text(min_size=1, max_size=12)),
        rule="rule" if outcome is Outcome.REJECTED else "",
        errors=draw(norms) if correct else (),
        timing=draw(st.none() | times) if correct else None,
        degenerate=draw(lines),
        evidence=draw(st.none() | evidences),
    )


@st.composite
def attempts_at(draw: st.DrawFn, step: int) -> Attempt:
    verdict = draw(verdicts())
    candidate = draw(candidates)
    if verdict.evidence is not None and draw(st.booleans()):
        candidate = verdict.evidence.candidate
    none = verdict.outcome is Outcome.GENERATION_FAILURE and draw(st.booleans())
    return Attempt(
        Move(draw(st.integers(0, 3)), step, draw(st.sampled_from(Intent)), draw(st.none() | st.integers(1, 9))),
        None if none else candidate,
        verdict,
        model=draw(words),
        recommendation=draw(st.none() | st.builds(Recommendation, words, words, words)),
        profiles=tuple(draw(st.lists(profiles, max_size=2))),
        digest=draw(st.none() | digests),
        usage=draw(usages),
        seconds=draw(st.dictionaries(words, numbers, max_size=2)),
        notes=draw(lines),
    )


def correct(step: int, speedup: float, name: str = "eager", **changes: Any) -> Attempt:
    """A correct attempt of that speedup against that baseline; compiling alone gives 2."""
    known = (BaselineTime("eager", 1.0), BaselineTime("compile", 2.0))
    timing = Timing(name, speedup, (speedup, speedup), None, (1.0,), (1.0,), 5, 9, known)
    verdict = Verdict(Outcome.CORRECT, "agrees", errors=(ErrorNorm("normal", 0.0, 1.0, 0.0),), timing=timing)
    return Attempt(Move(0, step, Intent.FRESH), Candidate(f"class ModelNew: {step}"), replace(verdict, **changes))


def failed(step: int, chain: int = 0, profiles: tuple[Profile, ...] = ()) -> Attempt:
    return Attempt(
        Move(chain, step, Intent.FRESH), None, Verdict(Outcome.GENERATION_FAILURE, "no program"), profiles=profiles
    )


# --- where stores live ----------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("database"))
    return str(tmp_path / "store")


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with Store.open(where) as store:
        yield store


# --- the contract, on both ------------------------------------------------------------------------------------------


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data())
def test_history_is_what_was_added(store: Store, data: st.DataObject) -> None:
    request = RunSpec(data.draw(problems), platform="cpu", models=data.draw(lines), reference=data.draw(words))
    run = store.create_run(request)
    added = tuple(data.draw(attempts_at(step)) for step in (1, 2))
    for attempt in added:
        store.add_attempt(run, attempt)
    with Store.open(store.place.folder if store.place.file else _url(store)) as other:
        assert other.history(run) == added
        assert other.run(run).spec == request
    assert store.history(run) == added


def _url(store: Store) -> str:
    return store.place.url.render_as_string(hide_password=False)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(replies=st.dictionaries(words, completions, max_size=3), images=st.lists(pictures, max_size=1).map(tuple))
def test_calls_come_back_and_add_up(store: Store, replies: dict[str, Completion], images: tuple[Image, ...]) -> None:
    run = store.create_run(SPEC)
    prompt = Prompt((Message("user", "write", images),))
    total = Usage()
    for slot, reply in replies.items():
        store.save_call(run, slot, reply, prompt.id, prompt)
        total += reply.usage
    assert {slot: store.call(run, slot) for slot in replies} == replies
    assert all(store.prompt(run, slot) == prompt for slot in replies)
    assert replace(store.spent(run), dollars=0) == replace(total, dollars=0)
    assert store.spent(run).dollars == pytest.approx(total.dollars)
    assert store.call(run, "no such slot, this") is None


EXPERIMENT = Experiment("one", {"level1/1_gelu": PROBLEM}, (Configuration("text", ("openai:x",), {"iterations": 2}),))


def test_experiments_are_found_by_name_id_beginning_and_last(store: Store) -> None:
    experiments = Experiments(store)
    first = experiments.create(EXPERIMENT)
    second = experiments.create(replace(EXPERIMENT, name="two"))
    third = experiments.create(replace(EXPERIMENT, name="two", seeds=(0, 1)))
    assert experiments.find("one").id == first
    assert experiments.find(first).experiment == EXPERIMENT
    assert experiments.find(second[:-1]).id == second
    assert experiments.find("last").id == third
    assert experiments.ids_of_name("two") == [third, second]
    assert [begun.id for begun in experiments.newest(2)] == [third, second]
    with pytest.raises(UsageError, match="no experiment is called 'three'"):
        experiments.find("three")
    with pytest.raises(UsageError, match="the beginning of several"):
        experiments.find("20")
    experiments.change(first, replace(EXPERIMENT, seeds=(7,)))
    assert experiments.find(first).experiment.seeds == (7,)


def test_where_a_cell_stands_comes_back_equal(store: Store) -> None:
    experiments = Experiments(store)
    run = store.create_run(SPEC)
    store.set_state(run, "stopped", "interrupted")
    errors = (ErrorNorm("natural", 1e-7, 1e-5, 0.1),)
    cell_state = CellState(
        run, "stopped", "interrupted", "odd \0 text", Verdict(Outcome.CORRECT, "right", errors=errors), 3
    )
    sessions = (Session(1.0, "kforge bench"), Session(2.0, machine={"cores": "2"}))
    name = experiments.create(EXPERIMENT, sessions, {"taken over": cell_state})
    assert experiments.sessions(name) == sessions
    assert experiments.add_session(name, Session(3.0)) == 2
    experiments.put(name, "new", CellState(failure="no such file"))
    experiments.put(name, "new", CellState(failure="still none", session=2))
    assert experiments.cell_states(name) == {
        "taken over": replace(cell_state, failure="odd \\x00 text"),
        "new": CellState(failure="still none", session=2),
    }


def test_many_runs_can_be_held_at_once(store: Store) -> None:
    names = [store.create_run(SPEC) for _ in range(20)]
    with ExitStack() as held:
        for name in names:
            held.enter_context(store.hold(name))
        assert store.is_held(names[0])
        assert len(store.runs()) == 20
    assert not store.is_held(names[0])


def test_a_store_of_the_first_layout_is_brought_up_to_date(where: str) -> None:
    """The first layout knew no experiments, and called a specification a request."""
    spec = replace(SPEC, analyst_model="none", donor=Donor("a program", "file:cuda:k.cu"))
    with Store.open(where) as store:
        run = store.create_run(spec)
        request = jsonable.encode(spec) | {"analyst": "none", "reference": "a program"}
        request |= {"reference_origin": "file:cuda:k.cu"}
        del request["donor"], request["analyst_model"]
        with store.database.write_transaction() as connection:
            for table in ("kforge_cells", "kforge_sessions", "kforge_experiments"):
                connection.execute(text(f"drop table {table}"))
            connection.execute(text("alter table kforge_runs rename column spec to request"))
            connection.execute(text("update kforge_runs set request = :request"), {"request": json.dumps(request)})
            connection.execute(text("update kforge_version set version_num = '0001'"))
    with Store.open(where) as store:
        assert Experiments(store).find(Experiments(store).create(EXPERIMENT)).experiment == EXPERIMENT
        assert store.run("last").id == run
        assert store.run("last").spec == spec


def test_a_store_that_an_earlier_kforge_wrote_opens_with_all_it_holds(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    connection = sqlite3.connect(tmp_path / "old" / "kforge.db")
    connection.executescript((HERE / "fixtures" / "store_0002.sql").read_text())
    connection.close()
    with Store.open(tmp_path / "old") as store:
        plain, full = (store.run(item.id) for item in store.runs())
        assert plain.spec == RunSpec(Problem("gelu", "class Model: ..."))
        assert full.spec.donor == Donor("the donor's text", "file:metal:k.metal")
        assert (full.spec.analyst_model, full.spec.models, full.spec.platform) == ("none", ("openai:x",), "cuda")
        assert (full.spec.plan.iterations, full.spec.budget.dollars) == (7, 1.5)
        assert [attempt.speedup for attempt in store.history(full.id)] == [1.5]
        experiments = Experiments(store)
        (name,) = experiments.ids_of_name("old")
        assert [session.command for session in experiments.sessions(name)] == ["kforge bench old.toml"]
        assert experiments.cell_states(name)["a cell"].run == full.id


def test_a_step_is_recorded_once(store: Store) -> None:
    run = store.create_run(SPEC)
    store.add_attempt(run, failed(1))
    with pytest.raises(StoreError, match="already has step 1 of chain 0"):
        store.add_attempt(run, correct(1, 2.0))
    store.add_attempt(run, failed(1, chain=1))
    assert store.history(run) == (failed(1), failed(1, chain=1))


def test_a_reply_is_paid_once(store: Store) -> None:
    run = store.create_run(SPEC)
    reply = Completion("text", "m", Usage(1, 2, 3, 0.5))
    store.save_call(run, "0/1", reply, "id")
    store.save_call(run, "0/1", reply, "id")
    assert store.spent(run) == reply.usage
    assert store.prompt(run, "0/1") is None
    with pytest.raises(StoreError, match="another reply in slot 0/1"):
        store.save_call(run, "0/1", replace(reply, text="other"), "id")
    assert store.call(run, "0/1") == reply


def test_a_run_is_found_by_id_beginning_or_last(store: Store) -> None:
    with pytest.raises(UsageError, match="there are none yet"):
        store.run("last")
    first, second = store.create_run(SPEC), store.create_run(replace(SPEC, platform="cuda"))
    assert first[:4].isdigit()
    assert "-gelu-" in first
    assert store.run(first).id == first
    assert store.run("last").id == second
    assert store.run(second[:-1]).spec.platform == "cuda"
    with pytest.raises(UsageError, match="several runs") as caught:
        store.run(first[:6])
    assert first in str(caught.value)
    assert second in str(caught.value)
    for name in ("", "%", "nothing", "a\0b"):
        with pytest.raises(UsageError, match="no run is called"):
            store.run(name)
    with pytest.raises(UsageError, match=second):
        store.history("nothing")


def test_ids_stay_unique_when_chance_repeats(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    digits = iter(["aaaa", "aaaa", "aaaa", "bbbb"])
    monkeypatch.setattr(runs.secrets, "token_hex", lambda _: next(digits))
    monkeypatch.setattr(runs.time, "strftime", lambda *_: "20260101-000000")
    assert store.create_run(SPEC).endswith("aaaa")
    assert store.create_run(SPEC).endswith("bbbb")


def test_state(store: Store) -> None:
    run = store.create_run(SPEC)
    assert (store.run(run).state, store.run(run).reason) == ("running", "")
    store.set_state(run, "stopped", "by \0 the user")
    found = store.run(run)
    assert (found.state, found.reason) == ("stopped", "by \\x00 the user")
    assert found.updated >= found.created
    with pytest.raises(UsageError, match="not 'asleep'"):
        store.set_state(run, "asleep")


def test_summaries_newest_first(store: Store) -> None:
    old, new = store.create_run(SPEC), store.create_run(SPEC)
    for attempt in (failed(1), correct(2, 3.0), correct(3, 9.0, degenerate=("constant",)), correct(4, 2.0)):
        store.add_attempt(old, attempt)
    store.save_call(old, "a", Completion("", "m", Usage(dollars=0.25)), "")
    store.save_call(old, "b", Completion("", "m", Usage(dollars=0.5)), "")
    first, second = store.runs()
    assert (first.id, first.attempts, first.best_speedup, first.dollars) == (new, 0, None, 0.0)
    assert (second.id, second.attempts, second.best_speedup, second.dollars) == (old, 4, 3.0, 0.75)
    assert (second.problem, second.models, second.state) == ("1_gelu", ("openai:x", "builtin"), "running")
    assert [summary.id for summary in store.runs(limit=1)] == [new]


def test_a_summary_shows_the_program_that_is_surely_the_fastest(store: Store) -> None:
    run = store.create_run(SPEC)
    for attempt, interval in ((correct(1, 2.0), (1.9, 2.1)), (correct(2, 2.6), (1.1, 3.0))):
        timing = replace(attempt.verdict.timing, interval=interval)
        store.add_attempt(run, replace(attempt, verdict=replace(attempt.verdict, timing=timing)))
    best = best_attempt(store.history(run))
    assert best is not None
    assert store.runs()[0].best_speedup == best.speedup == 2.0


def test_one_holder_at_a_time(store: Store, where: str) -> None:
    run, other = store.create_run(SPEC), store.create_run(SPEC)
    with Store.open(where) as second:
        with store.hold(run):
            with pytest.raises(RunBusy, match=f"process {os.getpid()} on .* is working on run {run}"), second.hold(run):
                pass
            with second.hold(other):
                pass
        with second.hold(run):
            pass
        with pytest.raises(OSError, match="the body's own"), store.hold(run):
            raise OSError("the body's own")
        with second.hold(run):
            pass


def test_threads(store: Store) -> None:
    run = store.create_run(SPEC)

    def write(chain: int) -> None:
        for step in range(1, 11):
            store.save_call(run, f"{chain}/{step}", Completion("", "m", Usage(1)), "")
            store.add_attempt(run, failed(step, chain))
            store.spent(run)

    threads = [threading.Thread(target=write, args=(chain,)) for chain in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.spent(run) == Usage(40)
    for chain in range(4):
        steps = [attempt.move.step for attempt in store.history(run) if attempt.move.chain == chain]
        assert steps == list(range(1, 11))


def test_opening_at_once(where: str) -> None:
    opened: list[Store] = []
    threads = [threading.Thread(target=lambda: opened.append(Store.open(where))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = {store.create_run(SPEC) for store in opened}
    assert len(names) == 3
    assert {summary.id for summary in opened[0].runs()} == names
    for store in opened:
        store.close()


# --- blobs ----------------------------------------------------------------------------------------------------------


def _blobs(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_big_things_are_files_by_hash_once(tmp_path: Path) -> None:
    profile = Profile("tool", text="wörds " * 2000, images=(Image("image/png", b"\x89PNG"),))
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(SPEC)
        store.add_attempt(run, failed(1, profiles=(profile,)))
        store.add_attempt(run, failed(2, profiles=(profile,)))
        assert store.history(run)[1].profiles == (profile,)
        blobs = _blobs(tmp_path / "s" / "blobs")
        assert sorted(blob.read_bytes() for blob in blobs) == sorted([b"\x89PNG", profile.text.encode()])
        assert all(len(blob.parent.name + blob.name) == 64 for blob in blobs)
        blobs[0].write_bytes(b"altered")
        with pytest.raises(StoreError, match="not what was written"):
            store.history(run)
        blobs[0].unlink()
        with pytest.raises(StoreError, match="is missing"):
            store.history(run)
        store.add_attempt(run, failed(3, profiles=(profile,)))
        assert len(store.history(run)) == 3


def live_problem(place: Path) -> Problem:
    """A problem with a live module's file; what is in it does not matter here."""
    place.write_bytes(b"a module")
    return Problem("live", "class Model: ...", payload=str(place), payload_hash=hashlib.sha256(b"a module").hexdigest())


def test_a_live_module_s_file_is_kept_and_found_wherever_the_store_lies(tmp_path: Path) -> None:
    problem = live_problem(tmp_path / "temporary.pkl")
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(RunSpec(problem))
        store.add_attempt(run, failed(1))
    Path(problem.payload).unlink()
    (tmp_path / "s").rename(tmp_path / "moved")
    with Store.open(tmp_path / "moved") as store:
        found = store.run(run).spec.problem
        assert found == problem
        assert Path(found.payload).read_bytes() == b"a module"
        assert Path(found.payload).is_relative_to(tmp_path / "moved")
        store.set_spec(run, replace(store.run(run).spec, prompt_tokens=9))
        assert store.run(run).spec.prompt_tokens == 9


def test_a_run_whose_module_was_never_kept_is_read_as_it_is(tmp_path: Path) -> None:
    problem = live_problem(tmp_path / "temporary.pkl")
    with Store.open(tmp_path / "s") as store:
        run = store.create_run(RunSpec(problem))
        for blob in _blobs(tmp_path / "s" / "blobs"):
            blob.unlink()
        assert store.run(run).spec.problem.payload == problem.payload


def test_a_module_that_is_gone_or_exchanged_begins_no_run(tmp_path: Path) -> None:
    problem = live_problem(tmp_path / "temporary.pkl")
    with Store.open(tmp_path / "s") as store:
        Path(problem.payload).write_bytes(b"another")
        with pytest.raises(ProblemError, match="has changed"):
            store.create_run(RunSpec(problem))
        Path(problem.payload).unlink()
        with pytest.raises(ProblemError, match="is gone"):
            store.create_run(RunSpec(problem))
        assert not store.runs()


def test_blobs_may_be_elsewhere(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/deep/other.db?blobs={tmp_path}/far/blobs"
    with Store.open(url) as store:
        run = store.create_run(SPEC)
        store.add_attempt(run, failed(1, profiles=(Profile("tool", text="x" * 9999),)))
    assert len(_blobs(tmp_path / "far" / "blobs")) == 1
    with Store.open(url) as store:
        assert store.history(run)[0].profiles[0].text == "x" * 9999


# --- PostgreSQL alone -----------------------------------------------------------------------------------------------


def test_postgres_keeps_only_blobs_here(database: str, tmp_path: Path) -> None:
    with Store.open(database) as store:
        run = store.create_run(SPEC)
        store.add_attempt(run, failed(1, profiles=(Profile("tool", text="x" * 9999),)))
        assert len(store.history(run)) == 1
    assert len(_blobs(tmp_path / ".kforge" / "blobs")) == 1
    assert not list(tmp_path.rglob("*.db"))


def test_a_lost_connection_is_told_and_healed(database: str) -> None:
    import psycopg

    with Store.open(database) as store:
        run = store.create_run(SPEC)

        def drop(also: Callable[[], object] = lambda: None) -> None:
            with psycopg.connect(database, autocommit=True) as other:
                ours = "datname = current_database() and pid != pg_backend_pid()"
                other.execute(f"select pg_terminate_backend(pid) from pg_stat_activity where {ours}")
            also()

        with pytest.raises(StoreError, match="connection was lost"), store._database.write_transaction() as connection:
            drop(lambda: connection.exec_driver_sql("select 1"))
        store.add_attempt(run, failed(1))
        drop()
        assert store.history(run) == (failed(1),)
        with store.hold(run):
            drop()
        with store.hold(run):
            pass
