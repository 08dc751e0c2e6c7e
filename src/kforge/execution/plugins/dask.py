"""`dask:ADDRESS`: the workers of a Dask cluster; `dask` alone is one on this machine, for a try."""

from __future__ import annotations

import importlib.util

from kforge import registry
from kforge.cluster.address import canonical_address, parse_address
from kforge.errors import HarnessError, PluginAbsent
from kforge.execution.base import Executor, ExecutorPlugin
from kforge.execution.early_compilation import early_compilation, split_option, with_option
from kforge.worker.bundle_folder import EMULATED


class DaskPlugin(ExecutorPlugin):
    name = "dask"
    form = "dask:tls://HOST:PORT"
    what = "the workers of a Dask cluster (kforge worker); dask alone: one on this machine, for a try"

    def unavailable_reason(self) -> str:
        if importlib.util.find_spec("distributed") is None:
            return "Dask is not installed: pip install 'kforge-kernels[cluster]'"
        return ""

    def open(self, argument: str, platform: str) -> Executor:
        # It is loaded where a cluster is used, and not where executors are listed.
        from kforge.cluster.executor import ClusterExecutor, LocalClusterExecutor

        place, off = split_option(argument)
        if not place:
            # The device is here: no trip is saved, and compiling would only be in the way of what is timed.
            return LocalClusterExecutor(platform)
        return ClusterExecutor(parse_address(place), platform, early_compilation(platform, off))

    def canonical(self, argument: str) -> str:
        place, off = split_option(argument)
        return with_option(canonical_address(place), off) if place else ""

    def check(self, argument: str, platform: str) -> None:
        """That a scheduler answers. Which workers are there may change: a job waits for one."""
        place, _ = split_option(argument)
        if not place:
            reason = registry.load("platforms", platform).unavailable_reason()
            if reason:
                raise PluginAbsent(f"platform {platform}: {reason}")
            return
        from kforge.cluster.inquiry import take_census

        take_census(parse_address(place))

    def places(self, argument: str, platform: str) -> int:
        """Of the model of device that has the most of them."""
        place, _ = split_option(argument)
        if not place:
            return 0
        from kforge.cluster.inquiry import take_census

        try:
            census = take_census(parse_address(place))
        except HarnessError:
            return 1
        return max(1, census.slots(platform, census.largest_model(platform)))

    def facts(self, argument: str, platform: str) -> dict[str, str]:
        """Of the model of device that has the most places now, where a run's programs will be judged."""
        place, _ = split_option(argument)
        if not place:
            plugin = registry.load("platforms", platform)
            return plugin.facts() | ({EMULATED: "yes"} if plugin.emulated else {})
        from kforge.cluster.inquiry import take_census

        try:
            census = take_census(parse_address(place))
        except HarnessError:
            return {}
        return census.facts(platform, census.largest_model(platform))


PLUGIN = DaskPlugin()
