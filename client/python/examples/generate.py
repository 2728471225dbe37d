"""Generates text with an accelerated model: ``python generate.py MODEL PROMPT``."""

import sys

from fusiond.mlx_lm import accelerated
from mlx_lm import load, stream_generate


def main(name: str, prompt: str) -> None:
    """Prints the text as it comes, and what became of the prefill."""
    model, tokenizer = load(name)
    with accelerated(model) as acceleration:
        for response in stream_generate(model, tokenizer, prompt, max_tokens=64):
            print(response.text, end="", flush=True)
        print(f"\n{acceleration!r}; prefill chunks: {acceleration.chunks}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
