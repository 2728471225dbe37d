"""Makes a random Llama-style model with a byte tokenizer, and a quantised copy: ``python random_model.py FOLDER``.

Nothing is downloaded. The weights are noise, so the text is too; what is tested is that it is the same noise. FOLDER gets ``f32`` and ``q4``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BYTES = 256
END_OF_TEXT = BYTES


def config(*, hidden: int = 1024, blocks: int = 4, widening: int = 4) -> dict[str, Any]:
    """Llama-3.2-1B's proportions: heads of 64, four queries for a key, a feed-forward part ``widening`` times as wide (4). A width of 1024 is half of it."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "num_hidden_layers": blocks,
        "intermediate_size": widening * hidden,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": max(1, hidden // 256),
        "rms_norm_eps": 1e-5,
        "vocab_size": BYTES + 64,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "eos_token_id": END_OF_TEXT,
        "bos_token_id": None,
    }


def make(folder: Path, **geometry: int) -> tuple[Path, Path]:
    """Makes both models under ``folder``, and says where."""
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama

    about = config(**geometry)
    mx.random.seed(7)
    model = llama.Model(llama.ModelArgs.from_dict(about))
    mx.eval(model.parameters())
    plain, quantised = folder / "f32", folder / "q4"
    _write(plain, about, dict(tree_flatten(model.parameters())))
    nn.quantize(model, group_size=64, bits=4)
    about["quantization"] = {"group_size": 64, "bits": 4}
    _write(quantised, about, dict(tree_flatten(model.parameters())))
    return plain, quantised


def _write(folder: Path, about: dict[str, Any], weights: dict[str, Any]) -> None:
    import mlx.core as mx

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(about, indent=1))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    _write_tokenizer(folder)


def _write_tokenizer(folder: Path) -> None:
    """Bytes are tokens: a byte-level BPE without merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[])
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "model_max_length": 8192}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))


if __name__ == "__main__":
    for made in make(Path(sys.argv[1])):
        print(made)
