"""Image archives that a cluster keeps for nodes that boot later."""

from __future__ import annotations

import filecmp
import shutil
import tempfile
from pathlib import Path


def hold(archive: Path, directory: Path) -> Path:
    """Keeps an archive under its name in a directory, for nodes that boot when its origin may be gone or rewritten.

    A link where the file system allows it, else a copy; an archive of that name with other content gives way.
    """
    held = directory / archive.name
    if held.exists() and (held.samefile(archive) or filecmp.cmp(held, archive, shallow=False)):
        return held
    directory.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        fresh = Path(scratch, archive.name)
        try:
            fresh.hardlink_to(archive)
        except OSError:
            shutil.copyfile(archive, fresh)
        fresh.replace(held)
    return held
