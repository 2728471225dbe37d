"""What a bare interpreter must be able to do with an installed wheel: ``python smoke.py``. No MLX, no daemon, no pytest."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import fusiond
from fusiond.units import Units


def main() -> None:
    layer = fusiond.Layer(896, 4864, "f16")
    with tempfile.TemporaryDirectory() as folder:
        attachment = fusiond.attach(
            "smoke", [layer], socket=Path(folder, "none.sock"), state_directory=Path(folder)
        )
        assert attachment.basis == "stock"
        assert attachment.secondary_rows(0, 2048) == 0
    if importlib.util.find_spec("mlx") is None:
        missing = ""
        try:
            Units()
        except ImportError as error:
            missing = str(error)
        assert "pip install mlx" in missing
    print(f"fusiond-client {fusiond.__version__}: {layer!r}, {attachment.basis}")


if __name__ == "__main__":
    main()
