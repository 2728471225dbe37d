"""``python -m fusiond.worker``: measures with the MLX of this very interpreter.

fusiond starts it for a client that named it, asks for one timed call after the other over standard input and output, and ends it by closing the
pipe or by a signal. It decides nothing: what to measure and when to stop is the daemon's. The daemon's own worker, in Rust, does the same with another
build of MLX. Everything for people goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, BinaryIO

import fusiond
from fusiond import frames, identity
from fusiond._missing import MissingPackageError, need_mlx
from fusiond.units import Units

if TYPE_CHECKING:
    from collections.abc import Callable

    import mlx.core as mx

MEMORY_LIMIT_VARIABLE = "FUSION_WORKER_MEMORY_LIMIT_BYTES"
# Standard deviation of the synthetic numbers: that of trained weights, so that half precision neither overflows nor flushes to zero.
_SCALE = 0.02
_SEED = 0x5EED
# Address space beside operands and results: buffers of the BLAS, and what the C library reserves for each thread.
_WORKING_SPACE_BYTES = 256 << 20


class _RefusedError(Exception):
    """A request that can't be done; the worker lives on."""


class Operands:
    """Rows and weights of one shape, materialised."""

    def __init__(self, units: Units, shape: frames.Prepare) -> None:
        self.units, self.count = units, shape.rows
        core = need_mlx()
        quantised = shape.format.startswith("q")
        if quantised and shape.layout != "nk":
            raise _RefusedError(f"weights of format {shape.format} are measured in layout nk only")
        dtype = {"f32": core.float32, "bf16": core.bfloat16}.get(shape.format, core.float16)
        with units.as_default():
            self.rows = _noise((shape.rows, shape.inputs), dtype, _SEED)
            sides = (shape.outputs, shape.inputs) if shape.layout == "nk" else (shape.inputs, shape.outputs)
            weight = _noise(sides, dtype, _SEED + 1)
            self.work: Callable[[mx.array], mx.array]
            if quantised:
                bits, group = (int(part) for part in shape.format[1:].split("/"))
                packed, scales, biases = core.quantize(weight, group_size=group, bits=bits)
                core.eval(packed, scales, biases)
                self.work = lambda rows: core.quantized_matmul(
                    rows, packed, scales=scales, biases=biases, transpose=True, group_size=group, bits=bits
                )
            elif shape.layout == "nk":
                self.work = lambda rows: rows @ weight.T
            else:
                self.work = lambda rows: rows @ weight

    def stock(self) -> tuple[mx.array, frames.Timed]:
        """The whole product on the primary unit alone."""
        core, delay = need_mlx(), self.units.run_delay_ns()
        with self.units.as_default():
            whole = self.work(self.rows)
            start = time.perf_counter_ns()
            core.eval(whole)
            total_ns = time.perf_counter_ns() - start
        return whole, frames.Timed(total_ns, None, self._delay_since(delay))

    def split(self, secondary_rows: int, *, secondary_first: bool) -> tuple[mx.array, frames.Timed]:
        """The product with its first rows on the secondary unit."""
        delay = self.units.run_delay_ns()
        with self.units.as_default():
            if secondary_rows == self.count:
                return self._secondary_alone(delay)
            joined, times = self.units.split_timed(
                self.work, self.rows, secondary_rows, secondary_first=secondary_first
            )
        finish = (times.primary_ns, times.secondary_ns)
        return joined, frames.Timed(times.total_ns, finish, self._delay_since(delay))

    def _secondary_alone(self, delay: int | None) -> tuple[mx.array, frames.Timed]:
        core = need_mlx()
        with core.stream(self.units.secondary):
            whole = self.work(self.rows)
            start = time.perf_counter_ns()
            core.eval(whole)
            total_ns = time.perf_counter_ns() - start
        return whole, frames.Timed(total_ns, None, self._delay_since(delay))

    def _delay_since(self, before: int | None) -> int | None:
        after = self.units.run_delay_ns()
        return None if before is None or after is None else max(0, after - before)


