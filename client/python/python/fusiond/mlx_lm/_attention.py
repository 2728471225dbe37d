"""Attention by heads: each is computed for itself, so units of one kind can share them.

mlx-lm's models name one function for it. An attention part gets a ``__call__`` of the same code that finds another function under that name: no module of mlx-lm's
and no other model is changed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any

from fusiond.units import materialised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import mlx.core as mx

    from fusiond.units import Units

# What mlx-lm's models call it.
_NAME = "scaled_dot_product_attention"
# Products of a query and a key, over all heads, from which sharing pays for waiting for its inputs and for the joining: measured on a development pair, from 1.5e5 on.
_LEAST_SCORES = 1 << 18


class _Sharing(threading.local):
    """The units that share the attention which this thread computes."""

    units: Units | None = None


_sharing = _Sharing()


def asks_for_attention(kind: type) -> bool:
    """Whether the ``__call__`` of a class is one that ``sharing_heads`` understands."""
    call: Any = kind.__call__
    return isinstance(call, FunctionType) and _NAME in call.__code__.co_names and _NAME in call.__globals__


def sharing_heads(call: Any) -> Any:
    """The same code as ``call``, whose attention is shared inside of ``shared_by``."""
    names = {**call.__globals__, _NAME: functools.partial(_attend, call.__globals__[_NAME])}
    copy = FunctionType(call.__code__, names, call.__name__, call.__defaults__, call.__closure__)
    copy.__kwdefaults__ = call.__kwdefaults__
    return copy


@contextlib.contextmanager
def shared_by(units: Units) -> Iterator[None]:
    """The calling thread's attention is shared by these units."""
    before, _sharing.units = _sharing.units, units
    try:
        yield
    finally:
        _sharing.units = before


def _attend(stock: Callable[..., mx.array], *args: Any, **options: Any) -> mx.array:
    units, heads = _sharing.units, _secondary_heads(args, options)
    if units is None or heads == (0, 0) or not materialised(*args):
        return stock(*args, **options)
    queries, keys, values = args
    of_queries, of_keys = heads
    parts = units.submit(
        lambda: stock(queries[:, of_queries:], keys[:, of_keys:], values[:, of_keys:], **options),
        lambda: stock(queries[:, :of_queries], keys[:, :of_keys], values[:, :of_keys], **options),
    )
    return units.join(*parts, axis=1)


def _secondary_heads(args: tuple[Any, ...], options: dict[str, Any]) -> tuple[int, int]:
    """The heads of queries and of keys that the secondary unit computes: half of them. None where heads aren't all there is to it, or too little to share."""
    mask: Any = options.get("mask")
    by_head = getattr(mask, "ndim", 0) > 2 and mask.shape[-3] > 1
    if len(args) != 3 or by_head or options.get("sinks") is not None or hasattr(options.get("cache"), "bits"):
        return 0, 0
    queries, keys, _values = args
    scores = queries.size // queries.shape[-1] * keys.shape[-2]
    if scores < _LEAST_SCORES or queries.shape[1] % keys.shape[1]:
        return 0, 0
    of_keys = keys.shape[1] // 2
    return of_keys * (queries.shape[1] // keys.shape[1]), of_keys
