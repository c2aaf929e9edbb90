"""A node that boots again finds every image it was given, whatever became of the archive it came from."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.cluster.archives import hold


def test_a_held_archive_outlives_its_origin(tmp_path: Path) -> None:
    origin = tmp_path / "image.tar"
    origin.write_bytes(b"layers")
    held = hold(origin, tmp_path / "archives")
    origin.unlink()
    assert held.read_bytes() == b"layers"


def test_an_archive_on_another_file_system_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    origin = tmp_path / "image.tar"
    origin.write_bytes(b"layers")
    held = hold(origin, tmp_path / "archives")
    assert (held.read_bytes(), held.samefile(origin)) == (b"layers", False)


def test_the_same_content_stays_and_other_content_takes_its_place(tmp_path: Path) -> None:
    directory = tmp_path / "archives"
    for name, content in (("a", b"old"), ("b", b"old"), ("c", b"new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "image.tar").write_bytes(content)
    first = hold(tmp_path / "a" / "image.tar", directory).stat().st_ino
    assert hold(tmp_path / "b" / "image.tar", directory).stat().st_ino == first
    assert hold(tmp_path / "c" / "image.tar", directory).read_bytes() == b"new"
    assert [path.name for path in directory.iterdir()] == ["image.tar"]
