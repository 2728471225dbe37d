"""The two units that share the rows of a product, and the split itself: the one code path of measuring and inference.

On a machine with a GPU the primary unit is the stream that runs anyway, and the secondary one a CPU stream. Without a GPU two CPU streams
stand in for them, a *development pair*: for development, it says nothing about a Mac. MLX streams belong to the thread that made them, so each thread
has units of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fusiond._missing import need_mlx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import mlx.core as mx

# Bytes of the widest numbers that MLX has.
_WIDEST_BYTES = 8
_TASKS = Path("/proc/self/task")


class FinishTimes(NamedTuple):
    """Until the joined result was there, and until waiting for each part returned, in ns after submission."""

    total_ns: int
    primary_ns: int
    secondary_ns: int


class Units:
    """Two MLX streams of the calling thread."""

    def __init__(self, *, development: bool = False) -> None:
        """Opens them: GPU and CPU where MLX has a GPU, unless the development pair is asked for."""
        self._mx = core = need_mlx()
        self.on_gpu = not development and core.default_device() == core.gpu
        self._threads: list[int] = []
        self._primary: mx.Stream | None = None if self.on_gpu else self._open("mlx-primary")
        self.secondary: mx.Stream = self._open("mlx-secondary")
        self._pinned = None if self.on_gpu else _pin(self._threads)

    @property
    def pair(self) -> str:
        """Which pair this is, as it is recorded."""
        return "gpu+cpu" if self.on_gpu else "development"

    @property
    def alike(self) -> bool:
        """Whether both units are of one kind, so that any work takes a row as long on either."""
        return not self.on_gpu

    @property
    def description(self) -> str:
        """The units in words."""
        if self.on_gpu:
            return "GPU (primary) and CPU (secondary)"
        where = "not pinned: they have no two cores, or their threads were not found"
        if self._pinned:
            where = "pinned to cores {} and {}".format(*self._pinned)
        return f"development pair: two CPU streams stand in for GPU and CPU; {where}"

    @contextlib.contextmanager
    def as_default(self) -> Iterator[None]:
        """What is built inside without naming a stream runs on the primary unit."""
        if self._primary is None:
            yield
            return
        with self._mx.stream(self._primary):
            yield

    def split(
        self, work: Callable[[mx.array], mx.array], rows: mx.array, secondary_rows: int
    ) -> tuple[mx.array, mx.array]:
        """Submits ``work`` on the first ``secondary_rows`` of ``rows`` to the secondary unit, on the others to the primary one.

        ``rows`` is ``[..., K]``, all but its last dimension are rows, and must be materialised: MLX runs both units at once only on
        what is there.
        """
        return self.submit(*_halves(work, rows, secondary_rows))

    def submit(
        self, primary: Callable[[], mx.array], secondary: Callable[[], mx.array]
    ) -> tuple[mx.array, mx.array]:
        """Builds and submits each unit's part. What they read must be materialised."""
        parts = self._parts(primary, secondary)
        self._submit(parts)
        return parts

    def _parts(
        self, primary: Callable[[], mx.array], secondary: Callable[[], mx.array]
    ) -> tuple[mx.array, mx.array]:
        """The primary and the secondary unit's part, lazily."""
        first = primary()
        with self._mx.stream(self.secondary):
            return first, secondary()

    def _submit(self, parts: tuple[mx.array, ...]) -> None:
        """Sets the units to work: each part by itself, since one submission of all would hide the earlier finish.

        Everything was built before. Where the units are all the cores there are, this thread sits on one of them, and whatever it did between
        the first submission and waiting would keep that unit from starting.
        """
        for part in parts:
            self._mx.async_eval(part)

    def join(self, primary: mx.array, secondary: mx.array, *, axis: int = 0) -> mx.array:
        """The secondary unit's rows (or heads: along ``axis``) above the primary unit's, lazily.

        MLX's CPU copies number by number, so rows are joined as the widest numbers that fit.
        """
        core, row_bytes = self._mx, primary.shape[-1] * primary.itemsize
        if primary.itemsize >= _WIDEST_BYTES or row_bytes % _WIDEST_BYTES:
            return core.concatenate([secondary, primary], axis=axis)
        wide = core.concatenate([secondary.view(core.uint64), primary.view(core.uint64)], axis=axis)
        return wide.view(primary.dtype)

    def split_timed(
        self,
        work: Callable[[mx.array], mx.array],
        rows: mx.array,
        secondary_rows: int,
        *,
        secondary_first: bool,
    ) -> tuple[mx.array, FinishTimes]:
        """``split`` and ``join``, waiting for one unit after the other. The time of the one waited for first is exact."""
        parts = self._parts(*_halves(work, rows, secondary_rows))
        joined = self.join(*parts)
        start = time.perf_counter_ns()
        # The joining right behind the parts: nobody has to be woken between the last part and it.
        self._submit((*parts, joined))
        ends = [0, 0]
        for place in (1, 0) if secondary_first else (0, 1):
            self._mx.eval(parts[place])
            ends[place] = time.perf_counter_ns() - start
        self._mx.eval(joined)
        return joined, FinishTimes(time.perf_counter_ns() - start, *ends)

    def drain(self) -> None:
        """Waits until both units have done all that was submitted."""
        self._mx.synchronize(self._primary or self._mx.default_stream(self._mx.default_device()))
        self._mx.synchronize(self.secondary)

    def run_delay_ns(self) -> int | None:
        """How long the units' threads have waited for a core so far; None where the system doesn't tell."""
        delays = []
        for thread in self._threads:
            with contextlib.suppress(OSError, ValueError, IndexError):
                delays.append(int((_TASKS / str(thread) / "schedstat").read_text().split()[1]))
        return sum(delays) if delays else None

    def _open(self, name: str) -> mx.Stream:
        """A CPU stream that works: its first product starts its thread, which is found by the name that it inherits."""
        stream = self._mx.new_stream(self._mx.cpu)
        before = _threads_named(name)
        with _renamed(name), self._mx.stream(stream):
            one = self._mx.ones((1, 1))
            self._mx.eval(one @ one)
        self._threads += sorted(_threads_named(name) - before)
        return stream


