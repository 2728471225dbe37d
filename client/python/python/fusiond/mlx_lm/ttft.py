"""``python -m fusiond.mlx_lm.ttft``: time to first token, stock, accelerated and stock again, interleaved in one run.

What ``fusionctl bench ttft`` runs. Prints one JSON document with every sample; medians, intervals and verdicts are fusionctl's, so that there is one arithmetic.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fusiond
from fusiond import identity
from fusiond._missing import MissingPackageError, need, need_mlx
from fusiond.mlx_lm import Acceleration, accelerate
from fusiond.mlx_lm._acceleration import CHUNK_ROWS
from fusiond.mlx_lm._version import TESTED, warn_if_unknown
from fusiond.mlx_lm.transcript import Transcript, first_difference, largest_error, transcribe
from fusiond.units import Units

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "fusiond.ttft/1"
# Text is irrelevant for time; random tokens repeat nothing that a cache could know.
_SEED = 20_260_601
# Every vocabulary begins with so many plain tokens.
_LARGEST_TOKEN = 256
# Decode steps of a round that are timed one by one: stock, accelerated, accelerated, stock, and so on. Whole transcripts are too far apart to tell half a percent.
_QUADRUPLES = 16


class Bench:
    """One model, ready to be asked with and without acceleration."""

    def __init__(self, model: Any, tokenizer: Any, acceleration: Acceleration, tokens: int) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._acceleration, self._tokens = acceleration, tokens

    def length(self, prompt_tokens: int, rounds: int) -> dict[str, Any]:
        """Rounds of an accelerated call between two of stock, whose places alternate; a round before them only warms up."""
        random.seed(_SEED + prompt_tokens)
        prompt = [
            random.randrange(min(_LARGEST_TOKEN, len(self._tokenizer.vocab))) for _ in range(prompt_tokens)
        ]
        warm = self._round(prompt, stock_first=True)
        _progress(f"{prompt_tokens} tokens: warm")
        measured = []
        for number in range(rounds):
            measured.append(self._round(prompt, stock_first=number % 2 == 0))
            _progress(f"{prompt_tokens} tokens: round {number + 1} of {rounds}")
        stock, accelerated = warm["transcripts"]
        errors = [largest_error(*one["transcripts"]) for one in (warm, *measured)]
        difference = first_difference(stock, accelerated)
        return {
            "prompt_tokens": prompt_tokens,
            "rounds": [
                {name: value for name, value in one.items() if name != "transcripts"} for one in measured
            ],
            "prompt": prompt,
            "transcripts": {"stock": self._verbatim(stock), "accelerated": self._verbatim(accelerated)},
            "repeatable": {
                name: all(
                    one["transcripts"][place].tokens == warm["transcripts"][place].tokens for one in measured
                )
                for place, name in enumerate(("stock", "accelerated"))
            },
            "largest_error": max(errors),
            "first_difference": None if difference is None else vars(difference),
            # The last token is no part of the chunk.
            "explanation": self._acceleration.explain(prompt_tokens - 1),
        }

    def _verbatim(self, transcript: Transcript) -> dict[str, Any]:
        return {"tokens": transcript.tokens, "text": self._tokenizer.decode(transcript.tokens)}

    def _round(self, prompt: list[int], *, stock_first: bool) -> dict[str, Any]:
        first = self._stock(prompt)
        accelerated, chunks = self._accelerated(prompt)
        last = self._stock(prompt)
        stock, again = (first, last) if stock_first else (last, first)
        return {
            "stock_first": stock_first,
            "stock": _sample(stock),
            "accelerated": {**_sample(accelerated), "chunks": chunks},
            # Stock beside stock: how far two calls of the same thing are apart, here and now.
            "stock_again": _sample(again),
            "decode_steps_ms": self._decode_steps(prompt),
            "transcripts": (stock, accelerated),
        }

    def _decode_steps(self, prompt: list[int]) -> list[list[float]]:
        """Steps after the prompt, in quadruples: stock, accelerated, accelerated, stock. What drifts, drifts for both. Times in ms."""
        mx = need_mlx()
        caches = need("mlx_lm.models.cache", "mlx-lm", "to keep keys and values")
        cache = caches.make_prompt_cache(self._model)
        mx.eval(self._model(mx.array([prompt[:CHUNK_ROWS]]), cache=cache))
        token = mx.array([prompt[:1]])

        def step(call: Any) -> float:
            start = time.perf_counter()
            mx.eval(call(token, cache=cache))
            return (time.perf_counter() - start) * 1e3

        stock, accelerated = self._acceleration.call_stock, self._model
        # The first of each finds nothing in the processor's caches.
        for call in (stock, accelerated):
            step(call)
        turns = (stock, accelerated, accelerated, stock)
        return [[step(call) for call in turns] for _ in range(_QUADRUPLES)]

    def _stock(self, prompt: list[int]) -> Transcript:
        with self._acceleration.suspended():
            return transcribe(self._model, prompt, self._tokens)

    def _accelerated(self, prompt: list[int]) -> tuple[Transcript, dict[str, int]]:
        before = self._acceleration.chunks
        transcript = transcribe(self._model, prompt, self._tokens)
        after = self._acceleration.chunks
        return transcript, {arm: count - before.get(arm, 0) for arm, count in after.items()}


def _sample(transcript: Transcript) -> dict[str, Any]:
    return {
        "first_token_ms": transcript.first_seconds * 1e3,
        "decode_tokens_per_second": transcript.decode_tokens_per_second,
    }


def _progress(text: str) -> None:
    print(f"ttft: {text}", file=sys.stderr, flush=True)


def _environment() -> dict[str, Any]:
    """What can be read without asking the daemon; null where the system says nothing."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_average": list(os.getloadavg()),
        "available_memory_bytes": _available_memory(),
        "power": _power(),
        "battery_percent": _battery(),
        "thermal": _thermal(),
    }


