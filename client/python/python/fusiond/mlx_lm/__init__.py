"""Faster first tokens with MLX-LM: the prefill's products are shared between GPU and CPU, with the shares that fusiond keeps.

::

    from mlx_lm import generate, load
    from fusiond.mlx_lm import accelerate

    model, tokenizer = load("mlx-community/Qwen2.5-7B-Instruct-bf16")
    accelerate(model)
    print(generate(model, tokenizer, prompt))

Only this model is changed, ``undo`` takes everything back, and without a daemon everything runs as before.
"""

from fusiond.mlx_lm._acceleration import Acceleration, accelerate, accelerated
from fusiond.mlx_lm._version import UnknownVersionWarning

__all__ = ["Acceleration", "UnknownVersionWarning", "accelerate", "accelerated"]
