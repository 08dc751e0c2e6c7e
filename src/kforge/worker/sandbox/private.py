"""What each runner gets for itself, on top of the zygote's view: namespaces, a temporary folder, limits."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

from kforge.worker.sandbox import kernel, rootfs

_RUNNER_UID = 61184
"""The unprivileged user that runners become where the judge is root."""


TEMPORARY = ("/tmp", "/dev/shm")
"""Folders that are empty and private in each runner."""


@dataclass(frozen=True)
class Allowance:
    """Resource limits of one runner, all known numbers."""

    memory_bytes: int
    file_bytes: int
    processes: int
    address_space: bool = True
    """Whether the memory limit also bounds the address space."""


def enter_namespaces() -> None:
    """New user, mount, network, IPC and process namespaces; the next child is process 1 of the last.

    Raises OSError where the kernel forbids nested user namespaces.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_RUNNER_UID, _RUNNER_UID, _RUNNER_UID)
        os.setresuid(_RUNNER_UID, _RUNNER_UID, _RUNNER_UID)
    # The zygote is closed to inspection, and so is whoever changes its user: such a process cannot write its own maps.
    kernel.set_dumpable(True)
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER | kernel.NEW_NS | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS | kernel.NEW_PID)
    rootfs.map_user(_RUNNER_UID, uid, _RUNNER_UID, gid)


def mount_own_folders(allowance: Allowance, kept: tuple[str, ...] = ()) -> None:
    """Mount a /proc that shows only this runner's processes, and empty temporary folders. Called as process 1.

    `kept` are folders below a temporary one that must stay visible: a Python installed under /tmp, say.
    """
    kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    options = f"size={allowance.file_bytes},mode=1777"
    for folder in TEMPORARY:
        if not os.path.isdir(folder):
            continue
        held = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path in kept if path.startswith(folder + "/")]
        kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
        for path, fd in held:
            os.makedirs(path)
            kernel.mount(f"/proc/self/fd/{fd}", path, flags=kernel.MS_BIND | kernel.MS_REC)
            os.close(fd)
    try:
        with open("/proc/sys/user/max_user_namespaces", "w") as file:
            file.write("0")
    except OSError:
        # Older kernels keep this file to the host; a further namespace would hold no more than this one.
        pass


def limit_resources(allowance: Allowance) -> None:
    """Bound memory, files, processes; no core dumps. Inherited by everything the candidate starts."""
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    for kind, value in (
        *([(resource.RLIMIT_AS, mapped + allowance.memory_bytes)] if allowance.address_space else []),
        (resource.RLIMIT_FSIZE, allowance.file_bytes),
        (resource.RLIMIT_NPROC, allowance.processes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 4096),
    ):
        _soft, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))
