"""From the store to a Study: an experiment's cells with their histories, or runs that somebody names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from kforge import jsonable
from kforge.errors import UsageError
from kforge.execution.executor_names import leaves_jobs
from kforge.experiments.cells import cells_by_fingerprint
from kforge.experiments.confirmation import needs_confirmation, of_winner
from kforge.store.experiments import Ambiguous, CellState, ExperimentRecord, Experiments
from kforge.store.runs import Run
from kforge.store.store import Store
from kforge.types import Cell, Configuration, Donor, Experiment, Problem, RunSpec, Study, Trial, text_hash

RUNS = "runs"
"""What a study of single runs is called."""


def read_studies(store: Store, names: Sequence[str]) -> tuple[Study, ...]:
    """Each experiment that is named, and one of all the runs that are; UsageError for a name that is neither."""
    experiments = Experiments(store)
    studies: list[Study] = []
    runs: list[Run] = []
    for name in names:
        record = _experiment(experiments, name)
        if record is not None:
            studies.append(study_of(store, record))
        else:
            runs.append(_run(store, name))
    return (*studies, *([_study_of_runs(store, runs)] if runs else []))


def is_known(store: Store, name: str) -> bool:
    """Whether an experiment or a run is called that."""
    try:
        if _experiment(Experiments(store), name) is None:
            _run(store, name)
    except UsageError:
        return False
    return True


def read_study(store: Store, names: Sequence[str]) -> Study:
    """All experiments and runs that are named, as one study."""
    return merge_studies(read_studies(store, names))


def study_of(store: Store, begun: ExperimentRecord) -> Study:
    """An experiment as it stands."""
    experiment, experiments = begun.experiment, Experiments(store)
    known = experiments.cell_states(begun.id)
    trials = []
    for key, cell in cells_by_fingerprint(experiment).items():
        trial = _trial(store, cell, experiment.problems[cell.problem], known.get(key, CellState()))
        trials.append(_await_confirmation(trial, experiment))
    return Study(
        name=experiment.name,
        trials=_with_flaws(trials),
        suite=experiment.suite,
        suite_version=experiment.suite_version,
        configurations=experiment.configurations,
        sessions=experiments.sessions(begun.id),
        left_out=experiment.left_out,
        notes=experiment.notes,
    )


def merge_studies(studies: Sequence[Study]) -> Study:
    """Several studies as one; where two have a configuration of the same name, the study's name tells them apart."""
    if len(studies) == 1:
        return studies[0]
    names = [item.name for study in studies for item in study.configurations]
    same = {name for name in names if names.count(name) > 1}
    sessions = tuple(session for study in studies for session in study.sessions)
    trials: list[Trial] = []
    configurations: list[Configuration] = []
    titles = _distinct_names([study.name for study in studies])
    before = 0
    for title, study in zip(titles, studies, strict=True):
        new = {item.name: f"{title}: {item.name}" if item.name in same else item.name for item in study.configurations}
        configurations += [replace(item, name=new[item.name]) for item in study.configurations]
        for trial in study.trials:
            cell = replace(trial.cell, configuration=new.get(trial.cell.configuration, trial.cell.configuration))
            session = None if trial.session is None else trial.session + before
            trials.append(replace(trial, cell=cell, session=session))
        before += len(study.sessions)
    return Study(
        name=" + ".join(dict.fromkeys(study.name for study in studies)),
        trials=_with_flaws(trials),
        suite=", ".join(dict.fromkeys(study.suite for study in studies if study.suite)),
        suite_version=", ".join(dict.fromkeys(study.suite_version for study in studies if study.suite_version)),
        configurations=tuple(configurations),
        sessions=sessions,
        left_out={key: why for study in studies for key, why in study.left_out.items()},
        notes=tuple(dict.fromkeys(note for study in studies for note in study.notes)),
    )


def _distinct_names(names: list[str]) -> list[str]:
    return [name if names.count(name) == 1 else f"{name} {number}" for number, name in enumerate(names, 1)]


def _experiment(experiments: Experiments, name: str) -> ExperimentRecord | None:
    try:
        return experiments.find(name)
    except Ambiguous:
        raise
    except UsageError:
        return None


def _run(store: Store, name: str) -> Run:
    try:
        return store.run(name)
    except UsageError:
        there = ", ".join(repr(begun.experiment.name) for begun in Experiments(store).newest(5))
        latest = f"the latest experiments are {there}" if there else "there is no experiment yet"
        raise UsageError(
            f"no experiment and no run is called {name!r}; {latest} (kforge bench --list, kforge runs)"
        ) from None


