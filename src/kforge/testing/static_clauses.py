"""Clauses that need no device: what a platform says of itself, here and on a bare machine."""

from __future__ import annotations

import re
import shutil
import string
import subprocess
import sys
from collections.abc import Sized

from kforge.errors import ProblemError, UnknownPlugin
from kforge.platforms.base import Platform
from kforge.profilers import _names as profiler_naming
from kforge.testing.clauses import Broken, Clause
from kforge.types import Problem
from kforge.worker.judge import static_rules
from kforge.worker.judge.stage import make_stage

_CLASSES = ("cpu", "gpu", "emulator")
_BASELINES = ("eager", "tf32", "compile", "autotune")
_BARE_SECONDS = 60.0
_BARE = """
import sys
sys.path.insert(0, sys.argv[1])
from kforge import registry
platform = registry.load("platforms", sys.argv[2])
print(platform.unavailable_reason())
platform.facts(), platform.guide()
"""
"""Asked where there is no package but Python's own and no program on the path."""


def check_names(platform: Platform) -> str:
    """The platform's name is a word, and its device and class are ones the judge knows."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", platform.name):
        raise Broken(f"name is {platform.name!r}: use small letters, digits and _, beginning with a letter")
    if platform.device_class not in _CLASSES:
        raise Broken(f"device_class is {platform.device_class!r}: problems have sizes for {', '.join(_CLASSES)}")
    unknown = [name for name in platform.baselines if name not in _BASELINES]
    if unknown:
        raise Broken(f"baselines names {', '.join(unknown)}: there are {', '.join(_BASELINES)}")
    if "eager" not in platform.baselines:
        raise Broken("baselines leaves out eager, which every speedup is measured against unless a user says otherwise")
    if platform.emulated and platform.can_time:
        raise Broken("it is emulated and can_time is True: a time measured on an emulator means nothing")
    for name in platform.profilers:
        try:
            profiler_naming.find(name)
        except UnknownPlugin as error:
            raise Broken(f"profilers names one that there is not: {error}") from None
    return f"{platform.name}, torch device {platform.device}, sizes for {platform.device_class}"


def check_runner_values(platform: Platform) -> str:
    """What a runner is shown and told has the types that the judge expects."""
    folders, nodes = platform.folders(), platform.device_files()
    for path in (*folders, *nodes):
        if not isinstance(path, str) or not path.startswith("/") or path == "/":
            raise Broken(f"folders and device_files name {path!r}: give absolute paths, never the whole disk")
    texts = {**platform.environment(), **platform.compilers()}
    odd = [key for key, value in texts.items() if not (isinstance(key, str) and isinstance(value, str))]
    if odd:
        raise Broken(f"environment and compilers must be words: {odd[0]!r} is not")
    return f"{_count(folders, 'folder')}, {_count(nodes, 'device node')}, {_count(texts, 'word')}"


def check_absence(platform: Platform) -> str:
    """Where nothing is installed the platform says why it is absent, and the cure; it does not break."""
    here = platform.unavailable_reason()
    _refuse_no_sentence(here, "here")
    stage = make_stage(platform)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", _BARE, str(stage), platform.name],
            env={"PATH": "", "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=_BARE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"on a bare machine unavailable_reason takes longer than {_BARE_SECONDS:.0f} s") from None
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise Broken(
            f"on a machine with nothing installed it fails with {last}: import what may be missing inside methods, "
            "and have unavailable_reason look for it first"
        )
    bare = done.stdout.strip()
    _refuse_no_sentence(bare, "on a bare machine")
    if here:
        return f"absent here: {here}"
    return f"on a bare machine: {bare}" if bare else "it needs nothing beyond Python and torch"


def check_facts(platform: Platform) -> str:
    """Facts are words, and so are terms."""
    facts = platform.facts()
    for key, value in facts.items():
        if not (isinstance(key, str) and key.isidentifier()):
            raise Broken(f"facts names {key!r}: a guide can only use keys that are single words")
        if not isinstance(value, str):
            raise Broken(f"facts: {key} is {value!r}: say it in words, as a str")
        if not value.strip() or "\n" in value or value in ("None", "nan") or value.startswith("<"):
            raise Broken(f"facts: {key} is {value!r}: say it in a few words on one line, or 'unknown'")
    for concept, term in platform.hardware().terms.items():
        if not isinstance(term, str) or not term.strip() or "|" in term or "\n" in term:
            raise Broken(
                f"terms: {concept} is {term!r}: say it in a few words without |, since they are a table's cell"
            )
    if not facts and not platform.unavailable_reason():
        raise Broken("facts is empty: name at least the processor; evidence and prompts tell it")
    return ", ".join(f"{key}: {value}" for key, value in list(facts.items())[:3]) or "none where it is absent"


def check_guide(platform: Platform) -> str:
    """The guide renders, and where the platform is present no placeholder is left."""
    text = platform.guide()
    if len(text.split()) < 20:
        raise Broken("guide.md says next to nothing: say what the device is and how programs for it are written")
    left = string.Template(text).get_identifiers()
    if left and not platform.unavailable_reason():
        raise Broken(f"guide.md asks for {', '.join(f'${name}' for name in left)}, which facts() does not name")
    return f"{len(text.splitlines())} lines"


def check_example(platform: Platform) -> str:
    """The pair can be read: a problem, and a program for it."""
    reference, candidate = platform.example()
    try:
        problem = Problem.from_source(reference, "reference", str(platform.home() / "example" / "reference.py"))
    except ProblemError as error:
        raise Broken(str(error)) from None
    if platform.device_class == "emulator" and "emulator" not in problem.sizes:
        raise Broken(
            "example/reference.py has no sizes for an emulator, which would take minutes for its own: add "
            'KFORGE = {"sizes": {"emulator": {...}}} with small ones'
        )
    wrong = static_rules.syntax_error(candidate)
    if wrong:
        raise Broken(f"example/candidate.py is no Python: {wrong}")
    if not static_rules.defines_class(candidate, "ModelNew"):
        raise Broken("example/candidate.py defines no class ModelNew: that is what the judge makes and calls")
    return f"{len(reference.splitlines())} lines of reference, {len(candidate.splitlines())} of program"


CLAUSES: tuple[Clause[Platform], ...] = (
    Clause("name", check_names),
    Clause("runners", check_runner_values, where_present=True),
    Clause("absence", check_absence),
    Clause("facts", check_facts),
    Clause("guide", check_guide),
    Clause("example", check_example),
)


def _refuse_no_sentence(reason: str, where: str) -> None:
    if not isinstance(reason, str):
        raise Broken(f"unavailable_reason gives {reason!r} {where}: give a str, empty where nothing is missing")
    cure = re.search(r"\(.*\w+ \w+.*\)|: .*\w+ \w+", reason)
    if reason and ("\n" in reason or len(reason.split()) < 3 or not cure):
        raise Broken(
            f"unavailable_reason says {reason!r} {where}: say on one line what is missing and, in parentheses, the cure"
        )


def _count(things: Sized, word: str) -> str:
    return f"{len(things)} {word}{'' if len(things) == 1 else 's'}"
