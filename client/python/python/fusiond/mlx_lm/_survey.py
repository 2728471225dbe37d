"""Which layers of a model can be split, and why the others can't."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fusiond import Layer
from fusiond._missing import need
from fusiond.mlx_lm._attention import asks_for_attention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Layers whose result ends in a cache. Of the last block only these are evaluated in a prefill chunk: queries, output and feed-forward part of that block
# are needed for logits alone. A name that isn't here is left lazy there: one layer less is split, and nothing is computed in vain.
_FEEDS_CACHE = frozenset(
    {
        *("k_proj", "v_proj", "kv_proj", "qkv_proj", "wqkv", "Wqkv", "c_attn", "query_key_value"),
        *("kv_a_proj_with_mqa", "kv_b_proj"),
        *("in_proj", "in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "x_proj", "dt_proj"),
    }
)
# The layers of which mlx-lm's feed-forward parts consist: down(activation(gate(x)) * up(x)), for each row.
_FEED_FORWARD = (frozenset({"gate_proj", "up_proj", "down_proj"}), frozenset({"gate_up_proj", "down_proj"}))
_MODELS_PACKAGE = "mlx_lm.models."
_EXPERTS = frozenset({"SwitchLinear", "QuantizedSwitchLinear"})
_FORMATS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Linear:
    """A layer that can be split."""

    path: str
    module: Any
    layer: Layer


@dataclass(frozen=True)
class FeedForward:
    """A feed-forward part, which does each row for itself: its rows can be split once for all of its layers."""

    path: str
    module: Any
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Attention:
    """An attention part, which does each head for itself."""

    path: str
    module: Any


@dataclass
class Survey:
    """What was found in a model."""

    linears: list[Linear] = field(default_factory=list)
    feed_forwards: list[FeedForward] = field(default_factory=list)
    attentions: list[Attention] = field(default_factory=list)
    # Why a layer is left as it is, by its path.
    left_alone: dict[str, str] = field(default_factory=dict)


class _UnsplittableError(Exception):
    """Why a layer can't be split."""


def survey(model: Any) -> Survey:
    """Looks through the blocks of a model. What lies outside of them (embeddings, the head) is not evaluated in a prefill chunk."""
    found = Survey()
    blocks = getattr(model, "layers", None)
    if not isinstance(blocks, list | tuple) or not blocks:
        found.left_alone["model"] = "it has no list of blocks called 'layers'"
        return found
    last = _cached_blocks(model, len(blocks)) - 1
    for number, where, module in _distinct_modules(blocks):
        try:
            layer = _layer(module)
        except _UnsplittableError as reason:
            found.left_alone[where] = str(reason)
            continue
        if layer is None:
            continue
        if number > last or (number == last and where.rpartition(".")[2] not in _FEEDS_CACHE):
            found.left_alone[where] = "a prefill chunk never evaluates it: it is behind the last cache"
        else:
            found.linears.append(Linear(where, module, layer))
    found.feed_forwards = list(_feed_forwards(blocks, found.linears))
    # That of the last block is never evaluated.
    found.attentions = list(_attentions(blocks[:last]))
    return found


def _feed_forwards(blocks: Iterable[Any], linears: Iterable[Linear]) -> Iterator[FeedForward]:
    """Those of mlx-lm's own models all of whose layers can be split, and which hold nothing else."""
    layers = {id(linear.module): linear.layer for linear in linears}
    for _number, where, module in _distinct_modules(blocks):
        if _is_mlx_lms(module) and frozenset(module) in _FEED_FORWARD:
            known = [layers.get(id(child)) for child in module.values()]
            if None not in known:
                yield FeedForward(where, module, tuple(filter(None, known)))


def _attentions(blocks: Iterable[Any]) -> Iterator[Attention]:
    """Those of mlx-lm's own models."""
    for _number, where, module in _distinct_modules(blocks):
        if _is_mlx_lms(module) and asks_for_attention(type(module)):
            yield Attention(where, module)


def _is_mlx_lms(module: Any) -> bool:
    """Whether it is of one of mlx-lm's models: a class of somebody else's may look at more than it says."""
    return type(module).__module__.startswith(_MODELS_PACKAGE)


def _cached_blocks(model: Any, blocks: int) -> int:
    """How many blocks, from the first on, have a cache of their own: some models' last ones share."""
    make_cache = getattr(model, "make_cache", None)
    return min(blocks, len(make_cache())) if make_cache else blocks


def _distinct_modules(blocks: Iterable[Any]) -> Iterator[tuple[int, str, Any]]:
    """Each module once, however many blocks share it: with the number of the first of them, and its path."""
    seen: set[int] = set()
    for number, block in enumerate(blocks):
        named = getattr(block, "named_modules", None)
        for path, module in named() if named else ():
            if id(module) not in seen:
                seen.add(id(module))
                yield number, f"layers.{number}.{path}", module


def _layer(module: Any) -> Layer | None:
    """The layer that a module is; None for one that is no linear layer."""
    nn = need("mlx.nn", "mlx", "to look at a model")
    kind = type(module)
    if kind.__name__ in _EXPERTS:
        raise _UnsplittableError(
            "routed experts: each row goes through experts of its own, so a share of rows is no share of the work"
        )
    if isinstance(module, nn.Linear):
        if kind.__call__ is not nn.Linear.__call__:
            raise _UnsplittableError(f"{kind.__name__} computes in a way of its own")
        return _plain(module)
    if isinstance(module, nn.QuantizedLinear):
        if kind.__call__ is not nn.QuantizedLinear.__call__:
            raise _UnsplittableError(f"{kind.__name__} computes in a way of its own")
        return _quantised(module)
    if kind.__name__ == "QQLinear":
        raise _UnsplittableError("its input is quantised too, which was never measured")
    return None


def _plain(module: Any) -> Layer:
    outputs, inputs = module.weight.shape
    number = str(module.weight.dtype).rpartition(".")[2]
    if number not in _FORMATS:
        raise _UnsplittableError(f"weights of {number}")
    return _checked(inputs, outputs, _FORMATS[number])


def _quantised(module: Any) -> Layer:
    mode = getattr(module, "mode", "affine")
    if mode != "affine":
        raise _UnsplittableError(f"quantised as {mode}, which was never measured")
    outputs, groups = module.scales.shape
    return _checked(groups * module.group_size, outputs, f"q{module.bits}/{module.group_size}")


def _checked(inputs: int, outputs: int, weights: str) -> Layer:
    try:
        return Layer(inputs, outputs, weights)
    except ValueError as error:
        raise _UnsplittableError(str(error)) from error
