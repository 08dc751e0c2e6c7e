"""The `unshare` level: namespaces for this process, and a root folder that holds only the view."""

from __future__ import annotations

import os

from kforge.worker.sandbox import kernel
from kforge.worker.sandbox.view import FileSystemView

_DEVICES = ("null", "zero", "full", "random", "urandom")


def enter(view: FileSystemView, scratch: str) -> None:
    """Move this process into a root of its own; `scratch` is an empty folder to build it on."""
    flags = kernel.NEW_NS | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS
    uid, gid = os.geteuid(), os.getegid()
    if uid != 0:
        kernel.unshare(flags | kernel.NEW_USER)
        map_user(uid, uid, gid, gid)
    else:
        kernel.unshare(flags)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", scratch, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=755")
    os.makedirs(scratch + "/tmp")
    kernel.mount("tmpfs", scratch + "/tmp", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    for outside, inside in view.shown:
        _bind(outside, scratch + inside, read_only=True)
    for folder in view.covered:
        kernel.mount("tmpfs", scratch + folder, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=4k,mode=755")
    for target, link in view.links:
        os.symlink(target, scratch + link)
    _devices(scratch + "/dev")
    for path in view.devices:
        _bind(path, scratch + path, read_only=False)
    _bind("/proc", scratch + "/proc", read_only=False)
    old = scratch + "/.old"
    os.mkdir(old)
    kernel.pivot_root(scratch, old)
    os.chdir("/")
    kernel.detach("/.old")
    os.rmdir("/.old")


def map_user(inner_uid: int, outer_uid: int, inner_gid: int, outer_gid: int) -> None:
    """Name this process's user and group inside its new user namespace."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inner_uid} {outer_uid} 1"),
        ("gid_map", f"{inner_gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _bind(source: str, target: str, read_only: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "a"):
            pass
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    if read_only:
        kernel.make_read_only(target)


def _devices(folder: str) -> None:
    os.makedirs(folder)
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{folder}/{name}", read_only=False)
    os.mkdir(f"{folder}/shm")
    os.chmod(f"{folder}/shm", 0o1777)
    for link, target in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(target, f"{folder}/{link}")
