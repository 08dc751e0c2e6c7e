"""The program in a reply, wherever the model put it."""

from __future__ import annotations

import ast
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import makers
from kforge.agents.reply import find_program
from kforge.agents.writer import read_reply
from kforge.types import Candidate, Completion, Finish, Intent, Move, Outcome

pytestmark = pytest.mark.pure

PROGRAM = '''import torch
import torch.nn as nn

SOURCE = r"""
extern "C" void f() {}
"""


class ModelNew(nn.Module):
    def forward(self, x):
        return x + 1
'''


def fenced(text: str, language: str = "python", marks: str = "```") -> str:
    return f"{marks}{language}\n{text}{marks}\n"


@pytest.mark.parametrize(
    "reply",
    [
        fenced(PROGRAM),
        fenced(PROGRAM, ""),
        fenced(PROGRAM, "py"),
        fenced(PROGRAM, "Python3 title=kernel.py"),
        fenced(PROGRAM, "python", "````"),
        fenced(PROGRAM, "python", "~~~"),
        f"Sure! Here is the program.\n\n{fenced(PROGRAM)}\nIt fuses both passes.",
        f"First the kernel:\n{fenced('void f() {}' + chr(10), 'cpp')}\nthen all of it:\n{fenced(PROGRAM)}",
        f"1. The program:\n\n   ```python\n{''.join('   ' + line for line in PROGRAM.splitlines(True))}   ```\n",
        fenced(PROGRAM).replace("\n", "\r\n"),
        "\ufeff" + fenced(PROGRAM),
        f"<think>I could do\n{fenced('class ModelNew: pass' + chr(10))}\nbut no.</think>\n{fenced(PROGRAM)}",
        f"<think>{fenced(PROGRAM)}</think>",
        PROGRAM,
        f"Here it is:\n\n{PROGRAM}\nThis should be faster, since it reads memory once.",
        f"<code>\n{PROGRAM}</code>",
    ],
)
def test_the_program_is_found_whole(reply: str) -> None:
    found = find_program(reply)
    assert found.source is not None, found.reason
    assert ast.dump(ast.parse(found.source)) == ast.dump(ast.parse(PROGRAM))


def test_the_last_of_several_programs_is_taken_and_said() -> None:
    older = PROGRAM.replace("x + 1", "x + 2")
    found = find_program(f"a draft\n{fenced(older)}\nbetter:\n{fenced(PROGRAM)}")
    assert found.source is not None
    assert "x + 1" in found.source
    assert "last of 2" in found.notes[0]


def test_a_program_in_two_blocks_is_joined() -> None:
    head, tail = PROGRAM.split("\n\n\n")
    found = find_program(f"{fenced(head + chr(10))}\nand\n{fenced(tail)}")
    assert found.source is not None
    assert "SOURCE" in found.source
    assert "joined" in found.notes[0]


@pytest.mark.parametrize("name", ["Model", "NewModel", "FusedGelu", "ModelOptimized"])
def test_a_wrong_class_name_is_mended(name: str) -> None:
    text = PROGRAM.replace("ModelNew", name).replace("forward(self, x):", f'forward(self, x):\n        "{name}"')
    found = find_program(fenced(text))
    assert found.source is not None
    assert "class ModelNew(nn.Module)" in found.source
    assert f'"{name}"' in found.source, "strings are left alone"
    assert name in found.notes[0]


def test_super_calls_follow_a_renamed_class() -> None:
    text = (
        "import torch.nn as nn\nclass Fast(nn.Module):\n    def __init__(self):\n        super(Fast, self).__init__()\n"
    )
    text += "    def forward(self, x):\n        return x\n"
    found = find_program(fenced(text))
    assert found.source is not None
    assert "super(ModelNew, self)" in found.source


def test_json_is_unwrapped() -> None:
    import json

    found = find_program(json.dumps({"explanation": "one pass", "code": PROGRAM}))
    assert found.source == PROGRAM


DIFF = """--- a/kernel.py
+++ b/kernel.py
@@ -99,3 +99,3 @@
     def forward(self, x):
-        return x + 1
+        return 1 + x
"""


def test_a_diff_is_applied_to_the_previous_program() -> None:
    found = find_program(fenced(DIFF, "diff"), previous=PROGRAM)
    assert found.source is not None
    assert "return 1 + x" in found.source
    assert "x + 1" not in found.source
    assert "diff" in found.notes[0]


