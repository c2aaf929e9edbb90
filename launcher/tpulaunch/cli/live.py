"""A text that is drawn again in place while it changes; on a pipe, printed again when it has changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tpulaunch.cli.output import emit

_PAUSE_SECONDS = 2.0


def show_live(text: Callable[[], tuple[str, bool]], pause_seconds: float = _PAUSE_SECONDS) -> None:
    """Show a text until it says that it is the last, or until Ctrl-C.

    Args:
        text: Returns the text now, and whether it will not change any more.
        pause_seconds: Time between two looks.
    """
    if sys.stdout.isatty():
        _redraw(text, pause_seconds)
    else:
        _print_changes(text, pause_seconds)


def _redraw(text: Callable[[], tuple[str, bool]], pause_seconds: float) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(), auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            words, is_last = text()
            live.update(Text(words, no_wrap=True, overflow="ellipsis"), refresh=True)
            if is_last:
                return
            time.sleep(pause_seconds)


def _print_changes(text: Callable[[], tuple[str, bool]], pause_seconds: float) -> None:
    shown = ""
    while True:
        words, is_last = text()
        if words != shown:
            emit(words)
            sys.stdout.flush()
            shown = words
        if is_last:
            return
        time.sleep(pause_seconds)
