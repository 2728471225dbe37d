"""What the tests share: this checkout's programs, a daemon in a place of its own, and random models."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(os.environ.get("FUSION_PROGRAMS", ROOT / "target" / "debug"))
# Nothing here takes longer, on however busy a machine.
PATIENCE_SECONDS = 60.0


def program(name: str) -> Path:
    """A program of this checkout; without it the test is skipped, unless all are required."""
    path = PROGRAMS / name
    if not path.exists():
        if os.environ.get("FUSION_REQUIRE_PROGRAMS"):
            pytest.fail(f"{path} is missing: cargo build -p fusiond -p fusionctl -p fusion-worker")
        pytest.skip(f"{path} is not built")
    return path


def eventually(what: str, condition: Callable[[], bool]) -> None:
    """Waits until something holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)


class Daemon:
    """A daemon in a folder of its own, with a worker that is a script of ours."""

    def __init__(self, folder: Path, worker: Path, configuration: str = "") -> None:
        self.socket = folder / "run" / "fusiond.sock"
        self.state = folder / "state"
        (self.state / "config").mkdir(parents=True)
        (self.state / "config" / "config.toml").write_text(configuration)
        sensors = folder / "sensors.toml"
        sensors.write_text("power = 'ac'\ncpu_pressure = 0.0\n")
        self.log = folder / "daemon.log"
        self._command = [
            str(program("fusiond")),
            *("--socket", str(self.socket), "--state-dir", str(self.state), "--worker", str(worker)),
            *("--measuring-lock", str(folder / "lock"), "--sensors", f"scripted:{sensors}"),
        ]
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually("the daemon's socket", lambda: self.process.poll() is not None or self.socket.exists())
        assert self.process.poll() is None, self.log.read_text()
        return self.process

    def control(self, *arguments: str) -> str:
        command = [str(program("fusionctl")), "--socket", str(self.socket), "--quiet", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def script(path: Path, module: str, *arguments: str) -> Path:
    """An executable file that runs a module with this interpreter and its search path."""
    tests = Path(__file__).parent
    search = os.pathsep.join([str(tests), *filter(None, sys.path)])
    words = " ".join(f'"{word}"' for word in (sys.executable, "-m", module, *arguments))
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{search}" exec {words}\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts a daemon; its worker says whatever shares it is told to."""
    started: list[Daemon] = []

    def start(
        secondary_ns_per_row: int | str = 10_000, configuration: str = "", library_hash: str = ""
    ) -> Daemon:
        arguments = [str(secondary_ns_per_row), *filter(None, [library_hash])]
        worker = script(tmp_path / "worker", "scripted_worker", *arguments)
        started.append(Daemon(tmp_path, worker, configuration))
        return started[-1]

    yield start
    for daemon in started:
        daemon.kill()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A random model of 4 blocks, and a quantised copy. Its feed-forward part is half as wide as Llama's: products take most of the tests' time."""
    import random_model

    return random_model.make(tmp_path_factory.mktemp("models"), widening=2)
