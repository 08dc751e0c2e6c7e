"""The `bubblewrap` level: the command line that puts the zygote behind bwrap."""

from __future__ import annotations

import os

from kforge.worker.sandbox.view import FileSystemView


def command(view: FileSystemView, inner: list[str]) -> list[str]:
    """`inner`, run by bwrap with only the view, no network and none of our environment."""
    arguments = ["bwrap", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--new-session"]
    if os.geteuid() != 0:
        arguments.append("--unshare-user")
    # First /tmp, since what is shown may lie below it. The host's /proc lets each runner mount one of its own.
    arguments += ["--perms", "1777", "--tmpfs", "/tmp", "--dev", "/dev", "--bind", "/proc", "/proc"]
    for path in view.devices:
        arguments += ["--dev-bind", path, path]
    for folder in _parents(view):
        # By default bwrap makes these for itself alone, and runners may be another user.
        arguments += ["--perms", "0755", "--dir", folder]
    for outside, inside in view.shown:
        arguments += ["--ro-bind", outside, inside]
    for folder in view.covered:
        arguments += ["--tmpfs", folder]
    for target, link in view.links:
        arguments += ["--symlink", target, link]
    return [*arguments, "--chdir", "/", "--", *inner]


def _parents(view: FileSystemView) -> list[str]:
    """Folders above the shown ones, outermost first."""
    folders: dict[str, None] = {}
    for _, inside in view.shown:
        parts = inside.split("/")[1:-1]
        folders.update({"/" + "/".join(parts[: depth + 1]): None for depth in range(len(parts))})
    return sorted(folder for folder in folders if folder not in ("/tmp", "/dev", "/proc"))
