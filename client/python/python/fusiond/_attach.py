"""Attaching: who we are, and what we run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from fusiond._native import Attachment, Layer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What an interpreter needs to load the same libraries, and to have pages of the same size; the daemon passes no others on.
_ENVIRONMENT = ("PYTHONPATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "GLIBC_TUNABLES")


class Engine(NamedTuple):
    """What picks the code of a product: two engines on one chip may want different shares."""

    os_build: str
    mlx_version: str
    library_hash: str


class Worker(NamedTuple):
    """What measures with our very engine: the daemon runs ``interpreter -m fusiond.worker`` with these variables."""

    interpreter: str
    environment: Mapping[str, str]

    @classmethod
    def own(cls) -> Worker | None:
        """Our own interpreter; None in a program that has none to start, such as a frozen one."""
        if not sys.executable or getattr(sys, "frozen", False):
            return None
        environment = {name: os.environ[name] for name in _ENVIRONMENT if os.environ.get(name)}
        return cls(os.path.abspath(sys.executable), environment)


def attach(
    name: str,
    layers: Sequence[Layer],
    *,
    engine: Engine | None = None,
    worker: Worker | None = None,
    typical_rows: int = 0,
    working_set_bytes: int | None = None,
    socket: str | os.PathLike[str] | None = None,
    state_directory: str | os.PathLike[str] | None = None,
    limit_seconds: float = 0.25,
) -> Attachment:
    """Attaches to the daemon. Never fails for want of one, and takes at most ``limit_seconds``.

    Args:
        name: What a person calls this program.
        layers: What it runs. Questions name a layer by its place in this list, and the daemon measures these first.
        engine: What runs the products; None for that of the daemon's own worker.
        worker: What measures with ``engine``.
        typical_rows: A number of rows that is used; 0 if that can't be said.
        working_set_bytes: What the process needs at once: more than the GPU may hold is never split.
        socket: Where the daemon listens, if not where it does by default.
        state_directory: Where the daemon keeps its snapshot, if not where it does by default.
        limit_seconds: How long this may take: whatever is known by then is the first basis.

    Raises:
        ValueError: If the socket's path can't be one, or a number makes no sense.
    """
    return Attachment(
        name,
        list(layers),
        socket=None if socket is None else os.fspath(socket),
        state_directory=None if state_directory is None else os.fspath(state_directory),
        engine=engine,
        worker=None if worker is None else (worker.interpreter, dict(worker.environment)),
        typical_rows=typical_rows,
        working_set_bytes=working_set_bytes,
        limit_seconds=limit_seconds,
    )
