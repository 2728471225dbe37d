"""The client of fusiond: a daemon that lets the CPU help the GPU with matrix products.

``fusiond.attach`` is for programs that split products themselves; ``fusiond.mlx_lm`` accelerates MLX-LM models in one line::

    from fusiond.mlx_lm import accelerate

    accelerate(model)

A daemon that is absent, hung, killed, older or newer changes speed, never results. Nothing here imports MLX until it is
needed: a process must hold one MLX, and that is the user's own.
"""

from fusiond._attach import Engine, Worker, attach
from fusiond._native import DECODE_ROWS, PROTOCOL, Attachment, Call, Layer, Lines, Region
from fusiond._native import VERSION as __version__  # noqa: N811

__all__ = [
    "DECODE_ROWS",
    "PROTOCOL",
    "Attachment",
    "Call",
    "Engine",
    "Layer",
    "Lines",
    "Region",
    "Worker",
    "__version__",
    "attach",
]
