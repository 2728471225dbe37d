"""``python -m fusiond.worker``, over real pipes, on real MLX."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import fusiond
import pytest
from conftest import Daemon, eventually, program
from fusiond import frames, identity

REQUEST_TAGS = {frames.Prepare: 0, frames.Stock: 1, frames.Split: 2, frames.Check: 3}


def encode(request: frames.Request) -> bytes:
    """A request's frame; the worker itself never writes one."""
    body = struct.pack("<I", REQUEST_TAGS[type(request)])
    match request:
        case frames.Prepare(rows, inputs, outputs, weights, layout):
            body += struct.pack("<III", rows, inputs, outputs)
            for text in (weights, layout):
                body += struct.pack("<Q", len(text)) + text.encode()
        case frames.Split(rows, first):
            body += struct.pack("<I?", rows, first)
        case frames.Check(rows):
            body += struct.pack("<I", rows)
        case _:
            pass
    return struct.pack("<I", len(body)) + body


class Reader:
    """The fields of a reply, in order."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.tag = self.take("I")

    def take(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        (value,) = struct.unpack("<" + code, self.body[:size])
        self.body = self.body[size:]
        return value

    def text(self) -> str:
        length = self.take("Q")
        text, self.body = self.body[:length].decode(), self.body[length:]
        return text


class Worker:
    def __init__(self, *command: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        )
        self.hello = self.read()

    def read(self) -> Reader:
        assert self.process.stdout is not None
        body = frames.read_body(self.process.stdout)  # type: ignore[arg-type]
        assert body is not None
        return Reader(body)

    def ask(self, request: frames.Request | bytes) -> Reader:
        assert self.process.stdin is not None
        self.process.stdin.write(request if isinstance(request, bytes) else encode(request))
        self.process.stdin.flush()
        return self.read()

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        assert self.process.stdout.read() == b""
        return self.process.wait(timeout=60)


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(**environment: str) -> Worker:
        started.append(Worker(sys.executable, "-m", "fusiond.worker", "--pair", "development", **environment))
        return started[-1]

    yield start
    for worker in started:
        worker.process.kill()
        worker.process.wait()


def identity_of(hello: Reader) -> dict[str, Any]:
    told = {"protocol": hello.take("I"), "version": hello.text(), "brand": hello.text()}
    told["gpu_cores"] = hello.take("H") if hello.take("B") else None
    told["memory_bytes"] = hello.take("Q")
    for name in ("model", "pair", "units", "os_build", "mlx_version", "library_hash"):
        told[name] = hello.text()
    return told


@pytest.mark.parametrize(
    ("weights", "layout"), [("f32", "nk"), ("f32", "kn"), ("f16", "nk"), ("bf16", "nk"), ("q4/64", "nk")]
)
def test_a_whole_conversation(start: Callable[..., Worker], weights: str, layout: str) -> None:
    worker = start()
    hello = identity_of(worker.hello)
    assert (hello["protocol"], hello["pair"]) == (frames.PROTOCOL, "development")
    engine = identity.engine()
    assert (hello["os_build"], hello["mlx_version"], hello["library_hash"]) == tuple(engine)
    assert worker.ask(frames.Prepare(128, 64, 96, weights, layout)).tag == 1
    stock = worker.ask(frames.Stock())
    assert (stock.tag, stock.take("Q") > 0, stock.take("B")) == (2, True, 0)
    for first in (False, True):
        split = worker.ask(frames.Split(40, first))
        total, finished, primary, secondary = (split.take(code) for code in "QBQQ")
        assert (split.tag, finished) == (2, 1)
        assert 0 < primary <= total
        assert 0 < secondary <= total
    assert worker.ask(frames.Split(128, False)).tag == 2
    checked = worker.ask(frames.Check(40))
    assert checked.tag == 3
    assert checked.take("d") < (1e-5 if weights == "f32" else 1e-2)
    assert worker.close() == 0


def test_what_cannot_be_done_is_refused_and_the_worker_lives_on(start: Callable[..., Worker]) -> None:
    worker = start(FUSION_WORKER_MEMORY_LIMIT_BYTES="200000000")
    refusals: list[tuple[frames.Request | bytes, str]] = [
        (frames.Stock(), "Prepare first"),
        (frames.Prepare(0, 64, 64, "f32", "nk"), "rows is 0"),
        (frames.Prepare(4, 64, 64, "f8", "nk"), "f8"),
        (frames.Prepare(4, 32, 64, "q4/64", "nk"), "MLX failed"),
        (frames.Prepare(4, 64, 64, "q4/64", "kn"), "layout nk"),
        (frames.Prepare(8192, 8192, 8192, "f32", "nk"), "does not fit into memory"),
        (struct.pack("<II", 4, 99), "request 99"),
    ]
    for request, words in refusals:
        refused = worker.ask(request)
        assert refused.tag == 4, request
        assert words in refused.text()
    assert worker.ask(frames.Prepare(4, 64, 64, "f32", "nk")).tag == 1
    for rows in (0, 5):
        refused = worker.ask(frames.Split(rows, False))
        assert "1 to 4 rows" in refused.text()
    assert worker.ask(frames.Stock()).tag == 2
    assert worker.close() == 0


def test_noise_ends_it_with_words(start: Callable[..., Worker]) -> None:
    worker = start()
    assert worker.process.stdin is not None
    worker.process.stdin.write(b"GET / HTTP/1.1\r\n")
    assert worker.close() == 1


def test_both_workers_name_one_machine(start: Callable[..., Worker]) -> None:
    ours = identity_of(start().hello)
    rust = Worker(str(program("fusion-worker")), "--pair", "development")
    theirs = identity_of(rust.hello)
    rust.close()
    same = ("protocol", "brand", "gpu_cores", "memory_bytes", "model", "pair", "os_build", "mlx_version")
    assert {name: ours[name] for name in same} == {name: theirs[name] for name in same}


AT_ONCE = "[measure]\nsettle_seconds = 0\nquiet_seconds = 0\n"


def attach(daemon: Daemon, engine: fusiond.Engine) -> fusiond.Attachment:
    return fusiond.attach(
        "a test",
        [fusiond.Layer(512, 1024, "f32")],
        socket=daemon.socket,
        state_directory=daemon.state,
        engine=engine,
        worker=fusiond.Worker.own(),
        typical_rows=256,
        limit_seconds=30,
    )


def test_the_daemon_measures_with_the_clients_own_mlx(start_daemon: Callable[..., Daemon]) -> None:
    # The daemon's own worker has another engine than ours; in its world the secondary unit takes twice as long a row.
    daemon = start_daemon(20_000, AT_ONCE, library_hash="another")
    daemon.control("pause")
    daemon.control("calibrate", "256x512x1024")
    attachment = attach(daemon, identity.engine())
    lines = attachment.lines(0)
    assert lines is not None
    assert lines.secondary_ms_per_row == pytest.approx(0.02, rel=0.05)
    assert "1 other engine" in daemon.control("clients")
    daemon.control("resume")

    def measured_or_disturbed() -> bool:
        # On a machine that others use the worker's calls don't count; that they were made shows all the same whose worker was asked.
        return "1 exact" in daemon.control("clients") or "calls were disturbed" in daemon.control("status")

    eventually("a calibration with our MLX", measured_or_disturbed)
    assert "is measured for by" in daemon.control("clients")
    assert "fusiond.worker" in daemon.control("status")
    if "1 exact" in daemon.control("clients"):
        # However fast this machine is: they are other ones.
        eventually(
            "its lines",
            lambda: (
                (now := attachment.lines(0)) is None or now.secondary_ms_per_row != lines.secondary_ms_per_row
            ),
        )


def test_a_worker_that_is_another_engine_than_was_said_is_not_believed(
    start_daemon: Callable[..., Daemon],
) -> None:
    daemon = start_daemon(20_000, AT_ONCE)
    _attached = attach(daemon, identity.engine()._replace(library_hash="another"))
    eventually("the refusal", lambda: "but the client runs" in daemon.control("clients"))