class Conversation:
    """The worker's side: two units, and the operands of the shape it was last asked to prepare."""

    def __init__(self, units: Units, memory_limit_bytes: int) -> None:
        self._units, self._memory_limit_bytes = units, memory_limit_bytes
        self._operands: Operands | None = None

    def hold(self, requests: BinaryIO, replies: BinaryIO) -> None:
        """Says hello, then answers until the other side closes the pipe."""
        _send(replies, self._hello())
        while (body := frames.read_body(requests)) is not None:
            _send(replies, self._answer(body))

    def _hello(self) -> frames.Hello:
        machine, engine = identity.hardware(), identity.engine()
        return frames.Hello(
            worker_version=f"python {fusiond.__version__}",
            brand=machine.brand,
            gpu_cores=machine.gpu_cores,
            memory_bytes=machine.memory_bytes,
            model_identifier=machine.model_identifier,
            pair=self._units.pair,
            units=self._units.description,
            os_build=engine.os_build,
            mlx_version=engine.mlx_version,
            library_hash=engine.library_hash,
        )

    def _answer(self, body: bytes) -> frames.Reply:
        try:
            return self._do(frames.decode_request(body))
        except (_RefusedError, frames.MalformedError) as refusal:
            return frames.Refused(str(refusal))
        except (ValueError, RuntimeError, MemoryError) as error:
            return frames.Refused(f"MLX failed: {error}")

    def _do(self, request: frames.Request) -> frames.Reply:
        if isinstance(request, frames.Prepare):
            return self._prepare(request)
        if self._operands is None:
            raise _RefusedError("nothing is prepared: send Prepare first")
        if isinstance(request, frames.Stock):
            return self._operands.stock()[1]
        if not 1 <= request.secondary_rows <= self._operands.count:
            raise _RefusedError(
                f"a split gives the secondary unit 1 to {self._operands.count} rows, not {request.secondary_rows}"
            )
        if isinstance(request, frames.Split):
            return self._operands.split(request.secondary_rows, secondary_first=request.secondary_first)[1]
        joined, _ = self._operands.split(request.secondary_rows, secondary_first=False)
        whole, _ = self._operands.stock()
        return frames.Checked(relative_error(joined, whole))

    def _prepare(self, shape: frames.Prepare) -> frames.Reply:
        core = need_mlx()
        layer = fusiond.Layer(shape.inputs, shape.outputs, shape.format, shape.layout)
        # Random numbers are made in single precision, through random bits of the same size.
        making = 8 * max(shape.rows * shape.inputs, shape.inputs * shape.outputs)
        needed = max(layer.working_set_bytes(shape.rows), making)
        if needed > self._memory_limit_bytes:
            raise _RefusedError(
                f"the shape does not fit into memory: it takes {needed} bytes, {self._memory_limit_bytes} are allowed"
            )
        # The old ones go first: two shapes at once may not fit where each does.
        self._operands = None
        core.clear_cache()
        operands = Operands(self._units, shape)
        # Both arms once: pages are touched, kernels loaded. Slow row counts are powers of two, so an odd one is none.
        operands.stock()
        operands.split((shape.rows // 2) | 1, secondary_first=False)
        self._operands = operands
        return frames.Prepared(core.get_active_memory())


def relative_error(result: mx.array, reference: mx.array) -> float:
    """max|a - b| / max|b|; infinite if a number is not finite."""
    core = need_mlx()
    result, reference = result.astype(core.float32), reference.astype(core.float32)
    difference = float(core.abs(result - reference).max().item())
    largest = float(core.abs(reference).max().item())
    error = 0.0 if difference == 0.0 else difference / largest if largest else float("inf")
    finite = error - error == 0.0 and largest - largest == 0.0
    return error if finite else float("inf")


def _noise(sides: tuple[int, int], dtype: mx.Dtype, seed: int) -> mx.array:
    """Uniform random numbers, materialised: what is timed does not depend on the distribution."""
    core = need_mlx()
    # The standard deviation of a uniform distribution on [-a, a] is a / sqrt(3).
    bound = _SCALE * 3**0.5
    numbers = core.random.uniform(-bound, bound, sides, key=core.random.key(seed)).astype(dtype)
    core.eval(numbers)
    return numbers


def _send(replies: BinaryIO, reply: frames.Reply) -> None:
    replies.write(frames.encode_reply(reply))
    replies.flush()


def _take_stdout() -> BinaryIO:
    """The real standard output, for frames only: nothing that a library prints can get between two of them."""
    ours = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(ours, "wb")


def _limit_memory(asked: str | None) -> int:
    """Caps this process, and returns the bytes that operands and results may take."""
    if not asked:
        return identity.hardware().memory_bytes or sys.maxsize
    limit = int(asked)
    need_mlx().set_memory_limit(limit)
    if sys.platform == "linux":
        import resource

        with open("/proc/self/status") as status:
            mapped = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmSize:"))
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = mapped + _WORKING_SPACE_BYTES + limit
        resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    return limit


def main() -> int:
    """Measures until standard input is closed."""
    parser = argparse.ArgumentParser(
        prog="python -m fusiond.worker", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument(
        "--pair", choices=("auto", "development"), default="auto", help="which two units share the rows"
    )
    arguments = parser.parse_args()
    replies = _take_stdout()
    try:
        units = Units(development=arguments.pair == "development")
        limit = _limit_memory(os.environ.get(MEMORY_LIMIT_VARIABLE))
        Conversation(units, limit).hold(sys.stdin.buffer, replies)
    except (MissingPackageError, frames.FrameError, BrokenPipeError) as error:
        print(f"fusiond.worker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
