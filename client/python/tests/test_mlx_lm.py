"""Accelerated models: what is split, what is left alone, and that it can be taken back."""

from __future__ import annotations

import copy
import importlib.metadata
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fusiond
import mlx.core as mx
import pytest
from conftest import Daemon
from fusiond.mlx_lm import Acceleration, UnknownVersionWarning, accelerate, accelerated, ttft
from fusiond.mlx_lm import _acceleration as implementation
from fusiond.mlx_lm import _attention as attention
from fusiond.mlx_lm._survey import survey
from fusiond.units import FinishTimes, Units
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.models.cache import QuantizedKVCache, make_prompt_cache
from mlx_lm.models.switch_layers import SwitchGLU
from random_model import config

ROWS = 96


class Shares:
    """Answers instead of a daemon, so that a test knows what is split: half of the rows, in every call; feed-forward parts as a whole if they shall be."""

    basis = "attached"

    def __init__(self, arm: str = "split") -> None:
        self.arm, self.whole = arm, False
        self.asked: list[tuple[int, int]] = []
        self.asked_whole: list[tuple[tuple[int, ...], int]] = []
        self.observed: list[tuple[Any, ...]] = []
        self.begun: list[int] = []
        self.ended: list[str] = []
        self.touched = 0

    def touch(self) -> None:
        self.touched += 1

    def secondary_rows(self, place: int, rows: int) -> int:
        self.asked.append((place, rows))
        return rows // 2

    def secondary_rows_through(self, places: tuple[int, ...], rows: int) -> int:
        self.asked_whole.append((places, rows))
        return rows // 2 if self.whole else 0

    def observe(self, *observation: Any) -> bool:
        self.observed.append(observation)
        return True

    def region(self, _name: str, _parts: Any, _other_ms: float = 0.0) -> Shares:
        return self

    def begin(self, rows: int) -> Shares:
        self.begun.append(rows)
        return self

    def __enter__(self) -> Shares:
        return self

    def __exit__(self, error: Any, *_: Any) -> None:
        self.ended.append("abandoned" if error else "ended")


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Shares:
    shares = Shares()
    monkeypatch.setattr(fusiond, "attach", lambda *_, **__: shares)
    return shares


def small(**changes: Any) -> Any:
    mx.random.seed(3)
    model = llama.Model(llama.ModelArgs.from_dict({**config(hidden=256, blocks=3), **changes}))
    mx.eval(model.parameters())
    return model


def tokens(rows: int, sequences: int = 1) -> mx.array:
    return mx.random.randint(0, 250, (sequences, rows), key=mx.random.key(rows))


def prefill(model: Any, rows: int = ROWS, sequences: int = 1) -> list[mx.array]:
    """A chunk as mlx-lm runs it: only the caches are evaluated."""
    cache = make_prompt_cache(model)
    model(tokens(rows, sequences), cache=cache)
    states = [part for layer in cache for part in layer.state if isinstance(part, mx.array)]
    mx.eval(states)
    return states


