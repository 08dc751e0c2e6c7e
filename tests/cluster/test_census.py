"""What a scheduler tells of its cluster is read as anybody's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kforge import jsonable
from kforge.cluster.census import ControllerStanding, read_census
from kforge.cluster.description import DeviceGroup, WorkerDescription, job_resources
from kforge.cluster.job_message import FORMAT, own_version
from kforge.errors import WireError

pytestmark = pytest.mark.pure


def description(*groups: DeviceGroup, version: str = "") -> WorkerDescription:
    versions = (version or own_version(), FORMAT, "3.11", "Linux", "2.13")
    return WorkerDescription("gpu1", 7, "ab", *versions, "bubblewrap", groups)


def told(*descriptions: Any, status: str = "running") -> bytes:
    workers = [
        {
            "address": f"tls://{number}",
            "name": f"\x1b[31m{number}",
            "status": status,
            "silent_seconds": 0.5,
            "description": jsonable.encode(item) if isinstance(item, WorkerDescription) else item,
            "activity": None,
        }
        for number, item in enumerate(descriptions)
    ]
    return json.dumps({"workers": workers, "controllers": [], "deaths_allowed": 1}).encode()


def test_a_run_takes_the_model_with_most_places() -> None:
    small, large = DeviceGroup("cuda", "A", (0, 1), 4), DeviceGroup("cuda", "B", (0,), 6)
    other = DeviceGroup("metal", "M4", (0,), 99)
    census = read_census(told(description(small, other), description(large), description(large, version="0.0.1")))
    assert census.largest_model("cuda") == "B"
    assert (census.slots("cuda", "A"), census.slots("cuda", "B"), census.slots("cuda", "C")) == (4, 6, 0)
    assert census.largest_model("triton") == ""
    assert read_census(told(description(large), status="paused")).largest_model("cuda") == ""


def test_a_worker_announces_what_a_job_asks_for() -> None:
    resources = description(DeviceGroup("cuda", "A", (0,), 3), DeviceGroup("cuda", "B", (1,), 2)).resources()
    for name, amount in job_resources("cuda", "B").items():
        assert resources[name] >= amount
    assert (resources["kforge-cuda"], resources["kforge-cuda:B"]) == (5, 2)
    assert set(job_resources("cuda", "B")) - set(description(version="0.0.1").resources()), "another version takes none"


@pytest.mark.parametrize("odd", [None, 7, [], {}, {"host": "x"}, {"groups": [{"slots": "many"}]}])
def test_a_worker_that_cannot_be_read_is_handed_nothing(odd: Any) -> None:
    [worker] = read_census(told(odd)).workers
    assert worker.description is None
    assert not worker.takes_jobs
    assert "\x1b" not in worker.name


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"workers": [7]}', b'{"workers": {}, "controllers": 1}'])
def test_what_is_no_census_is_refused(data: bytes) -> None:
    with pytest.raises(WireError, match=r"cannot be read .*Install one version on all machines"):
        read_census(data)


def test_a_controller_is_called_by_who_and_where_it_is() -> None:
    unique = "6f1c0c9e-aaaa-bbbb-cccc-0123456789ab"
    assert ControllerStanding(f"Client-kforge-ann@a-host-77-{unique}", ()).title == "ann@a-host, process 77"
    assert ControllerStanding(f"Client-{unique}", ()).title == f"Client-{unique}"
