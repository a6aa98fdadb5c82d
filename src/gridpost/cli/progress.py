"""A bar for long work of a command, on stderr so that results stay alone on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def showing(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """`(done, total)` moves the bar."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, quiet=quiet)
    with Progress(console=console, transient=True, disable=quiet) as progress:
        task = progress.add_task(what, total=None)

        def move(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield move