def test_search_and_replace_blocks_are_applied() -> None:
    reply = "<<<<<<< SEARCH\n        return x + 1\n=======\n        return 1 + x\n>>>>>>> REPLACE\n"
    found = find_program(reply, previous=PROGRAM)
    assert found.source is not None
    assert "return 1 + x" in found.source


@pytest.mark.parametrize(
    ("reply", "previous", "words"),
    [
        ("", None, "empty"),
        ("   \n", None, "empty"),
        ("I cannot do that.", None, "no code"),
        (fenced("void f() {}\n", "cpp"), None, "ModelNew"),
        (fenced("x = 1\n"), None, "ModelNew"),
        (f"```python\n{PROGRAM[:-40]}", None, "cut off"),
        (fenced(DIFF, "diff"), None, "no previous program"),
        (fenced(DIFF.replace("x + 1", "x + 7"), "diff"), PROGRAM, "does not apply"),
    ],
)
def test_what_holds_no_program_gives_the_reason(reply: str, previous: str | None, words: str) -> None:
    found = find_program(reply, previous)
    assert found.source is None
    assert words in found.reason


def test_an_ambiguous_edit_is_not_guessed() -> None:
    twice = PROGRAM + "\n\ndef g(x):\n        return x + 1\n"
    reply = "<<<<<<< SEARCH\n        return x + 1\n=======\n        return 1 + x\n>>>>>>> REPLACE\n"
    assert "2 places" in find_program(reply, twice).reason


def test_a_program_with_a_syntax_error_goes_to_the_judge() -> None:
    broken = PROGRAM.replace("return x + 1", "return x +")
    found = find_program(fenced(broken))
    assert found.source == broken
    assert "not valid Python" in found.notes[0]


def test_a_diff_applies_to_the_program_that_was_shown(scale_relu) -> None:  # type: ignore[no-untyped-def]
    """After a reply without a program, the prompt shows the program before it."""
    first = replace(makers.attempt(1, Outcome.MISMATCH), candidate=Candidate(PROGRAM))
    empty = makers.attempt(2, Outcome.GENERATION_FAILURE, Intent.REPAIR, 1)
    situation = makers.situation(scale_relu, Move(0, 3, Intent.REPAIR, 2), (first, empty))
    found = read_reply(Completion(fenced(DIFF, "diff"), "m"), situation)
    assert found.source is not None
    assert "return 1 + x" in found.source


def test_a_long_reply_is_not_searched_for_ever() -> None:
    code = PROGRAM.replace("return x + 1", "return x +") + "\n".join(f"y{n} = {n}" for n in range(1500))
    began = time.process_time()
    found = find_program(code + "\n" + "some prose that is no code\n" * 100)
    assert found.source is None
    assert time.process_time() - began < 3


def test_what_no_file_can_hold_is_replaced() -> None:
    found = find_program(fenced(PROGRAM + "# \ud800\n"))
    assert found.source is not None
    found.source.encode()


@given(st.text(max_size=400))
def test_no_reply_is_an_accident(text: str) -> None:
    found = find_program(text, PROGRAM)
    assert (found.source is None) == bool(found.reason)


@given(st.text(alphabet="`~ \nabc@+-<>=|{}\"'", max_size=300))
def test_no_shape_of_reply_is_an_accident(text: str) -> None:
    found = find_program(f"{text}\n{fenced(PROGRAM)}", PROGRAM)
    assert (found.source is None) == bool(found.reason)


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.FILTERED, Finish.REFUSED])
def test_an_unfinished_reply_says_why(finish: Finish, situation_fresh) -> None:  # type: ignore[no-untyped-def]
    found = read_reply(Completion(f"```python\n{PROGRAM}", "m", finish=finish), situation_fresh)
    assert found.source is None
    assert {"length": "token limit", "filtered": "content filter", "refused": "declined"}[finish.value] in found.reason


def test_a_whole_program_before_the_cut_is_kept(situation_fresh) -> None:  # type: ignore[no-untyped-def]
    completion = Completion(fenced(PROGRAM) + "\nThe idea is", "m", finish=Finish.LENGTH)
    assert read_reply(completion, situation_fresh).source == PROGRAM
