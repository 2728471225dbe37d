"""What a model said, token by token, and how two transcripts differ."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fusiond._missing import need, need_mlx

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Transcript:
    """A greedy continuation of one prompt."""

    tokens: list[int]
    # Of each step, the logarithms of all tokens' probabilities: arrays of MLX.
    logprobs: list[Any]
    # Until the first token was there, in s.
    first_seconds: float
    # From the first token to the last, in s.
    rest_seconds: float

    @property
    def decode_tokens_per_second(self) -> float | None:
        """None of a single token."""
        return (len(self.tokens) - 1) / self.rest_seconds if len(self.tokens) > 1 else None


@dataclass(frozen=True)
class Difference:
    """Where two transcripts part."""

    step: int
    stock_token: int
    other_token: int
    # How much likelier the first transcript holds its own token than the other's, as a difference of logarithms.
    gap: float


def transcribe(model: Any, prompt: Sequence[int], tokens: int, **options: Any) -> Transcript:
    """The model's greedy continuation by ``tokens`` tokens, as mlx-lm generates it. The end of the text is no end here."""
    mx = need_mlx()
    generate = need("mlx_lm.generate", "mlx-lm", "to generate text")
    said: list[int] = []
    logprobs: list[Any] = []
    start = first = last = time.perf_counter()
    for token, logprob in generate.generate_step(mx.array(list(prompt)), model, max_tokens=tokens, **options):
        last = time.perf_counter()
        first = first if said else last
        said.append(int(token))
        logprobs.append(logprob)
    mx.eval(logprobs)
    return Transcript(said, logprobs, first - start, last - first)


def first_difference(stock: Transcript, other: Transcript) -> Difference | None:
    """The first step at which two transcripts of one prompt say another token; None if they say the same."""
    for step, (ours, theirs) in enumerate(zip(stock.tokens, other.tokens, strict=True)):
        if ours != theirs:
            known = stock.logprobs[step]
            return Difference(step, ours, theirs, float((known[ours] - known[theirs]).item()))
    return None


def largest_error(stock: Transcript, other: Transcript) -> float:
    """The largest difference of a logarithm at the first step, where both have read the same: what splitting the prompt's products did to it."""
    mx = need_mlx()
    one, two = stock.logprobs[0].astype(mx.float32), other.logprobs[0].astype(mx.float32)
    return float(mx.abs(one - two).max().item())
