"""Which engine multiplies tensors of a device by default: the first that proves itself there."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Array
from gemmulate.errors import EngineUnavailable
from gemmulate.schemes.accuracy import Bits


@lru_cache(maxsize=64)
def trusted_engine(device: str, names: tuple[str, ...]) -> str:
    """The first of these engines that runs on the device and gives the host's bits there, tried on a few products once.

    A driver, compiler or device that gets a kernel wrong costs speed then, not results. A warning names every engine
    that was passed over for another reason than not being there; EngineUnavailable where none is left. MemoryError: the
    device has no room for these products; the next call tries them again.
    """
    from gemmulate.engines.torch_array import as_tensor, capturing

    if capturing():
        raise RuntimeError(
            f"no engine has been tried on {device} yet, and none can be while a CUDA graph is captured; multiply once "
            "before the capture"
        )
    left: list[str] = []
    for name in names:
        try:
            get_engine(name)
        except EngineUnavailable as error:
            left.append(str(error))
            continue
        try:
            wrong = next(
                (
                    kind
                    for kind, x, y, options in _trials()
                    if not _agrees(as_tensor(x), as_tensor(y), device, name, options)
                ),
                None,
            )
            reason = None if wrong is None else f"its {wrong} product differs from the host's"
        except MemoryError:
            raise  # it says nothing of the engine, whose name would be passed over for good
        except Exception as error:  # whatever a compiler or driver raises: another engine may still work
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            return name
        left.append(f"{name}: {reason}")
        warnings.warn(f"engine {name} is not used on {device}: {reason}", RuntimeWarning, stacklevel=2)
    raise EngineUnavailable(f'no engine runs on {device} ({"; ".join(left)}); engine="native" goes by the host')


def _trials() -> Iterator[tuple[str, Array, Array, dict[str, Any]]]:
    """Products large enough to take the residues' way, with wide exponents and cancellation."""
    rng = np.random.default_rng(20261130)
    x, y = (rng.standard_normal(s) * 2.0 ** rng.integers(-20, 20, s) for s in ((70, 150), (150, 70)))
    y[75:] = -y[:75] * (1 + 2.0**-30)
    x[:, 75:] = x[:, :75]
    for accuracy in ("fast", "fp64", "exact"):
        yield f"float64 {accuracy}", x, y, {"accuracy": accuracy}
    special = x.copy()
    special[0], special[1], special[2, 3:5], special[3, 4], special[4, 5] = 0.0, -0.0, np.inf, -np.inf, np.nan
    yield "float64 Bits(54)", special, y, {"accuracy": Bits(54)}
    # Beyond the depth and the size that Triton's kernels fuse.
    yield "deep float64", np.tile(x, 3), np.tile(y, (3, 1)), {}
    yield "deep float64 Bits(54)", np.tile(x, 3), np.tile(y, (3, 1)), {"accuracy": Bits(54)}
    # Depths that nothing has to fill up, whole blocks of Triton's, and planes of an odd number of 8 bytes.
    for depth in (256, 264):
        yield f"float64, depth {depth},", np.tile(x, 2)[:69, :depth], np.tile(y, (2, 1))[:depth], {}
    yield "float32", x.astype(np.float32), y.astype(np.float32), {}
    i, j = (rng.integers(-(2**27), 2**27, s) for s in ((70, 150), (150, 70)))
    yield "int64", i, j, {}
    yield "deep int64", np.tile(i, 3), np.tile(j, (3, 1)), {}
    yield "vector", x[:1], y, {}
    yield "modular", i, j, {"modulus": 2**61 - 1}
    yield "int8", i.astype(np.int8), j.astype(np.int8), {}


def _agrees(x: Any, y: Any, device: str, engine: str, options: dict[str, Any]) -> bool:
    """Whether the engine gives the host's result, bit for bit."""
    from gemmulate.plan.matmul import matmul

    there = matmul(x.to(device), y.to(device), engine=engine, **options).cpu().numpy()
    here = matmul(x.numpy(), y.numpy(), **options)
    return bool(there.dtype == here.dtype and there.tobytes() == here.tobytes())
