"""Accelerating one model: it gets a class that asks first, its parts get such classes while a chunk is split, and all get their own back.

A subclass for an instance changes no other model, keeps names and parameters as they are, and is undone by one assignment.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

import fusiond
from fusiond import identity
from fusiond._missing import need, need_mlx
from fusiond.mlx_lm._attention import shared_by, sharing_heads
from fusiond.mlx_lm._survey import Survey, survey
from fusiond.mlx_lm._version import warn_if_unknown
from fusiond.units import ThreadUnits, Units, materialised

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Where an instance keeps what its class asks.
_PLACE = "_fusiond"
# Rows of mlx-lm's prefill chunks, unless its caller chooses others.
CHUNK_ROWS = 2048
# Every so many split products one is sampled: its units are waited for one after the other. A prime, so that each layer of a block has its turn.
_SAMPLE_EVERY = 61
# Seconds between two words to the daemon that tokens are generated. At each step they cost 1 % of it: a step's weights drive all else out of the processor's caches.
_TOUCH_EVERY = 0.1


class Acceleration:
    """What was done to a model, until ``undo``."""

    def __init__(
        self, model: Any, found: Survey, attachment: fusiond.Attachment, layers: list[fusiond.Layer]
    ) -> None:
        self._model, self._found, self._attachment = model, found, attachment
        places = {layer: place for place, layer in enumerate(layers)}
        times = Counter(places[linear.layer] for linear in found.linears)
        # What attention and norms take is not known before the first chunk. Leaving it out makes the predicted gain a little too large; the gate sees real calls soon.
        self._region = attachment.region(_workload(model, layers), sorted(times.items()))
        self._units = ThreadUnits()
        self._running = _Running()
        # Each part that takes part, its own class, and the one that asks.
        self._parts: list[tuple[Any, type, type]] = []
        self._lock, self._split_chunks = threading.Lock(), 0
        self._products = 0
        self._touch_at = 0.0
        # By the place of a layer, whether its next sampled product waits for the secondary unit first.
        self._secondary_first: dict[int, bool] = {}
        self._chunks: Counter[str] = Counter()
        self._places = places
        self._install()

    @property
    def active(self) -> bool:
        """Whether the model is accelerated: until ``undo``."""
        return _PLACE in vars(self._model)

    def is_of(self, model: Any) -> bool:
        """Whether it is this model that is accelerated, and not one that it was copied from."""
        return model is self._model

    @property
    def layers(self) -> dict[str, fusiond.Layer]:
        """The layers that are split when it pays, by their path in the model."""
        return {linear.path: linear.layer for linear in self._found.linears}

    @property
    def left_alone(self) -> dict[str, str]:
        """Layers that never are, by their path, with the reason."""
        return dict(self._found.left_alone)

    @property
    def attachment(self) -> fusiond.Attachment:
        """What answers, and what its answers rest on."""
        return self._attachment

    @property
    def chunks(self) -> dict[str, int]:
        """Prefill chunks so far, by the way they were executed: "split" or "eager"."""
        return dict(self._chunks)

    @property
    def workload(self) -> str:
        """What 'fusionctl gates' calls this model's prefill."""
        return self._region.name

    def arm(self, rows: int = CHUNK_ROWS) -> str:
        """How a chunk of ``rows`` rows would be executed now: "split" or "eager"."""
        return self._region.arm(rows)

    def explain(self, rows: int = CHUNK_ROWS) -> str | None:
        """Why chunks of ``rows`` rows are executed as they are; None before the first."""
        return self._region.explain(rows)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """The model as it was, for the length of a block: for comparing."""
        active = self.active
        self.undo()
        try:
            yield
        finally:
            if active:
                self._install()

    def call_stock(self, *args: Any, **kwargs: Any) -> Any:
        """One call of the model's own code, for comparing single steps, which ``suspended`` would disturb."""
        own: Any = _own_class(self._model) if self.active else type(self._model)
        return own.__call__(self._model, *args, **kwargs)

    def _install(self) -> None:
        for linear in self._found.linears:
            self._prepare(linear.module, (self._places[linear.layer],), _linear_class)
        for part in self._found.feed_forwards:
            places = tuple(self._places[layer] for layer in part.layers)
            self._prepare(part.module, places, _feed_forward_class)
        for attention in self._found.attentions:
            self._prepare(attention.module, (), _attention_class)
        _become(self._model, self._asking_class(self._model, (), _model_class))

    def _prepare(self, module: Any, places: tuple[int, ...], make_class: Callable[[type], type]) -> None:
        self._parts.append((module, type(module), self._asking_class(module, places, make_class)))

    def _asking_class(self, module: Any, places: tuple[int, ...], make_class: Callable[[type], type]) -> type:
        object.__setattr__(module, _PLACE, _Asks(self, places))
        return make_class(type(module))

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """The model's parts ask, as long as any thread runs a split chunk: a decode step has nothing to ask, and many parts."""
        with self._lock:
            self._split_chunks += 1
            if self._split_chunks == 1:
                for module, _own, asking in self._parts:
                    _become(module, asking)
        try:
            yield
        finally:
            with self._lock:
                self._split_chunks -= 1
                if self._split_chunks == 0:
                    self._rest()

    def _rest(self) -> None:
        for module, own, _asking in self._parts:
            _become(module, own)

    def undo(self) -> None:
        """Gives the model back as it was. Twice is fine."""
        if not self.active:
            return
        _become(self._model, _own_class(self._model))
        object.__delattr__(self._model, _PLACE)
        with self._lock:
            self._rest()
            for module, *_classes in self._parts:
                object.__delattr__(module, _PLACE)
            self._parts.clear()

    def __repr__(self) -> str:
        state = self._attachment.basis if self.active else "undone"
        return f"<Acceleration of {len(self._found.linears)} layers, {len(self._found.left_alone)} left alone: {state}>"

    def call_model(self, call: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the model: one region, if it is a prefill chunk."""
        rows = _rows(args, kwargs)
        if rows <= fusiond.DECODE_ROWS:
            if (now := monotonic()) >= self._touch_at:
                self._touch_at = now + _TOUCH_EVERY
                self._attachment.touch()
            return call(model, *args, **kwargs)
        caches = _caches(args, kwargs)
        if not caches or not self.is_of(model):
            # Without a cache nobody says what is evaluated of it. A copy has parts of its own.
            return call(model, *args, **kwargs)
        with self._region.begin(rows) as chunk:
            self._chunks[chunk.arm] += 1
            result = (
                self._split(call, model, args, kwargs)
                if chunk.arm == "split"
                else call(model, *args, **kwargs)
            )
            # What mlx-lm does next anyway, in either arm: now the time is that of a chunk.
            need_mlx().eval([cache.state for cache in caches])
        return result

    def _split(self, call: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        units = self._units.get()
        before, self._running.units = self._running.units, units
        try:
            with units.as_default(), self._asking():
                return call(model, *args, **kwargs)
        finally:
            self._running.units = before

    def call_linear(self, call: Any, module: Any, place: int, x: Any) -> Any:
        """A call of a linear layer: split, if this thread runs a split chunk and the layer's share says so."""
        units = self._running.units
        if units is None:
            return call(module, x)
        rows = x.size // x.shape[-1]
        secondary_rows = self._attachment.secondary_rows(place, rows)
        if secondary_rows == 0:
            return call(module, x)
        if not materialised(x):
            return call(module, x)
        work = functools.partial(call, module)
        self._products += 1
        due = self._products % _SAMPLE_EVERY == 0
        joined = (
            self._sampled(units, work, x, place, rows, secondary_rows)
            if due
            else units.join(*units.split(work, x, secondary_rows))
        )
        return joined.reshape(*x.shape[:-1], -1)

    def call_feed_forward(self, call: Any, module: Any, places: tuple[int, ...], x: Any) -> Any:
        """A call of a feed-forward part: its rows are split once and joined once, or else its layers ask each for itself."""
        units = self._running.units
        due = self._products % _SAMPLE_EVERY + len(places) >= _SAMPLE_EVERY
        # What the activation takes was never measured: only units of one kind are known to take the same time for it.
        if units is None or not units.alike or due:
            return call(module, x)
        secondary_rows = self._attachment.secondary_rows_through(places, x.size // x.shape[-1])
        if secondary_rows == 0 or not materialised(x):
            return call(module, x)
        self._products += len(places)
        # Inside, each layer is stock on the stream in scope.
        self._running.units = None
        try:
            parts = units.split(functools.partial(call, module), x, secondary_rows)
        finally:
            self._running.units = units
        return units.join(*parts).reshape(*x.shape[:-1], -1)

    def call_attention(
        self, calls: tuple[Any, Any], module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of an attention part, as it is or with its heads shared: by units of one kind, since what it takes was never measured."""
        call, sharing = calls
        units = self._running.units
        if units is None or not units.alike:
            return call(module, *args, **kwargs)
        with shared_by(units):
            return sharing(module, *args, **kwargs)

    def _sampled(
        self,
        units: Units,
        work: Any,
        x: Any,
        place: int,
        rows: int,
        secondary_rows: int,
    ) -> Any:
        secondary_first = self._secondary_first.get(place, True)
        # The times shall be those of this product.
        units.drain()
        joined, times = units.split_timed(work, x, secondary_rows, secondary_first=secondary_first)
        self._secondary_first[place] = times.secondary_first_next(secondary_first=secondary_first)
        total_ms, *finish_ms = (ns / 1e6 for ns in times)
        self._attachment.observe(
            place, rows, secondary_rows, total_ms, (finish_ms[0], finish_ms[1]), secondary_first
        )
        return joined


class _Running(threading.local):
    """The units of the split chunk that this thread runs."""

    units: Units | None = None


class _Asks:
    """What the class of an instance asks, and for which layers, by their places."""

    __slots__ = ("acceleration", "places")

    def __init__(self, acceleration: Acceleration, places: tuple[int, ...]) -> None:
        self.acceleration, self.places = acceleration, places

    def __deepcopy__(self, _memo: dict[int, Any]) -> _Asks:
        return self


def accelerate(
    model: Any,
    *,
    name: str | None = None,
    typical_rows: int = CHUNK_ROWS,
    socket: str | os.PathLike[str] | None = None,
    state_directory: str | os.PathLike[str] | None = None,
) -> Acceleration:
    """Lets the prefill of this model use both units, with the daemon's shares. Takes at most 250 ms beyond looking at the model.

    Args:
        model: As ``mlx_lm.load`` gives it. Once accelerated, it stays what it was: a second call changes nothing.
        name: What a person calls this program; the model's type otherwise.
        typical_rows: Rows of a prefill chunk (mlx-lm's ``prefill_step_size``): what the daemon measures.
        socket: Where the daemon listens, if not where it does by default.
        state_directory: Where the daemon keeps its snapshot, if not where it does by default.

    Raises:
        MissingPackageError: If MLX isn't installed.
    """
    known = vars(model).get(_PLACE)
    if isinstance(known, _Asks):
        if known.acceleration.is_of(model):
            return known.acceleration
        # A copy of an accelerated model: one of its own.
        _become(model, _own_class(model))
    warn_if_unknown()
    found = survey(model)
    layers = list(dict.fromkeys(linear.layer for linear in found.linears))
    attachment = fusiond.attach(
        name or f"mlx-lm: {getattr(model, 'model_type', type(model).__name__)}",
        layers,
        engine=identity.engine(),
        worker=fusiond.Worker.own(),
        typical_rows=typical_rows,
        working_set_bytes=_bytes(model),
        socket=socket,
        state_directory=state_directory,
    )
    return Acceleration(model, found, attachment, layers)


@contextlib.contextmanager
def accelerated(model: Any, **options: Any) -> Iterator[Acceleration]:
    """``accelerate`` for the length of a block."""
    acceleration = accelerate(model, **options)
    try:
        yield acceleration
    finally:
        acceleration.undo()


def _become(module: Any, kind: type) -> None:
    # Not by way of MLX's own `__setattr__`: this is no part of the model's state.
    object.__setattr__(module, "__class__", kind)


def _own_class(module: Any) -> type:
    """The class of a module that asks now, before it did."""
    return type(module).__bases__[0]


@functools.cache
def _linear_class(kind: type) -> type:
    original: Any = kind.__call__

    def call(self: Any, x: Any) -> Any:
        asks: _Asks = self._fusiond
        return asks.acceleration.call_linear(original, self, asks.places[0], x)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


@functools.cache
def _feed_forward_class(kind: type) -> type:
    original: Any = kind.__call__

    def call(self: Any, x: Any) -> Any:
        asks: _Asks = self._fusiond
        return asks.acceleration.call_feed_forward(original, self, asks.places, x)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


@functools.cache
def _attention_class(kind: type) -> type:
    original: Any = kind.__call__
    calls = (original, sharing_heads(original))

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        asks: _Asks = self._fusiond
        return asks.acceleration.call_attention(calls, self, args, kwargs)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


@functools.cache
def _model_class(kind: type) -> type:
    original: Any = kind.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        asks: _Asks = self._fusiond
        return asks.acceleration.call_model(original, self, args, kwargs)

    return type(kind.__name__, (kind,), {"__call__": call, "__module__": kind.__module__})


def _rows(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Tokens of a call: those of all sequences of a batch."""
    tokens = args[0] if args else kwargs.get("inputs")
    return int(getattr(tokens, "size", 0))


def _caches(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The caches of a call; empty if there are none, or of a kind that tells no state."""
    caches = kwargs.get("cache", args[1] if len(args) > 1 else None)
    if not isinstance(caches, list | tuple):
        return []
    known = [cache for cache in caches if cache is not None]
    return known if all(hasattr(type(cache), "state") for cache in known) else []


def _bytes(model: Any) -> int:
    utils = need("mlx.utils", "mlx", "to look at a model")
    return sum(array.nbytes for _, array in utils.tree_flatten(model.parameters()))


def _workload(model: Any, layers: list[fusiond.Layer]) -> str:
    """A name that models of one geometry share across processes, and others don't."""
    kinds = sorted({layer.format for layer in layers})
    width = max((layer.inputs for layer in layers), default=0)
    blocks = len(getattr(model, "layers", None) or ())
    return f"mlx-lm {getattr(model, 'model_type', type(model).__name__)} {blocks}x{width} {'+'.join(kinds)}"
