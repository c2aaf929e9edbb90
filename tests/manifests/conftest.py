"""Manifest tests need Go for the schemas, and say so."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="session")
def go() -> None:
    """Skip where no Go toolchain is there to fetch the modules with."""
    if shutil.which("go") is None:
        pytest.skip("the schemas come from Go modules: install Go 1.24 or newer")
