"""The two units, and the split that measuring and inference share."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import mlx.core as mx
import pytest
from fusiond import identity
from fusiond.units import FinishTimes, ThreadUnits, Units, choose_cores


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
@pytest.mark.parametrize("outputs", [96, 97])
@pytest.mark.parametrize("shape", [(64, 48), (2, 32, 48)])
def test_a_split_is_the_product(dtype: mx.Dtype, outputs: int, shape: tuple[int, ...]) -> None:
    units = Units(development=True)
    with units.as_default():
        rows = mx.random.normal(shape, key=mx.random.key(1)).astype(dtype)
        weight = mx.random.normal((outputs, 48), key=mx.random.key(2)).astype(dtype)
        mx.eval(rows, weight)
        whole = rows.reshape(-1, 48) @ weight.T
        for secondary_rows in (1, 17, 63):
            joined = units.join(*units.split(lambda part: part @ weight.T, rows, secondary_rows))
            timed, times = units.split_timed(
                lambda part: part @ weight.T, rows, secondary_rows, secondary_first=True
            )
            assert joined.dtype == dtype
            assert mx.allclose(joined, whole, rtol=1e-2, atol=1e-2)
            assert mx.array_equal(joined, timed)
            assert 0 < times.secondary_ns <= times.primary_ns <= times.total_ns


def test_units_are_waited_for_first_in_turn_unless_one_is_behind() -> None:
    def after(primary_ns: int, secondary_ns: int, *, secondary_first: bool) -> bool:
        return FinishTimes(2000, primary_ns, secondary_ns).secondary_first_next(
            secondary_first=secondary_first
        )

    # Hidden, or behind by no more than noise.
    assert after(1000, 1001, secondary_first=False)
    assert after(1000, 1030, secondary_first=False)
    assert not after(1001, 1000, secondary_first=True)
    # Waited for first, the one behind would hide the other.
    assert not after(1000, 1100, secondary_first=False)
    assert after(1100, 1000, secondary_first=True)


def test_each_thread_has_units_of_its_own() -> None:
    units, found = ThreadUnits(), []
    thread = threading.Thread(target=lambda: found.append(units.get()))
    thread.start()
    thread.join()
    assert found[0] is not units.get()
    assert units.get() is units.get()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux pins threads")
def test_a_development_pair_says_so_and_has_threads() -> None:
    units = Units(development=True)
    assert units.pair == "development"
    assert "stand in for GPU and CPU" in units.description
    before = units.run_delay_ns()
    assert before is not None
    units.drain()
    after = units.run_delay_ns()
    assert after is not None
    assert after >= before


def test_different_physical_cores_come_first() -> None:
    def hyper_threads(core: int) -> set[int]:
        return {core & ~1, core | 1}

    assert choose_cores([0, 1, 2, 3], hyper_threads) == (0, 2)
    assert choose_cores([4, 5], hyper_threads) == (4, 5)
    assert choose_cores([3], hyper_threads) is None


def test_only_what_computes_is_part_of_the_engine() -> None:
    maps = (
        "7f00-7f01 r-xp 00000000 08:01 42   /opt/my code/lib/libmlxc.so\n"
        "7f02-7f03 r-xp 00000000 08:01 43   /opt/my code/a/libmlx.so\n"
        "7f02-7f03 r--p 00000000 08:01 43   /opt/my code/a/libmlx.so\n"
        "7f02-7f03 r-xp 00000000 08:01 45   /opt/b/libscipy_openblas.so\n"
        "7f02-7f03 r-xp 00000000 08:01 46   /opt/numpy.libs/libscipy_openblas64_-32a4b2a6.so\n"
        "7f04-7f05 rw-p 00000000 00:00 0    [heap]\n"
    )
    assert identity.engine_libraries(maps) == [
        Path("/opt/my code/a/libmlx.so"),
        Path("/opt/b/libscipy_openblas.so"),
    ]
    assert identity.engine() == identity.engine()
