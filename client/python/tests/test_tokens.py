"""The same tokens, whatever becomes of the daemon: 20 prompts, plain and quantised weights.

Splitting computes the same sums in smaller pieces, so that a last digit may differ. A token may differ only where the model itself held both for equally likely,
within what splitting was measured to change.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon, eventually
from fusiond.mlx_lm import Acceleration, _attention, accelerate
from fusiond.mlx_lm.transcript import Transcript, first_difference, largest_error, transcribe
from mlx_lm import load

TOKENS = 4
# Of the random model: q and o; k and v; gate and up; down.
LAYERS = 4
PROMPTS = 20
# What rounding may do to a logarithm of a probability, here; a row in the wrong place changes it by about 1.
ROUNDING = 2e-3


@pytest.fixture(autouse=True)
def short_prompts_share_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it doesn't pay there."""
    monkeypatch.setattr(_attention, "_LEAST_SCORES", 1)


def prompts(longest: int) -> list[list[int]]:
    """Lengths from just above what is never split; the last one of more than a chunk, where there is time."""
    random.seed(longest)
    lengths = [34 + place * (longest - 34) // PROMPTS for place in range(PROMPTS)]
    return [[random.randrange(256) for _ in range(length)] for length in lengths]


class Told:
    """A model, its prompts, and what it says to each without us."""

    def __init__(self, folder: Path, longest: int, chunk: int) -> None:
        self.model: Any = load(str(folder))[0]
        self.prompts, self.chunk = prompts(longest), chunk
        self.stock = [self.transcribe(prompt) for prompt in self.prompts]

    def transcribe(self, prompt: list[int]) -> Transcript:
        return transcribe(self.model, prompt, TOKENS, prefill_step_size=self.chunk)

    def compare(self, during: Callable[[int], None] = lambda _: None, every: int = 1) -> None:
        """The same prompts again, or every so-manieth of them, by whatever the model is now; ``during`` happens before each."""
        others = []
        for place, prompt in enumerate(self.prompts[::every]):
            during(place)
            others.append(self.transcribe(prompt))
        pairs = list(zip(self.stock[::every], others, strict=True))
        error = max(largest_error(stock, other) for stock, other in pairs)
        assert error < ROUNDING
        for place, (stock, other) in enumerate(pairs):
            difference = first_difference(stock, other)
            assert difference is None or difference.gap <= 2 * error, (place, difference, error)


@pytest.fixture(scope="module")
def tell(models: tuple[Path, Path]) -> Callable[[str], Told]:
    """By its weights' format. Once for all tests: what stock says takes as long as a test."""
    plain, quantised = models

    @functools.cache
    def of(weights: str) -> Told:
        # MLX multiplies quantised weights slowly on a CPU.
        return Told(plain, 160, 64) if weights == "f32" else Told(quantised, 42, 36)

    return of


@pytest.fixture(params=["f32", "q4"])
def told(request: pytest.FixtureRequest, tell: Callable[[str], Told]) -> Told:
    return tell(request.param)


def calibrate(daemon: Daemon, model: Any, chunk: int) -> None:
    from fusiond.mlx_lm._survey import survey

    layers = {linear.layer for linear in survey(model).linears}
    for weights in {layer.format for layer in layers}:
        shapes = [f"{chunk}x{layer.inputs}x{layer.outputs}" for layer in layers if layer.format == weights]
        daemon.control("calibrate", *shapes, "--format", weights)


def attach(daemon: Daemon, told: Told) -> Acceleration:
    acceleration = accelerate(
        told.model, socket=daemon.socket, state_directory=daemon.state, typical_rows=told.chunk
    )
    eventually("attaching", lambda: acceleration.attachment.basis == "attached")
    return acceleration


def lock_to_split(daemon: Daemon, acceleration: Acceleration) -> None:
    """So that it is the split that is compared, whatever it gains on this machine."""
    daemon.control("gates", "lock", acceleration.workload, "split")
    eventually("the lock", lambda: acceleration.arm(34) == "split")


def shares(told: Told, acceleration: Acceleration) -> list[float]:
    """What is served for a chunk of each layer."""
    rows = [acceleration.attachment.secondary_rows(place, told.chunk) for place in range(LAYERS)]
    return [count / told.chunk for count in rows]


@pytest.mark.parametrize(
    ("told", "secondary_ns_per_row", "least", "most", "every"),
    [
        pytest.param("f32", 10_000, 0.4, 0.6, 1, id="f32-right"),
        pytest.param("f32", 1_500, 0.8, 1.0, 1, id="f32-far-too-much"),
        pytest.param("f32", 150_000, 0.0, 0.1, 4, id="f32-far-too-little"),
        pytest.param("f32", "garbage", 0.0, 1.0, 4, id="f32-garbage"),
        pytest.param("q4", 10_000, 0.4, 0.6, 1, id="q4-right"),
        pytest.param("q4", 1_500, 0.8, 1.0, 4, id="q4-far-too-much"),
        pytest.param("q4", "garbage", 0.0, 1.0, 2, id="q4-garbage"),
    ],
    indirect=["told"],
)
def test_with_the_daemon_and_whatever_share_it_serves(
    told: Told,
    start_daemon: Callable[..., Daemon],
    secondary_ns_per_row: int | str,
    least: float,
    most: float,
    every: int,
) -> None:
    daemon = start_daemon(secondary_ns_per_row)
    calibrate(daemon, told.model, told.chunk)
    acceleration = attach(daemon, told)
    lock_to_split(daemon, acceleration)
    try:
        served = shares(told, acceleration)
        assert all(least < share < most for share in served), served
        assert secondary_ns_per_row != "garbage" or len(set(served)) > 1, served
        told.compare(every=every)
        assert acceleration.chunks["split"] >= PROMPTS // every
    finally:
        acceleration.undo()


class Garbage:
    """An attachment whose every answer is another number of rows: none, one, all but one, or any."""

    def __init__(self, attachment: Any) -> None:
        self._attachment, self._random = attachment, random.Random(11)
        self.answers: set[tuple[int, int]] = set()
        self.wholes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._attachment, name)

    def secondary_rows(self, _place: int, rows: int) -> int:
        answer = self._random.choice((0, 1, rows - 1, self._random.randrange(rows)))
        self.answers.add((answer, rows))
        return answer

    def secondary_rows_through(self, _places: tuple[int, ...], rows: int) -> int:
        self.wholes += 1
        return self.secondary_rows(0, rows)


