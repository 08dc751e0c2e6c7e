"""A winner's two judgements: where they were made, and whether that is another device."""

from __future__ import annotations

from dataclasses import replace

import pytest

import makers
from kforge.metrics.second_judgement import SecondJudgement

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("first", "second", "is_elsewhere", "place"),
    [
        (("", ""), ("", ""), False, "once more, the two agree"),
        (("", "gpu0"), ("", "gpu0"), False, "once more, the two agree"),
        (("", "gpu0"), ("", "gpu1"), True, "on another device, the two agree"),
        (("one", "gpu0"), ("two", "gpu0"), True, "on two, another host than one, the two agree"),
        (("one", "gpu0"), ("one", "gpu1"), True, "on another device of one, the two agree"),
        (("one", "gpu0"), ("one", "gpu0"), False, "on the same device of one, the two agree"),
        (("one", ""), ("one", "gpu0"), False, "on the same host one, the two agree"),
        (("", ""), ("two", "gpu0"), False, "on two, the two agree"),
    ],
)
def test_where_it_was_judged_once_more_is_told(
    first: tuple[str, str], second: tuple[str, str], is_elsewhere: bool, place: str
) -> None:
    judged = SecondJudgement(
        *(replace(makers.verdict(1.5), evidence=makers.evidence(*device)) for device in (first, second))
    )
    assert judged.is_elsewhere is is_elsewhere
    assert judged.sentence.endswith(place)
