"""Who measures, and with what: this machine's hardware and this process's MLX.

The same facts in the same form as the daemon's own worker reports, so that both name one chip, and one engine where they
hold the same library. macOS: not run by us.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

from fusiond._attach import Engine
from fusiond._missing import need_mlx

# Files whose code computes MLX's products. NumPy brings a BLAS of another name along, which MLX never calls: whether it is loaded says nothing.
_COMPUTES = frozenset({"libmlx.so", "libscipy_openblas.so"})
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Hardware:
    """What the system says of the machine; "unknown" where it says nothing."""

    brand: str
    gpu_cores: int | None
    memory_bytes: int
    model_identifier: str


def hardware() -> Hardware:
    """The machine."""
    return _macos_hardware() if sys.platform == "darwin" else _linux_hardware()


def engine() -> Engine:
    """What picks the code of a product in this process. Loads MLX.

    The library hash is a CRC-32 over whole files, in the order of their names.
    """
    mx = need_mlx()
    os_build = _sysctl("kern.osversion") if sys.platform == "darwin" else platform.release()
    checksum = 0
    files = _engine_files(Path(str(mx.__file__)))
    for file in files:
        with file.open("rb") as content:
            while piece := content.read(_PIECE_BYTES):
                checksum = zlib.crc32(piece, checksum)
    library_hash = f"{checksum:08x}" if files else "none"
    return Engine(os_build or "unknown", str(mx.__version__), library_hash)


def _engine_files(mlx_core: Path) -> list[Path]:
    """On Linux whatever is mapped, a BLAS that was preloaded too; on macOS MLX's library and its Metal kernels."""
    if sys.platform == "darwin":
        folder = mlx_core.parent / "lib"
        return [file for file in (folder / "libmlx.dylib", folder / "mlx.metallib") if file.is_file()]
    return engine_libraries(_text("/proc/self/maps"))


def engine_libraries(maps: str) -> list[Path]:
    """The files in ``/proc/self/maps`` whose code computes products, sorted by name: where they lie changes no product."""
    paths = {Path(line[line.index("/") :]) for line in maps.splitlines() if "/" in line}
    return sorted((path for path in paths if path.name in _COMPUTES), key=lambda path: (path.name, path))


def _linux_hardware() -> Hardware:
    brand = re.search(r"^model name\s*:\s*(.+)$", _text("/proc/cpuinfo"), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s*(\d+) kB$", _text("/proc/meminfo"), re.MULTILINE)
    return Hardware(
        brand=brand[1].strip() if brand else "unknown",
        gpu_cores=None,
        memory_bytes=int(memory[1]) * 1024 if memory else 0,
        model_identifier=_text("/sys/class/dmi/id/product_name").strip() or "unknown",
    )


def _macos_hardware() -> Hardware:
    cores = re.search(
        r'"gpu-core-count"\s*=\s*(\d+)', _said("/usr/sbin/ioreg", "-rc", "AGXAccelerator", "-d", "1")
    )
    return Hardware(
        brand=_sysctl("machdep.cpu.brand_string") or "unknown",
        gpu_cores=int(cores[1]) if cores else None,
        memory_bytes=int(_sysctl("hw.memsize") or 0),
        model_identifier=_sysctl("hw.model") or "unknown",
    )


def _sysctl(name: str) -> str:
    return _said("/usr/sbin/sysctl", "-n", name).strip()


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
