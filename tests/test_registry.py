"""Plug-ins: the file name is the key, and one that is absent says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge import registry
from kforge.errors import UnknownPlugin

pytestmark = pytest.mark.pure


def test_every_pinned_version_is_one_that_the_public_index_has():
    """A local build such as 1.0+cpu is not."""
    pins = (Path(__file__).parent.parent / "constraints.txt").read_text().split()
    assert pins
    assert [pin for pin in pins if "+" in pin] == []


def test_built_in_names_are_file_names():
    assert "cpu" in registry.names("platforms")
    assert {"torch_profiler", "perf", "ncu"} <= set(registry.names("profilers"))
    assert set(registry.names("models")) == {"command", "mailbox", "replay"}
    assert set(registry.names("executors")) == {"bundle", "dask", "local"}


def test_every_built_in_plugin_carries_its_own_name():
    for kind in registry.KINDS:
        assert registry.names(kind)
        for name in registry.names(kind):
            assert registry.load(kind, name).name == name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownPlugin, match=r"there are: .*cpu"):
        registry.load("platforms", "abacus")
    with pytest.raises(UnknownPlugin, match="no such kind"):
        registry.names("gadgets")


def test_the_cpu_guide_is_filled_in_and_the_example_is_a_pair():
    cpu = registry.load("platforms", "cpu")
    guide = cpu.guide()
    assert "$" not in guide
    assert cpu.facts()["cores"] in guide
    reference, candidate = cpu.example()
    assert "class Model(" in reference
    assert "class ModelNew(" in candidate