@pytest.mark.parametrize("told", ["f32"], indirect=True)
def test_with_another_share_in_every_product(
    told: Told, start_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = start_daemon()
    calibrate(daemon, told.model, told.chunk)
    acceleration = attach(daemon, told)
    lock_to_split(daemon, acceleration)
    garbage = Garbage(acceleration.attachment)
    monkeypatch.setattr(acceleration, "_attachment", garbage)
    try:
        told.compare(every=2)
        assert acceleration.chunks["split"] >= PROMPTS // 2
        assert garbage.wholes > 0
        assert {0, 1} < {answer for answer, _ in garbage.answers}
        assert any(answer == rows - 1 for answer, rows in garbage.answers)
    finally:
        acceleration.undo()


def test_without_a_daemon(told: Told, tmp_path: Path) -> None:
    acceleration = accelerate(told.model, socket=tmp_path / "none.sock", state_directory=tmp_path)
    try:
        told.compare()
        assert acceleration.chunks.keys() == {"eager"}
    finally:
        acceleration.undo()


def test_with_a_daemon_that_is_killed_half_way(told: Told, start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon()
    calibrate(daemon, told.model, told.chunk)
    acceleration = attach(daemon, told)
    lock_to_split(daemon, acceleration)

    def kill_half_way(place: int) -> None:
        if place == PROMPTS // 2:
            daemon.kill()

    try:
        told.compare(kill_half_way)
        eventually("noticing", lambda: acceleration.attachment.basis == "snapshot")
        assert acceleration.chunks["split"] >= PROMPTS // 2
    finally:
        acceleration.undo()
