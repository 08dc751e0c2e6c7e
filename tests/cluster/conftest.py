"""A cluster for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_processes import ClusterProcesses


@pytest.fixture
def cluster() -> Iterator[ClusterProcesses]:
    with ClusterProcesses() as processes:
        yield processes
