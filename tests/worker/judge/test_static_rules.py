"""The tripwire: what a candidate's text gives away."""

from __future__ import annotations

import base64
import os

import pytest

pytestmark = pytest.mark.cpu


@pytest.fixture(scope="module")
def rules():
    from kforge.worker.judge import static_rules

    return static_rules


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        ("import sys\nf = sys._getframe(1)", "introspection"),
        ("import inspect\ninspect.stack()", "introspection"),
        ("from gc import get_objects", "introspection"),
        pytest.param(f"DATA = {os.urandom(400)!r}", "embedded_binary", id="bytes"),
        pytest.param(f"DATA = {base64.b64encode(os.urandom(700)).decode()!r}", "embedded_binary", id="base64"),
        pytest.param(f"DATA = {list(os.urandom(600))!r}", "embedded_binary", id="numbers"),
    ],
)
def test_found(rules, source, rule):
    assert [finding.rule for finding in rules.scan(source)] == [rule]


@pytest.mark.parametrize(
    "source",
    [
        '"""pass, except, torch.allclose, sys._getframe: only words."""',
        "TABLE = " + repr([i * 0.5 for i in range(2000)]),
        "SOURCE = r'''" + "float table[] = {" + ", ".join(str(i) for i in range(900)) + "};'''",
        "import gc\ngc.collect()",
        "short = b'\\x00\\x01'",
    ],
)
def test_not_found(rules, source):
    assert rules.scan(source) == []
