"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from kforge.errors import UsageError
from kforge.whole_file import write_for_user, write_whole

pytestmark = pytest.mark.pure


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_whole(path, b"one")
    write_whole(path, b"two", mode=0o640, sync=True)
    assert path.read_bytes() == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a"]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "folder" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_whole(tmp_path / "folder", b"data")
    with pytest.raises(UsageError, match="could not be written"):
        write_for_user(tmp_path / "folder", "text")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_link_stays_a_link_and_folders_are_made(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    write_for_user(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == "text"
    write_for_user(tmp_path / "a" / "b", "text")
    assert (tmp_path / "a" / "b").read_text() == "text"


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_for_user(pipe, "text")
    assert os.read(reader, 10) == b"text"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    os.close(reader)