def _available_memory() -> int | None:
    with contextlib.suppress(OSError, StopIteration), open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    return None


def _supplies(kind: str) -> Iterator[Path]:
    for supply in Path("/sys/class/power_supply").glob("*"):
        with contextlib.suppress(OSError):
            if (supply / "type").read_text().strip() == kind:
                yield supply


def _power() -> str | None:
    if sys.platform == "darwin":
        said = identity._said("/usr/bin/pmset", "-g", "batt")
        return "AC" if "AC Power" in said else "battery" if "Battery Power" in said else None
    if sys.platform != "linux":
        return None
    for battery in _supplies("Battery"):
        with contextlib.suppress(OSError):
            return "battery" if (battery / "status").read_text().strip() == "Discharging" else "AC"
    return "AC"


def _battery() -> int | None:
    for battery in _supplies("Battery"):
        with contextlib.suppress(OSError, ValueError):
            return int((battery / "capacity").read_text())
    return None


def _thermal() -> str | None:
    """On macOS what pmset says; on Linux the hottest zone, in degrees."""
    if sys.platform == "darwin":
        return identity._said("/usr/bin/pmset", "-g", "therm").strip() or None
    degrees = []
    for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            degrees.append(int(zone.read_text()) / 1000)
    return f"{max(degrees):.0f} C" if degrees else None


def _revision() -> str | None:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measures every length, and says where and with what."""
    utils: Any = need("mlx_lm.utils", "mlx-lm", "to load a model")
    model, tokenizer = utils.load(arguments.model)[:2]
    start = _environment()
    acceleration = accelerate(
        model, name="fusionctl bench ttft", socket=arguments.socket, state_directory=arguments.state_dir
    )
    bench = Bench(model, tokenizer, acceleration, arguments.tokens)
    lengths = [bench.length(length, arguments.rounds) for length in arguments.prompt_tokens]
    units = Units()
    return {
        "schema": SCHEMA,
        "model": str(arguments.model),
        "workload": acceleration.workload,
        "layers": {
            path: f"{layer.inputs}x{layer.outputs} {layer.format}"
            for path, layer in acceleration.layers.items()
        },
        "left_alone": acceleration.left_alone,
        "basis": acceleration.attachment.basis,
        "conditions": acceleration.attachment.conditions,
        "tokens": arguments.tokens,
        "hardware": vars(identity.hardware()),
        "pair": units.pair,
        "units": units.description,
        "engine": identity.engine()._asdict(),
        "versions": {
            "fusiond-client": fusiond.__version__,
            "mlx-lm": warn_if_unknown(),
            "mlx-lm tested": TESTED,
            "python": platform.python_version(),
            "system": platform.platform(),
        },
        "git_revision": _revision(),
        "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS"),
        "start": start,
        "end": _environment(),
        "lengths": lengths,
    }


def _lengths(text: str) -> list[int]:
    lengths = [int(part) for part in text.split(",")]
    if not lengths or min(lengths) < 2:
        raise argparse.ArgumentTypeError("a prompt has at least 2 tokens")
    return lengths


def main() -> int:
    """Prints the document."""
    parser = argparse.ArgumentParser(
        prog="python -m fusiond.mlx_lm.ttft", description="Time to first token, stock and accelerated."
    )
    parser.add_argument("--model", required=True, help="a model's folder, or its name on Hugging Face")
    parser.add_argument(
        "--prompt-tokens", type=_lengths, default=[512, 2048, 4096], help="lengths, with commas between"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="rounds: an accelerated call between two of stock"
    )
    parser.add_argument("--tokens", type=int, default=32, help="tokens generated in each call")
    parser.add_argument("--socket", help="where the daemon listens")
    parser.add_argument("--state-dir", help="where the daemon keeps its state")
    arguments = parser.parse_args()
    # Whatever a library prints: standard output is for the document.
    document, sys.stdout = sys.stdout, sys.stderr
    try:
        result = run(arguments)
    except MissingPackageError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(result, document)
    document.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
