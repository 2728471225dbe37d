"""What is not installed is said only when it is needed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


class MissingPackageError(ImportError):
    """A package that this part of fusiond needs is not installed."""


def need(module: str, package: str, what_for: str) -> ModuleType:
    """Imports ``module``.

    Raises:
        MissingPackageError: If it isn't there, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(
            f"fusiond needs {module} {what_for}, and it can't be imported ({error}): pip install {package}",
            name=module,
        ) from error


def need_mlx() -> ModuleType:
    """MLX's core, or who installs it."""
    return need("mlx.core", "mlx", "to run products (on Linux: 'mlx[cpu]')")
