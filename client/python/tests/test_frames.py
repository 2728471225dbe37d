"""The worker protocol, against the bytes of the Rust crate."""

from __future__ import annotations

import io

import pytest
from conftest import ROOT
from fusiond import frames

GOLDEN = ROOT / "daemon" / "frames" / "golden" / "frames-1.txt"


def golden() -> dict[str, bytes]:
    lines = (line.split() for line in GOLDEN.read_text().splitlines())
    return {name: bytes.fromhex(frame) for name, frame in lines}


def hello(gpu_cores: int | None) -> frames.Hello:
    return frames.Hello(
        worker_version="0.1.0",
        brand="Apple M4 Pro",
        gpu_cores=gpu_cores,
        memory_bytes=25_769_803_776,
        model_identifier="Mac16,8",
        pair="gpu+cpu",
        units="GPU (primary) and CPU (secondary) – zwei",  # noqa: RUF001
        os_build="25G83",
        mlx_version="0.32.2",
        library_hash="0badcafe",
    )


REQUESTS: dict[str, frames.Request] = {
    "prepare": frames.Prepare(512, 896, 4864, "q4/64", "nk"),
    "stock": frames.Stock(),
    "split": frames.Split(716, True),
    "check": frames.Check(1),
}
REPLIES: dict[str, frames.Reply] = {
    "hello": hello(20),
    "hello-without-gpu": hello(None),
    "prepared": frames.Prepared(1 << 33),
    "timed-split": frames.Timed(3, (1, 2**64 - 1), 4),
    "timed-stock": frames.Timed(5, None, None),
    "checked": frames.Checked(1.5e-7),
    "refused": frames.Refused("does not fit"),
}


def test_every_golden_message_is_spoken() -> None:
    assert golden().keys() == REQUESTS.keys() | REPLIES.keys()


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_read(name: str) -> None:
    body = frames.read_body(io.BytesIO(golden()[name]))
    assert body is not None
    assert frames.decode_request(body) == REQUESTS[name]
    for cut in range(len(body)):
        with pytest.raises(frames.MalformedError):
            frames.decode_request(body[:cut])
    with pytest.raises(frames.MalformedError, match="left over"):
        frames.decode_request(body + b"\0")


@pytest.mark.parametrize("name", REPLIES)
def test_replies_have_the_golden_bytes(name: str) -> None:
    assert frames.encode_reply(REPLIES[name]) == golden()[name]


def test_a_pipe_ends_between_frames_or_breaks() -> None:
    frame = golden()["split"]
    assert frames.read_body(io.BytesIO(b"")) is None
    for cut in range(1, len(frame)):
        with pytest.raises(frames.FrameError):
            frames.read_body(io.BytesIO(frame[:cut]))
    with pytest.raises(frames.FrameError, match="at most"):
        frames.read_body(io.BytesIO(b"Traceback (most recent call last):"))
