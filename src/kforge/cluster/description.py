"""What a worker announces of itself, and what it is at."""

from __future__ import annotations

import importlib.metadata
import os
import platform as machine
import secrets
import socket
from dataclasses import dataclass, field

from kforge import registry
from kforge.cluster.job_message import FORMAT, own_version
from kforge.errors import UsageError
from kforge.platforms.base import Platform
from kforge.types import JudgingDevice
from kforge.types.evaluation import hardware_name
from kforge.worker.bundle_folder import EMULATED, PYTHON
from kforge.worker.sandbox import levels

VERSION_RESOURCE = f"kforge {own_version()}/{FORMAT}"
"""A resource of every worker that reads this KForge's jobs, so that no other is handed one."""
_PLENTY = 1e6
"""As much of a resource as is never used up."""


@dataclass(frozen=True)
class DeviceGroup:
    """The devices of one model that a worker judges on for one platform."""

    platform: str
    model: str
    devices: tuple[int, ...]
    slots: int
    """Programs that may be in hand at once."""
    emulated: bool = False
    facts: dict[str, str] = field(default_factory=dict)
    """Of the first of them, for prompts."""
    identities: tuple[str, ...] = ()
    """Of each of them, a name that no other device of the host has."""


@dataclass(frozen=True)
class WorkerDescription:
    """A worker process, as it announces itself."""

    host: str
    pid: int
    start: str
    """Of its own: containers of one host may have the same host name and process numbers."""
    kforge: str
    format: int
    python: str
    system: str
    torch: str
    sandbox: str
    groups: tuple[DeviceGroup, ...]

    @property
    def process(self) -> str:
        """What no other worker process is called."""
        return f"{self.host}/{self.pid}/{self.start}"

    @property
    def slots(self) -> int:
        """Programs in hand at once, on all its devices."""
        return sum(group.slots for group in self.groups)

    @property
    def is_current(self) -> bool:
        """Whether it reads this KForge's jobs."""
        return self.kforge == own_version() and self.format == FORMAT

    def has_other(self, platform: str, model: str, device: JudgingDevice) -> bool:
        """Whether one of its devices of that model is another one."""
        return any(
            JudgingDevice(self.host, identity).is_other_than(device)
            for group in self.groups
            if (group.platform, group.model) == (platform, model)
            for identity in group.identities
        )

    def resources(self) -> dict[str, float]:
        """What it has of Dask's abstract resources."""
        amounts: dict[str, float] = {f"kforge {self.kforge}/{self.format}": _PLENTY}
        for group in self.groups:
            for name in job_resources(group.platform, group.model):
                if name != VERSION_RESOURCE:
                    amounts[name] = amounts.get(name, 0.0) + group.slots
        return amounts


def job_resources(platform: str, model: str) -> dict[str, float]:
    """What a job takes of them."""
    return {f"kforge-{platform}": 1.0, device_resource(platform, model): 1.0, VERSION_RESOURCE: 1.0}


def device_resource(platform: str, model: str) -> str:
    """The resource that a model of device is, for a platform."""
    return f"kforge-{platform}:{model}"


@dataclass(frozen=True)
class JobInHand:
    """A job that a worker is at."""

    key: str
    title: str
    platform: str
    seconds: float
    doing: str = ""


@dataclass(frozen=True)
class WorkerActivity:
    """What a worker is at, and what it has done."""

    in_hand: tuple[JobInHand, ...] = ()
    verdicts: int = 0
    """Since it was started."""
    verdicts_per_hour: float = 0.0
    """In the last hour, or since it was started."""
    retiring: bool = False
    """Whether it takes no further jobs."""


def describe_worker(platforms: tuple[str, ...], devices: tuple[int, ...] = (), builders: int = 0) -> WorkerDescription:
    """What this process can judge on. PluginAbsent, UsageError with the cure where it lacks what is asked."""
    if not platforms:
        raise UsageError("name the platforms to judge for, as in --platforms cuda,triton")
    groups = [group for name in dict.fromkeys(platforms) for group in _groups(name, devices, builders)]
    return describe_process(tuple(groups), levels.choose("auto"))


def describe_process(groups: tuple[DeviceGroup, ...], sandbox: str) -> WorkerDescription:
    """This process, with what it judges on."""
    return WorkerDescription(
        host=socket.gethostname(),
        pid=os.getpid(),
        start=secrets.token_hex(3),
        kforge=own_version(),
        format=FORMAT,
        python=PYTHON,
        system=f"{machine.system()} {machine.machine()}",
        torch=importlib.metadata.version("torch"),
        sandbox=sandbox,
        groups=groups,
    )


def _groups(name: str, devices: tuple[int, ...], builders: int) -> list[DeviceGroup]:
    # It imports torch, which a controller does without.
    from kforge.worker.judges import usable_devices, usual_builders

    plugin: Platform = registry.load("platforms", name)
    models: dict[str, list[int]] = {}
    for number in usable_devices(plugin, devices):
        models.setdefault(device_model(plugin, number), []).append(number)
    at_once = builders or usual_builders(name)
    return [
        DeviceGroup(
            name,
            model,
            tuple(numbers),
            at_once * len(numbers),
            plugin.emulated,
            dict(plugin.facts(numbers[0])) | ({EMULATED: "yes"} if plugin.emulated else {}),
            tuple(plugin.identity(number) for number in numbers),
        )
        for model, numbers in models.items()
    ]


def device_model(platform: Platform, number: int) -> str:
    """The model of a device, as evidence names it."""
    return hardware_name(platform.facts(number)) or platform.name
