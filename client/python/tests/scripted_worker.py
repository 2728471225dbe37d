"""A worker without MLX: ``python -m scripted_worker NS|garbage [HASH]``. It claims to be this machine and engine (or one with the library HASH), and that the
secondary unit takes NS a row where the primary one takes 10 µs: so a test chooses which share is served, right or wrong. "garbage" is another NS for each shape.
"""

from __future__ import annotations

import random
import sys

from fusiond import frames, identity

PRIMARY_NS_PER_ROW = 10_000
# A secondary unit from ten times as fast as the primary one to eight times as slow: shares from nine tenths to a tenth.
_GARBAGE_NS = (1_000, 80_000)


def _secondary_ns_per_row(wanted: str, shape: frames.Prepare) -> int:
    if wanted != "garbage":
        return int(wanted)
    # The same for a shape in every life of a worker.
    return random.Random(f"{shape.inputs} {shape.outputs}").randint(*_GARBAGE_NS)


def main() -> None:
    machine, engine = identity.hardware(), identity.engine()
    library_hash = sys.argv[2] if len(sys.argv) > 2 else engine.library_hash
    hello = frames.Hello(
        worker_version="scripted",
        brand=machine.brand,
        gpu_cores=machine.gpu_cores,
        memory_bytes=machine.memory_bytes,
        model_identifier=machine.model_identifier,
        pair="development",
        units="two scripted units",
        os_build=engine.os_build,
        mlx_version=engine.mlx_version,
        library_hash=library_hash,
    )
    replies, rows, secondary_ns_per_row = sys.stdout.buffer, 0, 0
    replies.write(frames.encode_reply(hello))
    replies.flush()
    while (body := frames.read_body(sys.stdin.buffer)) is not None:
        reply: frames.Reply
        match frames.decode_request(body):
            case frames.Prepare(rows=rows) as shape:
                secondary_ns_per_row = _secondary_ns_per_row(sys.argv[1], shape)
                reply = frames.Prepared(0)
            case frames.Stock():
                reply = frames.Timed(rows * PRIMARY_NS_PER_ROW, None, None)
            case frames.Split(secondary_rows):
                finish = ((rows - secondary_rows) * PRIMARY_NS_PER_ROW, secondary_rows * secondary_ns_per_row)
                reply = frames.Timed(max(finish), finish, None)
            case frames.Check():
                reply = frames.Checked(0.0)
        replies.write(frames.encode_reply(reply))
        replies.flush()


if __name__ == "__main__":
    main()
