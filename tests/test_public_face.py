"""The public face: what `import kforge` offers, and how it is called. A change here is a change for every user."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from dataclasses import fields

import pytest

import kforge
from kforge.types import Plan, RunSpec, Settings

NAMES = """
Attempt Budget Candidate Configuration DynamicSize EvaluateOptions Evidence Experiment ForgeResult KForgeError Limits
ModelAccess ModelSettings NotFasterWarning Outcome Plan Problem ProblemForm ResumeOptions RunEnvironment RunEvent
RunOptions RunSpec Settings Study Timing Trial Verdict Workload WorkloadResult __version__ bench errors evaluate forge
forge_async resume resume_async rows
"""

SIGNATURES = {
    "forge": "(problem: 'Problem | str | Path', platform: 'str' = 'cpu', model: 'str | Sequence[str]' = 'builtin', "
    "environment: 'RunEnvironment' = ..., *, progress: 'bool | None' = None, **options: 'Unpack[RunOptions]') "
    "-> 'ForgeResult'",
    "resume": "(run: 'str' = 'last', environment: 'RunEnvironment' = ..., changes: 'ResumeOptions' = ..., *, "
    "progress: 'bool | None' = None) -> 'ForgeResult'",
    "evaluate": "(problem: 'Problem | str | Path', candidate: 'Candidate | str | Path', platform: 'str' = 'cpu', "
    "**settings: 'Unpack[EvaluateOptions]') -> 'Verdict'",
    "bench": "(experiment: 'Experiment | str | Path', store: 'str | Store' = '', *, access: 'ModelAccess' = ..., "
    "executor: 'Executor | None' = None, parallel: 'int' = 0, fresh: 'bool' = False) -> 'Study'",
    "rows": "(study: 'Study') -> 'list[dict[str, Any]]'",
}


@pytest.mark.pure
def test_the_exported_names_are_these() -> None:
    assert sorted(kforge.__all__) == sorted(NAMES.split())
    assert set(NAMES.split()) <= set(dir(kforge))


@pytest.mark.cpu
def test_every_exported_name_is_there() -> None:
    for name in NAMES.split():
        assert getattr(kforge, name) is not None


def _signature(function: object) -> str:
    """The signature with records as defaults cut short: their fields are pinned by their own tests."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    plain = [
        parameter.replace(default=_Short()) if type(parameter.default).__module__.startswith("kforge") else parameter
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=plain))


class _Short:
    def __repr__(self) -> str:
        return "..."


@pytest.mark.cpu
@pytest.mark.parametrize("name", SIGNATURES)
def test_functions_are_called_like_this(name: str) -> None:
    assert _signature(getattr(kforge, name)) == SIGNATURES[name]
    assert (getattr(kforge, name).__doc__ or "").strip()


@pytest.mark.cpu
@pytest.mark.parametrize("name", ["forge", "resume"])
def test_the_asynchronous_twin_is_called_the_same_way(name: str) -> None:
    assert _signature(getattr(kforge, f"{name}_async")) == SIGNATURES[name]


@pytest.mark.pure
def test_every_field_of_a_run_has_an_option() -> None:
    options = set(typing.get_type_hints(kforge.RunOptions))
    records = (Plan, Settings, kforge.ModelSettings, RunSpec, kforge.ProblemForm)
    named = {field.name for record in records for field in fields(record)}
    assert named - options == {"problem", "platform", "models", "donor"}, "said otherwise, or found out"
    assert options - named == {"budget_tokens", "profiling"}


@pytest.mark.pure
def test_every_field_of_the_settings_can_be_said_to_evaluate() -> None:
    assert set(typing.get_type_hints(kforge.EvaluateOptions)) == {
        field.name for record in (Settings, kforge.ProblemForm) for field in fields(record)
    }


@pytest.mark.pure
def test_importing_it_loads_nothing_heavy() -> None:
    heavy = ("torch", "sqlalchemy", "rich", "pydantic_ai", "typer")
    script = f"import sys, kforge; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.pure
def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'forg'"):
        kforge.forg  # noqa: B018