def watch_eval(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is evaluated from now on."""
    evaluated: list[Any] = []
    real = mx.eval

    def watched(*arrays: Any) -> None:
        evaluated.extend(arrays)
        real(*arrays)

    monkeypatch.setattr(mx, "eval", watched)
    return evaluated


def same(one: list[mx.array], other: list[mx.array], tolerance: float = 2e-5) -> bool:
    pairs = zip(one, other, strict=True)
    return all(mx.allclose(a, b, rtol=tolerance, atol=tolerance).item() for a, b in pairs)


def test_a_chunk_is_split_and_the_cache_is_the_same(shares: Shares) -> None:
    model = small()
    stock = prefill(model)
    acceleration = accelerate(model)
    assert same(prefill(model), stock)
    # Two whole blocks of seven layers; of the last one what its cache is made from.
    assert [rows for _, rows in shares.asked] == [ROWS] * (2 * 7 + 2)
    assert (shares.begun, shares.ended, acceleration.chunks) == ([ROWS], ["ended"], {"split": 1})


def test_the_other_arm_splits_nothing(shares: Shares) -> None:
    model = small()
    stock = prefill(model)
    shares.arm = "eager"
    accelerate(model)
    assert same(prefill(model), stock, 0.0)
    assert (shares.asked, shares.ended) == ([], ["ended"])


def test_decoding_is_stock(shares: Shares) -> None:
    model = small()
    cache = make_prompt_cache(model)
    accelerate(model)
    for rows in (1, fusiond.DECODE_ROWS):
        mx.eval(model(tokens(rows), cache=cache))
    assert (shares.asked, shares.begun) == ([], [])


def test_the_daemon_hears_of_decoding_now_and_then(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    cache = make_prompt_cache(model)
    accelerate(model)
    for seconds, touched in ((1000.0, 1), (1000.05, 1), (1000.11, 2), (1000.2, 2), (1010.0, 3)):
        monkeypatch.setattr(implementation, "monotonic", lambda seconds=seconds: seconds)
        mx.eval(model(tokens(1), cache=cache))
        assert shares.touched == touched


def test_timed_decode_steps_take_turns(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    acceleration = accelerate(model)
    steps: list[str] = []

    def watch(name: str, of: str) -> None:
        real = getattr(Acceleration, of)

        def call(*args: Any, **kwargs: Any) -> Any:
            steps.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(Acceleration, of, call)

    watch("stock", "call_stock")
    watch("accelerated", "call_model")
    # Nobody asks for text.
    times = ttft.Bench(model, None, acceleration, tokens=1)._decode_steps(list(range(ROWS)))
    turns = ["stock", "accelerated", "accelerated", "stock"]
    assert steps == ["accelerated", "stock", "accelerated", *turns * len(times)], (
        "the prompt, one of each, and turns"
    )
    assert [len(quadruple) for quadruple in times] == [4] * 16
    assert all(0 < ms < 60_000 for quadruple in times for ms in quadruple)
    assert shares.begun == [ROWS], "steps are no chunks"


def test_a_decode_step_runs_the_layers_own_code(shares: Shares) -> None:
    model = small()
    accelerate(model)
    own = {path: type(module) for path, module in model.named_modules() if path}
    assert type(model.layers[0].mlp.up_proj) is nn.Linear
    with pytest.raises(ValueError, match="last dimension"):
        model(
            mx.zeros((1, ROWS), dtype=mx.int32),
            cache=make_prompt_cache(model),
            input_embeddings=mx.zeros((1, ROWS, 7)),
        )
    prefill(model)
    assert {path: type(module) for path, module in model.named_modules() if path} == own


def test_logits_of_a_chunk_are_the_same(shares: Shares) -> None:
    model = small()
    stock = model(tokens(ROWS), cache=make_prompt_cache(model))
    accelerate(model)
    assert same([model(tokens(ROWS), cache=make_prompt_cache(model))], [stock])
    # Nobody says what of a call without a cache is evaluated: it is left alone.
    before = len(shares.asked)
    assert same([model(tokens(ROWS))], [stock])
    assert len(shares.asked) == before


def test_what_is_never_evaluated_stays_lazy(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    acceleration = accelerate(model)
    lazy = {path for path, why in acceleration.left_alone.items() if "never evaluates" in why}
    assert lazy == {
        *(f"layers.2.self_attn.{name}" for name in ("q_proj", "o_proj")),
        *(f"layers.2.mlp.{name}" for name in ("gate_proj", "up_proj", "down_proj")),
    }
    evaluated = watch_eval(monkeypatch)
    out = model(tokens(ROWS), cache=make_prompt_cache(model))
    assert not any(array is out for array in evaluated)


def test_layers_that_read_the_same_input_materialise_it_once(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small()
    accelerate(model)
    inputs = watch_eval(monkeypatch)
    prefill(model)
    distinct = {id(array) for array in inputs if isinstance(array, mx.array)}
    # Of each block: of q, k, v; of o; of gate and up; of down. Of the last one the first of these.
    assert len([array for array in inputs if isinstance(array, mx.array) and array.ndim == 3]) == 2 * 7 + 2
    assert len(distinct) >= 2 * 4 + 1


@pytest.mark.parametrize("bits", [None, 4])
def test_a_feed_forward_part_is_split_as_a_whole(
    shares: Shares, monkeypatch: pytest.MonkeyPatch, bits: int | None
) -> None:
    model, shares.whole = small(), True
    if bits is not None:
        nn.quantize(model, group_size=64, bits=bits)
    stock = prefill(model)
    accelerate(model)
    evaluated = watch_eval(monkeypatch)
    assert same(prefill(model), stock)
    # Of two whole blocks attention's four layers, of the last one what its cache is made from; gate, up and down are asked for at once.
    assert len(shares.asked) == 2 * 4 + 2
    assert [(len(places), rows) for places, rows in shares.asked_whole] == [(3, ROWS)] * 2
    # Of each block the input of q, k and v, that of o, and one of the feed-forward part.
    inputs = [array for array in evaluated if isinstance(array, mx.array) and array.ndim == 3]
    assert len({id(array) for array in inputs}) == 2 * 3 + 1
    assert len(inputs) == 2 * 5 + 2


def test_units_of_two_kinds_share_layer_by_layer(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Units, "alike", False)
    model, shares.whole = small(), True
    accelerate(model)
    prefill(model)
    assert (len(shares.asked), shares.asked_whole) == (2 * 7 + 2, [])


def test_a_fused_feed_forward_part_is_one_too(shares: Shares) -> None:
    from mlx_lm.models import phi3

    about = {**config(hidden=256, blocks=2), "model_type": "phi3", "rope_theta": 10000.0}
    model, shares.whole = phi3.Model(phi3.ModelArgs.from_dict(about)), True
    mx.eval(model.parameters())
    stock = prefill(model)
    accelerate(model)
    assert same(prefill(model), stock)
    assert [len(places) for places, _ in shares.asked_whole] == [2]


def test_a_part_is_known_by_what_it_holds_and_whose_it_is() -> None:
    class MLP(llama.MLP):
        pass

    model = small()
    model.layers[1].mlp.extra = nn.RMSNorm(256)
    assert [part.path for part in survey(model).feed_forwards] == ["layers.0.mlp"]
    # A class of somebody else's may look at more than one row.
    object.__setattr__(model.layers[0].mlp, "__class__", MLP)
    assert survey(model).feed_forwards == []


def watch_heads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Heads of queries and of keys of all attention from now on, in the order in which it is built."""
    monkeypatch.setattr(attention, "_LEAST_SCORES", 1)
    heads: list[tuple[int, int]] = []
    real = mx.fast.scaled_dot_product_attention

    def watched(queries: mx.array, keys: mx.array, *args: Any, **kwargs: Any) -> mx.array:
        heads.append((queries.shape[1], keys.shape[1]))
        return real(queries, keys, *args, **kwargs)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", watched)
    return heads


@pytest.mark.parametrize(("keys", "shared"), [(4, [(2, 2), (2, 2)]), (2, [(2, 1), (2, 1)]), (1, [(4, 1)])])
def test_attention_is_shared_by_heads(
    shares: Shares, monkeypatch: pytest.MonkeyPatch, keys: int, shared: list[tuple[int, int]]
) -> None:
    model = small(num_key_value_heads=keys)
    stock = prefill(model), prefill(model, 40, sequences=3)
    acceleration = accelerate(model)
    heads = watch_heads(monkeypatch)
    assert same(prefill(model), stock[0])
    # The last block's attention is behind its cache: it is built as ever, and never computed.
    assert heads == [*shared, *shared, (4, keys)]
    assert same(prefill(model, 40, sequences=3), stock[1])
    acceleration.undo()
    heads.clear()
    prefill(model)
    assert heads == [(4, keys)] * 3


def test_several_chunks_share_attention_over_what_is_cached(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_chunks(model: Any) -> list[mx.array]:
        cache = make_prompt_cache(model)
        model(tokens(ROWS), cache=cache)
        out = model(tokens(50), cache=cache)
        mx.eval(out)
        return [out]

    model = small(num_key_value_heads=2)
    stock = two_chunks(model)
    accelerate(model)
    heads = watch_heads(monkeypatch)
    assert same(two_chunks(model), stock)
    assert heads.count((2, 1)) == 2 * 2 * 2


def test_attention_is_left_alone_where_heads_are_not_all_there_is_to_it() -> None:
    def heads(*args: mx.array, **options: Any) -> tuple[int, int]:
        return attention._secondary_heads(args, options)

    queries, keys = mx.zeros((1, 6, 512, 8)), mx.zeros((1, 3, 512, 8))
    assert heads(queries, keys, keys, mask="causal") == (2, 1)
    assert heads(queries, keys, keys, mask=mx.zeros((512, 512))) == (2, 1)
    assert heads(queries, keys, keys, mask=mx.zeros((1, 1, 512, 512))) == (2, 1)
    assert heads(queries, keys, keys, mask=mx.zeros((1, 6, 512, 512))) == (0, 0)
    assert heads(queries, keys, keys, mask=None, sinks=mx.zeros(6)) == (0, 0)
    assert heads(queries, keys, keys, cache=QuantizedKVCache()) == (0, 0)
    assert heads(queries, keys, keys, mx.zeros(1)) == (0, 0)
    assert heads(queries[:, :, :8], keys[:, :, :8], keys[:, :, :8]) == (0, 0)


def test_units_of_two_kinds_share_no_attention(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Units, "alike", False)
    model = small(num_key_value_heads=2)
    accelerate(model)
    heads = watch_heads(monkeypatch)
    prefill(model)
    assert heads == [(4, 2)] * 3


def test_an_attention_part_is_known_by_what_it_asks_and_whose_it_is() -> None:
    class Attention(llama.Attention):
        pass

    model = small()
    assert [part.path for part in survey(model).attentions] == ["layers.0.self_attn", "layers.1.self_attn"]
    object.__setattr__(model.layers[0].self_attn, "__class__", Attention)
    assert [part.path for part in survey(model).attentions] == ["layers.1.self_attn"]
    assert not attention.asks_for_attention(llama.MLP)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_is_split(shares: Shares, dtype: mx.Dtype) -> None:
    model = small(attention_bias=True, mlp_bias=True)
    model.set_dtype(dtype)
    stock = prefill(model)
    accelerate(model)
    assert same(prefill(model), stock, 0.05)
    assert len(shares.asked) == 2 * 7 + 2


@pytest.mark.parametrize("bits", [4, 8])
def test_quantised_layers_are_split(shares: Shares, bits: int) -> None:
    model = small()
    nn.quantize(model, group_size=64, bits=bits)
    stock = prefill(model)
    acceleration = accelerate(model)
    assert {layer.format for layer in acceleration.layers.values()} == {f"q{bits}/64"}
    assert same(prefill(model), stock)
    assert len(shares.asked) == 2 * 7 + 2


def test_a_batch_is_as_many_rows(shares: Shares) -> None:
    model = small()
    stock = prefill(model, 40, sequences=3)
    accelerate(model)
    assert same(prefill(model, 40, sequences=3), stock)
    assert shares.begun == [120]


@pytest.mark.parametrize("whole", [False, True])
def test_some_products_are_sampled(shares: Shares, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    monkeypatch.setattr(implementation, "_SAMPLE_EVERY", 5)
    model, shares.whole = small(), whole
    stock = prefill(model)
    accelerate(model)
    for _ in range(4):
        assert same(prefill(model), stock)
    # 64 products; a feed-forward part in which one is due goes layer by layer.
    assert len(shares.observed) == 12
    by_place: dict[int, list[tuple[bool, FinishTimes]]] = {}
    for place, *_, total_ms, finish_ms, secondary_first in shares.observed:
        times = FinishTimes(*(round(ms * 1e6) for ms in (total_ms, *finish_ms)))
        by_place.setdefault(place, []).append((secondary_first, times))
    assert max(map(len, by_place.values())) > 1
    for seen in by_place.values():
        # What is waited for first follows from what was seen before.
        expected = [True, *(times.secondary_first_next(secondary_first=first) for first, times in seen[:-1])]
        assert [first for first, _ in seen] == expected
    for _, rows, secondary_rows, total_ms, finish_ms, _ in shares.observed:
        assert (rows, secondary_rows) == (ROWS, ROWS // 2)
        assert 0 < max(finish_ms) <= total_ms


def test_everything_is_taken_back(shares: Shares) -> None:
    model = small()
    kinds = {path: type(module) for path, module in model.named_modules()}
    names = {name for name, _ in tree_flatten(model.parameters())}
    with accelerated(model) as acceleration:
        assert acceleration.active
        assert accelerate(model) is acceleration
        assert type(model) is not llama.Model
        assert isinstance(model, llama.Model)
        assert {name for name, _ in tree_flatten(model.parameters())} == names
        with acceleration.suspended():
            assert type(model) is llama.Model
        assert acceleration.active
    assert not acceleration.active
    assert {path: type(module) for path, module in model.named_modules()} == kinds
    assert not any(implementation._PLACE in vars(module) for _, module in model.named_modules())
    acceleration.undo()
    prefill(model)
    assert shares.asked == []


def test_no_other_model_is_changed(shares: Shares) -> None:
    model, other = small(), small()
    names = dict(vars(llama))
    accelerate(model)
    assert vars(llama) == names
    assert type(other.layers[0].self_attn) is llama.Attention
    prefill(other)
    assert shares.asked == []
    assert type(other.layers[0].mlp.up_proj) is nn.Linear
    assert nn.Linear.__call__.__module__ == "mlx.nn.layers.linear"


def test_a_copy_computes_with_its_own_weights(shares: Shares) -> None:
    model = small()
    accelerate(model)
    copied = copy.deepcopy(model)
    copied.layers[0].self_attn.k_proj.weight = copied.layers[0].self_attn.k_proj.weight * 2
    copies = prefill(copied)
    assert shares.asked == [], "a copy isn't accelerated"
    assert not same(copies, prefill(model))
    other = accelerate(copied)
    assert other.is_of(copied)
    assert same(prefill(copied), copies)
    assert other.chunks == {"split": 1}
    other.undo()
    assert type(copied) is llama.Model


def test_an_error_in_a_chunk_is_the_callers_and_the_next_one_works(shares: Shares) -> None:
    model = small()
    stock = prefill(model)
    accelerate(model)
    with pytest.raises(ValueError, match="last dimension"):
        model(
            mx.zeros((1, ROWS), dtype=mx.int32),
            cache=make_prompt_cache(model),
            input_embeddings=mx.zeros((1, ROWS, 7)),
        )
    assert shares.ended == ["abandoned"]
    assert same(prefill(model), stock)


def test_experts_and_strangers_are_left_alone_with_a_reason() -> None:
    class Odd(nn.Linear):
        def __call__(self, x: mx.array) -> mx.array:
            return super().__call__(x) + 1

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = SwitchGLU(64, 64, 2)
            self.qkv_proj = nn.Linear(64, 192)
            self.odd = Odd(64, 64)
            self.wide = nn.Linear(64, 64)
            self.wide.weight = self.wide.weight.astype(mx.complex64)
            self.mx4 = nn.QuantizedLinear(64, 64, group_size=32, bits=4, mode="mxfp4")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [Block(), Block()]
            self.lm_head = nn.Linear(64, 64)

    found = survey(Model())
    assert [linear.path for linear in found.linears] == ["layers.0.qkv_proj", "layers.1.qkv_proj"]
    reasons = {path: why for path, why in found.left_alone.items() if path.startswith("layers.0.")}
    assert len([path for path in reasons if "experts" in path]) == 3
    assert "experts of its own" in reasons["layers.0.experts.up_proj"]
    assert "Odd computes in a way of its own" in reasons["layers.0.odd"]
    assert "complex64" in reasons["layers.0.wide"]
    assert "mxfp4" in reasons["layers.0.mx4"]
    assert "no list of blocks" in survey(nn.Linear(4, 4)).left_alone["model"]


def test_a_fused_projection_is_split(shares: Shares) -> None:
    from mlx_lm.models import phi3

    about = {**config(hidden=256, blocks=2), "model_type": "phi3", "rope_theta": 10000.0}
    model = phi3.Model(phi3.ModelArgs.from_dict(about))
    mx.eval(model.parameters())
    stock = prefill(model)
    acceleration = accelerate(model)
    assert "layers.1.self_attn.qkv_proj" in acceleration.layers
    assert same(prefill(model), stock)
    assert len(shares.asked) == len(acceleration.layers)


def test_an_unknown_mlx_lm_is_reported_and_used(shares: Shares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.99.1")
    with pytest.warns(UnknownVersionWarning, match=r"this is 0\.99\.1"):
        accelerate(small())
    monkeypatch.undo()


def test_the_installed_mlx_lm_is_known(shares: Shares) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownVersionWarning)
        assert isinstance(accelerate(small()), Acceleration)


def run_module(models: tuple[Path, Path], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fusiond.mlx_lm", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_the_command_passes_through(models: tuple[Path, Path]) -> None:
    plain, _ = models
    done = run_module(
        models, "generate", "--model", str(plain), "--prompt", "Say something", "--max-tokens", "4"
    )
    assert done.returncode == 0, done.stderr
    assert "Acceleration of 23 layers" in done.stderr
    assert "Generation: 4 tokens" in done.stdout
    assert run_module(models, "generate", "--help").returncode == 0
    unknown = run_module(models, "no_such_command")
    assert unknown.returncode == 2
    assert "no command" in unknown.stderr
    assert run_module(models).returncode == 2


def test_layers_register_with_the_daemon(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon()
    model = small()
    with accelerated(model, socket=daemon.socket, state_directory=daemon.state) as acceleration:
        clients = daemon.control("clients", "--layers")
        assert "mlx-lm: llama" in clients
        for layer in set(acceleration.layers.values()):
            assert f"2048x{layer.inputs}x{layer.outputs} f32" in clients