def _trial(store: Store, cell: Cell, problem: Problem, cell_state: CellState) -> Trial:
    if not cell_state.run:
        state = "failed" if cell_state.failure else "new"
        return Trial(cell, problem.level, state, cell_state.failure, session=None, source=problem.source)  # type: ignore[arg-type]
    state, reason = cell_state.state, cell_state.reason
    if state == "running" and not store.is_held(cell_state.run):
        state, reason = "stopped", "broken off"
    if cell_state.failure:
        state, reason = "failed", cell_state.failure
    # Pictures and tables of a whole study would fill the memory; what profiles said is in the digests.
    history = store.history(cell_state.run, profiles=False)
    return Trial(
        cell=cell,
        level=problem.level,
        state=state,  # type: ignore[arg-type]
        reason=reason,
        run=cell_state.run,
        history=history,
        usage=store.spent(cell_state.run),
        confirmation=of_winner(cell_state.confirmation, history),
        session=cell_state.session,
        source=problem.source,
    )


def _with_flaws(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """A problem that any verdict calls degenerate is so for all: one without a program says nothing about it."""
    flaws: dict[tuple[str, str], dict[str, None]] = {}
    for trial in trials:
        known = flaws.setdefault((trial.cell.platform, trial.cell.problem_id), {})
        for verdict in (*(attempt.verdict for attempt in trial.history), trial.confirmation):
            known.update(dict.fromkeys(verdict.degenerate if verdict else ()))
    return tuple(
        replace(trial, degenerate=tuple(flaws[trial.cell.platform, trial.cell.problem_id])) for trial in trials
    )


def _await_confirmation(trial: Trial, experiment: Experiment) -> Trial:
    """A trial whose winner has yet to be judged once more is not through."""
    if trial.state != "finished" or trial.confirmation is not None or not needs_confirmation(experiment, trial.history):
        return trial
    waits = leaves_jobs(experiment.executor)
    return replace(trial, state="waiting" if waits else "stopped", reason="its winner is yet to be confirmed")


def _study_of_runs(store: Store, runs: list[Run]) -> Study:
    """Runs of the loop, side by side: a configuration is what they have in common."""
    trials: list[Trial] = []
    made = _configurations([run.spec for run in runs])
    for run, configuration in zip(runs, made, strict=True):
        problem = run.spec.problem
        key = problem.key
        if any(trial.cell.problem == key and trial.cell.problem_id != problem.id for trial in trials):
            key = f"{key} ({problem.id[:4]})"
        cell = Cell(key, problem.id, run.spec.platform, configuration.name)
        cell = replace(cell, seed=sum(replace(trial.cell, seed=0) == cell for trial in trials))
        trial = _trial(store, cell, problem, CellState(run.id, run.state, run.reason))
        trials.append(replace(trial, session=None))
    return Study(RUNS, _with_flaws(trials), configurations=tuple({item.name: item for item in made}.values()))


def _configurations(specs: list[RunSpec]) -> list[Configuration]:
    """What each run was asked, but for its problem; where two of one name differ, digits tell them apart."""
    configurations = []
    identities = [_run_identity(spec) for spec in specs]
    names = [_name(spec) for spec in specs]
    for spec, name, identity in zip(specs, names, identities, strict=True):
        differ = {other for other, called in zip(identities, names, strict=True) if called == name}
        shown = f"{name} ({text_hash(identity)[:4]})" if len(differ) > 1 else name
        options = {"iterations": spec.plan.iterations, "samples": spec.plan.samples, "style": spec.style}
        if spec.donor:
            options["reference"] = spec.donor.origin or "given"
        configurations.append(Configuration(shown, spec.models, options))
    return configurations


def _run_identity(spec: RunSpec) -> str:
    """All that decides what comes of a run, but for its problem, platform and draws."""
    donor = spec.donor and Donor("", spec.donor.origin.partition(":")[0])
    plain = replace(spec, problem=Problem("", ""), platform="", executor="", reference="", donor=donor)
    plain = replace(plain, plan=replace(spec.plan, seed=0), keep_prompts=False)
    return json.dumps(jsonable.encode(plain), sort_keys=True)


def _name(spec: RunSpec) -> str:
    parts = [*spec.models, f"{spec.plan.iterations} iterations"]
    parts += [f"{spec.plan.samples} samples"] if spec.plan.samples > 1 else []
    parts += ["with a reference"] if spec.donor else []
    parts += [spec.style] if spec.style != "structured" else []
    return ", ".join(parts)
