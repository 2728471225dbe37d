"""The extension: attaching, asking, and surviving a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fusiond
import pytest
import smoke
from conftest import Daemon, eventually, script

LAYER = fusiond.Layer(896, 4864, "f32")


def nobody(tmp_path: Path) -> fusiond.Attachment:
    return fusiond.attach("a test", [LAYER], socket=tmp_path / "none.sock", state_directory=tmp_path)


def attach(daemon: Daemon) -> fusiond.Attachment:
    from fusiond import identity

    return fusiond.attach(
        "a test",
        [LAYER],
        socket=daemon.socket,
        state_directory=daemon.state,
        engine=identity.engine(),
        limit_seconds=30,
    )


def test_the_package_imports_without_mlx_and_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ImportError('no MLX here')")
    code = (
        "import sys, fusiond, fusiond.mlx_lm, fusiond.worker\n"
        "assert not any(name.split('.')[0] in ('mlx', 'mlx_lm') for name in sys.modules), sys.modules\n"
        "from fusiond.units import Units\n"
        "try: Units()\n"
        "except ImportError as error: print(error)\n"
    )
    search = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install mlx" in done.stdout
    assert "no MLX here" in done.stdout


def test_without_a_daemon_everything_is_stock(tmp_path: Path) -> None:
    attachment = nobody(tmp_path)
    assert attachment.basis == "stock"
    assert attachment.conditions is None
    assert attachment.secondary_rows(0, 2048) == 0
    assert attachment.lines(0) is None
    region = attachment.region("a test", [(0, 4)], other_ms=1.0)
    with region.begin(2048) as call:
        assert (call.arm, call.explores) == ("eager", False)
    assert "nothing is known" in (region.explain(2048) or "")


def test_what_is_asked_of_a_fresh_wheel_holds_here(capsys: pytest.CaptureFixture[str]) -> None:
    smoke.main()
    assert "stock" in capsys.readouterr().out


def test_nonsense_is_refused_with_words(tmp_path: Path) -> None:
    attachment = nobody(tmp_path)
    with pytest.raises(ValueError, match="there is no layer 1"):
        attachment.secondary_rows(1, 512)
    with pytest.raises(ValueError, match="there is no layer 7"):
        attachment.region("a test", [(7, 1)])
    with pytest.raises(ValueError, match="total_ms is NaN"):
        attachment.observe(0, 512, 100, float("nan"), (1.0, 1.0), False)
    with pytest.raises(ValueError, match="unknown weight format"):
        fusiond.Layer(64, 64, "f8")
    with pytest.raises(ValueError, match="inputs is 0"):
        fusiond.Layer(0, 64, "f32")
    with pytest.raises(ValueError, match=r"relative\.sock"):
        fusiond.attach("a test", [], socket="relative.sock")
    with pytest.raises(ValueError, match="limit_seconds"):
        fusiond.attach("a test", [], limit_seconds=-1.0)


def test_a_call_ends_once_and_an_error_abandons_it(tmp_path: Path) -> None:
    region = nobody(tmp_path).region("a test", [(0, 1)])
    call = region.begin(512)
    call.end()
    with pytest.raises(RuntimeError, match="ended already"):
        call.abandon()
    before = region.explain(512)
    with pytest.raises(KeyError), region.begin(512):
        raise KeyError
    # One that nobody ended is given up with it.
    region.begin(512)
    assert region.explain(512) == before


def test_layers_are_values() -> None:
    assert fusiond.Layer(896, 4864, "float32") == LAYER
    assert len({LAYER, fusiond.Layer(896, 4864, "f32"), fusiond.Layer(896, 4864, "q4/64")}) == 2
    assert repr(LAYER) == 'Layer(896, 4864, "f32", "nk")'
    assert LAYER.working_set_bytes(512) == 4 * (512 * 896 + 896 * 4864 + 3 * 512 * 4864)
    assert 0 < LAYER.relative_error_bound < 1e-3


def test_a_daemon_answers_and_its_death_changes_nothing(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon(20_000)
    daemon.control("calibrate", "512x896x4864")
    attachment = attach(daemon)
    assert attachment.basis == "attached"
    rows = attachment.secondary_rows(0, 512)
    assert 165 <= rows <= 175, "a third of the rows for a unit that takes twice as long"
    lines = attachment.lines(0)
    assert lines is not None
    assert lines.secondary_ms_per_row == pytest.approx(0.02, rel=0.05)
    assert attachment.secondary_rows(0, fusiond.DECODE_ROWS) == 0
    region = attachment.region("a test", [(0, 1)])
    # Few rows would win little: lines alone decide for large calls only.
    assert region.arm(4096) == "split"
    assert attachment.observe(0, 512, rows, 3.5, (3.4, 3.4), True)
    daemon.kill()
    eventually("noticing", lambda: attachment.basis == "snapshot")
    assert attachment.secondary_rows(0, 512) == rows


def test_a_forked_child_attaches_anew_and_leaves_the_parent_alone(
    start_daemon: Callable[..., Daemon],
) -> None:
    daemon = start_daemon(20_000)
    daemon.control("calibrate", "512x896x4864")
    attachment = attach(daemon)
    region = attachment.region("a test", [(0, 1)])
    rows = attachment.secondary_rows(0, 512)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with region.begin(4096) as call:
                said = f"{call.arm} {attachment.basis} {attachment.secondary_rows(0, 512)}"
            os.write(write, said.encode())
            del region, attachment, call
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == f"split attached {rows}"
    assert os.waitpid(child, 0)[1] == 0
    assert (attachment.basis, attachment.secondary_rows(0, 512)) == ("attached", rows)
    assert region.arm(4096) == "split"


def test_a_program_of_ones_own_is_found(tmp_path: Path) -> None:
    # What other tests rest on: the script that stands in for a worker program starts.
    program = script(tmp_path / "program", "this", "argument")
    assert (
        "Beautiful is better"
        in subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    )
