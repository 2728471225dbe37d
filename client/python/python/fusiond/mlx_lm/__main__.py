"""``python -m fusiond.mlx_lm generate|chat|server ...``: mlx-lm's own commands, with accelerated models."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from fusiond._missing import MissingPackageError, need
from fusiond.mlx_lm import accelerate

if TYPE_CHECKING:
    from collections.abc import Callable

_USAGE = """usage: python -m fusiond.mlx_lm COMMAND ...

Runs 'mlx_lm COMMAND ...' with accelerated models. Commands are those of mlx_lm that load a model: generate, chat, server, cache_prompt, ...
All arguments are mlx_lm's own: python -m fusiond.mlx_lm generate --help"""


def accelerating(load: Callable[..., Any]) -> Callable[..., Any]:
    """mlx-lm's ``load``, with an accelerated model."""

    @functools.wraps(load)
    def accelerated_load(*args: Any, **kwargs: Any) -> Any:
        loaded = load(*args, **kwargs)
        print(f"fusiond: {accelerate(loaded[0])!r}", file=sys.stderr)
        return loaded

    return accelerated_load


def main(arguments: list[str]) -> int:
    """Runs a command of mlx-lm."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        print(_USAGE)
        return 0 if arguments else 2
    command, *rest = arguments
    try:
        need("mlx_lm", "mlx-lm", "to run its commands")
        module: Any = importlib.import_module(f"mlx_lm.{command}")
    except MissingPackageError as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError:
        print(f"mlx_lm has no command '{command}'\n{_USAGE}", file=sys.stderr)
        return 2
    if hasattr(module, "load"):
        # In this process, which is ours, and in that module only.
        module.load = accelerating(module.load)
    else:
        print(
            f"fusiond: this mlx_lm.{command} doesn't load models as it used to; it runs as it is",
            file=sys.stderr,
        )
    sys.argv = [f"fusiond.mlx_lm {command}", *rest]
    module.main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
