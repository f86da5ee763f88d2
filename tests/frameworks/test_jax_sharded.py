"""JAX's products over several devices, in programs for several platforms, and under strict rules of promotion.

Oracle: jnp.matmul and its derivatives, on integers that float64 holds exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gemmulate as gm
from matmul.inputs import floats

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

BITS = gm.Bits(54)

_BEGIN = """
import functools
import jax, jax.numpy as jnp, numpy as np
import gemmulate as gm
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(1)
make = lambda *shape: jnp.asarray(rng.integers(-4, 5, shape).astype(float))
products = (gm.matmul, functools.partial(gm.matmul, accuracy=gm.Bits(54), engine="jax"))
derivatives = lambda product: jax.grad(lambda x, y: product(product(x, y), x).sum(), (0, 1))

def check(got, want):
    for x, y in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype and (np.asarray(x) == np.asarray(y)).all()
"""

_MAPPED = """
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
a, b = make(4, 6), make(6, 3)
total = lambda product: lambda x, y: product(x, y).sum()
want, gradients = a @ b, jax.grad(total(jnp.matmul), (0, 1))(a, b)
for product in products:
    for checked in (True, False):
        over = functools.partial(jax.shard_map, mesh=mesh, check_vma=checked)
        rows = over(product, in_specs=(P("d"), P()), out_specs=P("d"))
        sums = over(lambda x, y: jax.lax.psum(product(x, y), "d"), in_specs=(P(None, "d"), P("d")), out_specs=P())
        for mapped in (rows, sums):
            check(jax.jit(mapped)(a, b), want)
            check(jax.jit(jax.grad(total(mapped), (0, 1)))(a, b), gradients)
            check(jax.jit(lambda x, y: jax.jvp(mapped, (x, y), (x, y)))(a, b), (want, 2 * want))
    different = jax.shard_map(product, mesh=mesh, in_specs=(P("d"), P()), out_specs=P())
    try:
        jax.jit(different)(a, b)
    except ValueError as error:
        assert "out_specs" in str(error)
    else:
        raise AssertionError("the devices' results differ, and were taken as one")
"""

_EXPLICIT = """
mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))
a, b, c = make(4, 6, 5), make(5, 6), make(4, 5, 6)
spread = [jax.device_put(x, NamedSharding(mesh, P("d"))) for x in (a, c)]
for product in products:
    check(jax.jit(product)(spread[0], b), a @ b)
    with jax.set_mesh(mesh):
        check(jax.jit(jax.vmap(product))(*spread), a @ c)
        check(jax.jit(derivatives(product))(spread[0], b), derivatives(jnp.matmul)(a, b))
        check(jax.jit(derivatives(product))(*spread), derivatives(jnp.matmul)(a, c))
"""


@pytest.mark.parametrize("script", [_MAPPED, _EXPLICIT], ids=["shard_map", "explicit"])
def test_shards(script: str) -> None:
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    subprocess.run([sys.executable, "-c", _BEGIN + script], check=True, env=environment)


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.usefixtures("x64")
def test_programs_for_several_platforms() -> None:
    """With 64-bit types on: such a program's index of the platform has the width that is set, within and without."""
    x = jnp.ones((3, 3), dtype=jnp.float32)
    named = jax.jit(lambda x: gm.matmul(x, x, accuracy=BITS, engine="jax"))
    for product, platforms in (
        (named, ("cpu", "cuda")),
        (named, ("rocm", "cpu")),
        (jax.jit(lambda x: gm.matmul(x, x, accuracy=BITS)), ("cpu", "cuda")),
    ):
        exported = jax.export.export(product, platforms=platforms)(x)
        assert exported.platforms == platforms
        assert "callback" not in exported.mlir_module()
    np.testing.assert_array_equal(jax.export.export(named, platforms=("cpu", "cuda"))(x).call(x), np.full((3, 3), 3.0))
    with pytest.raises(ValueError, match='engine = "jax" cannot run on a TPU'):
        jax.export.export(named, platforms=("cpu", "tpu"))(x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("engine", [None, "jax"])
def test_strict_rules_are_the_callers(dtype: Any, engine: str | None) -> None:
    rng = np.random.default_rng(7)
    parts = [floats(rng, (2, 3, 4), -9, 9, "float64"), floats(rng, (2, 3, 4), -9, 9, "float64")]
    a = (parts[0] + 1j * parts[1] if dtype == "complex64" else parts[0]).astype(dtype)
    b = np.ascontiguousarray(a[0].T)
    want = gm.matmul(a, b, accuracy=BITS)
    strict = jax.numpy_dtype_promotion("strict"), jax.numpy_rank_promotion("raise"), jax.transfer_guard("disallow")
    with jax.enable_x64(True):
        x, y = jnp.asarray(a), jnp.asarray(b)
        with strict[0], strict[1], strict[2]:
            got = jax.jit(lambda x, y: gm.matmul(x, y, accuracy=BITS, engine=engine))(x, y)
    assert np.asarray(got).tobytes() == want.tobytes()
