"""The protocol between fusiond and a worker: a length (u32, little-endian) and a message in bincode's legacy layout.

The crate ``fusion-frames`` is the definition; its golden bytes are read by our tests.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

PROTOCOL = 1
MAX_MESSAGE_BYTES = 64 * 1024


class FrameError(Exception):
    """The other side doesn't speak frames, or not this protocol."""


class MalformedError(FrameError):
    """A frame of the right length that is no message: the next one can be read."""


@dataclass(frozen=True)
class Prepare:
    """Make synthetic operands of a shape, materialise them, warm both units up."""

    rows: int
    inputs: int
    outputs: int
    format: str
    layout: str


@dataclass(frozen=True)
class Stock:
    """One timed call of the primary unit alone."""


@dataclass(frozen=True)
class Split:
    """One timed split."""

    secondary_rows: int
    secondary_first: bool


@dataclass(frozen=True)
class Check:
    """Compute a split and stock, compare the results."""

    secondary_rows: int


Request = Prepare | Stock | Split | Check


@dataclass(frozen=True)
class Hello:
    """Who a worker is."""

    worker_version: str
    brand: str
    gpu_cores: int | None
    memory_bytes: int
    model_identifier: str
    pair: str
    units: str
    os_build: str
    mlx_version: str
    library_hash: str
    protocol: int = PROTOCOL


@dataclass(frozen=True)
class Prepared:
    """The operands are there."""

    active_bytes: int


@dataclass(frozen=True)
class Timed:
    """One timed call; times in nanoseconds after submission, ``finish`` of the primary and the secondary unit."""

    total_ns: int
    finish: tuple[int, int] | None
    run_delay_ns: int | None


@dataclass(frozen=True)
class Checked:
    """max|split - stock| / max|stock|."""

    relative_error: float


@dataclass(frozen=True)
class Refused:
    """The request can't be done; the worker is as it was before."""

    reason: str


Reply = Hello | Prepared | Timed | Checked | Refused


class _Body:
    """What is left of a message."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def number(self, code: str) -> int:
        size = struct.calcsize("<" + code)
        try:
            (value,) = struct.unpack_from("<" + code, self._body, self._at)
        except struct.error as error:
            raise MalformedError(f"a frame can't be read as protocol {PROTOCOL}: {error}") from error
        self._at += size
        return int(value)

    def flag(self) -> bool:
        value = self.number("B")
        if value > 1:
            raise MalformedError(f"a frame can't be read as protocol {PROTOCOL}: {value} is no truth value")
        return value == 1

    def text(self) -> str:
        length = self.number("Q")
        piece = self._body[self._at : self._at + length]
        if len(piece) != length:
            raise MalformedError(f"a frame can't be read as protocol {PROTOCOL}: a text is cut off")
        self._at += length
        try:
            return piece.decode()
        except UnicodeDecodeError as error:
            raise MalformedError(f"a frame can't be read as protocol {PROTOCOL}: {error}") from error

    def end(self) -> None:
        if self._at != len(self._body):
            raise MalformedError(f"a frame can't be read: {len(self._body) - self._at} bytes are left over")


def decode_request(body: bytes) -> Request:
    """The request in a frame's body.

    Raises:
        MalformedError: If it is none.
    """
    rest = _Body(body)
    request: Request
    match tag := rest.number("I"):
        case 0:
            rows, inputs, outputs = (rest.number("I") for _ in range(3))
            request = Prepare(rows, inputs, outputs, rest.text(), rest.text())
        case 1:
            request = Stock()
        case 2:
            request = Split(rest.number("I"), rest.flag())
        case 3:
            request = Check(rest.number("I"))
        case _:
            raise MalformedError(f"a frame can't be read as protocol {PROTOCOL}: request {tag} is unknown")
    rest.end()
    return request


def encode_reply(reply: Reply) -> bytes:
    """The frame of a reply: its length and its bytes."""
    match reply:
        case Hello():
            body = struct.pack("<II", 0, reply.protocol)
            body += _text(reply.worker_version) + _text(reply.brand) + _optional("H", reply.gpu_cores)
            body += struct.pack("<Q", reply.memory_bytes)
            for text in (reply.model_identifier, reply.pair, reply.units, reply.os_build):
                body += _text(text)
            body += _text(reply.mlx_version) + _text(reply.library_hash)
        case Prepared(active_bytes):
            body = struct.pack("<IQ", 1, active_bytes)
        case Timed(total_ns, finish, run_delay_ns):
            body = struct.pack("<IQ", 2, total_ns)
            body += b"\0" if finish is None else struct.pack("<BQQ", 1, *finish)
            body += _optional("Q", run_delay_ns)
        case Checked(relative_error):
            body = struct.pack("<Id", 3, relative_error)
        case Refused(reason):
            body = struct.pack("<I", 4) + _text(reason)
    return struct.pack("<I", len(body)) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _optional(code: str, value: int | None) -> bytes:
    return b"\0" if value is None else struct.pack("<B" + code, 1, value)


def read_body(pipe: BinaryIO) -> bytes | None:
    """The body of the next frame; None if the other side closed the pipe between two frames.

    Raises:
        FrameError: If the pipe ends inside a frame, or something else writes to it.
    """
    prefix = pipe.read(4)
    if not prefix:
        return None
    if len(prefix) < 4:
        raise FrameError("the pipe ended inside a frame")
    (length,) = struct.unpack("<I", prefix)
    if length > MAX_MESSAGE_BYTES:
        raise FrameError(f"a frame of {length} bytes is announced, at most {MAX_MESSAGE_BYTES} are allowed")
    body = pipe.read(length)
    if len(body) < length:
        raise FrameError("the pipe ended inside a frame")
    return body
