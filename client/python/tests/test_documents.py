"""What the documents tell people to type works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx_lm
import pytest
from conftest import ROOT

EXAMPLES = Path(__file__).parents[1] / "examples"
DOCUMENTS = [ROOT / "README.md", ROOT / "client" / "python" / "README.md"]


def blocks(document: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.parent.name)
def test_the_python_lines_of_a_document_run(
    document: Path, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = blocks(document)
    assert found, f"{document} has no Python lines"
    real, loaded = mlx_lm.load, []

    def load(name: str, *arguments: Any, **options: Any) -> Any:
        # The document names a published model; nothing is downloaded here.
        loaded.append(name)
        return real(str(models[0]), *arguments, **options)

    monkeypatch.setattr(mlx_lm, "load", load)
    monkeypatch.setenv("FUSION_SOCKET", str(tmp_path / "none.sock"))
    for block in found:
        exec(compile(block, str(document), "exec"), {"__name__": "__main__"})
    assert loaded


@pytest.mark.parametrize("example", ["generate.py", "server.py"])
def test_an_example_runs(example: str, models: tuple[Path, Path]) -> None:
    command = [sys.executable, str(EXAMPLES / example), str(models[0]), "Once upon a time " * 5]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Acceleration of 23 layers" in done.stderr