def materialised(*arrays: mx.array) -> bool:
    """Computes arrays; whoever reads the same ones next pays nothing. Not inside a function that MLX traces: nothing can be materialised there."""
    try:
        need_mlx().eval(*arrays)
    except (ValueError, RuntimeError):
        return False
    return True


def _halves(
    work: Callable[[mx.array], mx.array], rows: mx.array, secondary_rows: int
) -> tuple[Callable[[], mx.array], Callable[[], mx.array]]:
    """What the primary and what the secondary unit has to do."""
    return lambda: work(_flat(rows)[secondary_rows:]), lambda: work(_flat(rows)[:secondary_rows])


def _flat(rows: mx.array) -> mx.array:
    """``[M, K]``, on the stream in scope: a view that another unit made would have to be waited for."""
    return rows if rows.ndim == 2 else rows.reshape(-1, rows.shape[-1])


class ThreadUnits(threading.local):
    """The units of each thread that asks, opened when it first does."""

    def __init__(self) -> None:
        self._units: Units | None = None

    def get(self) -> Units:
        """Those of the calling thread."""
        if self._units is None:
            self._units = Units()
        return self._units


@contextlib.contextmanager
def _renamed(name: str) -> Iterator[None]:
    """The calling thread under another name. A name is a help only: failing to set one is no error."""
    comm = _TASKS / str(threading.get_native_id()) / "comm"
    try:
        before = comm.read_text()
        comm.write_text(name)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            comm.write_text(before)


def _threads_named(name: str) -> set[int]:
    """Our threads of that name, but for the calling one."""
    found = set()
    with contextlib.suppress(OSError):
        for task in _TASKS.iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().strip() == name:
                    found.add(int(task.name))
    return found - {threading.get_native_id()}


def _pin(threads: list[int]) -> tuple[int, int] | None:
    """Gives each of two threads a core of its own, of different physical ones where possible."""
    if len(threads) != 2 or not hasattr(os, "sched_setaffinity"):
        return None
    cores = choose_cores(sorted(os.sched_getaffinity(0)), _siblings)
    if cores is None:
        return None
    try:
        for thread, core in zip(threads, cores, strict=True):
            os.sched_setaffinity(thread, {core})
    except OSError:
        return None
    return cores


def choose_cores(allowed: list[int], siblings: Callable[[int], set[int]]) -> tuple[int, int] | None:
    """Two allowed cores, of different physical cores where possible; None if fewer than two are allowed."""
    if len(allowed) < 2:
        return None
    first, *rest = allowed
    shared = siblings(first)
    return first, next((core for core in rest if core not in shared), rest[0])


def _siblings(core: int) -> set[int]:
    """Logical cores that share a physical one with ``core``, itself included; in the kernel's list format: "0-2,5"."""
    try:
        text = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list").read_text()
    except OSError:
        return set()
    found: set[int] = set()
    for item in filter(None, text.strip().split(",")):
        low, _, high = item.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found
