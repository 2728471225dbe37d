"""Which mlx-lm this was tested with."""

from __future__ import annotations

import importlib.metadata
import warnings

# What holds of these: a prefill chunk is a call of the model with a cache, after which only the cache is evaluated; blocks are `model.layers`.
TESTED = "0.32"


class UnknownVersionWarning(UserWarning):
    """The installed mlx-lm is another than the tested one."""


def warn_if_unknown() -> str | None:
    """The installed version; None without one. Another minor version than the tested one is said, and used all the same."""
    try:
        version = importlib.metadata.version("mlx-lm")
    except importlib.metadata.PackageNotFoundError:
        return None
    if not (version == TESTED or version.startswith(TESTED + ".")):
        warnings.warn(
            f"fusiond was tested with mlx-lm {TESTED}, this is {version}: results stay right, "
            "but whether it is faster, nobody has measured",
            UnknownVersionWarning,
            stacklevel=3,
        )
    return version
