"""The peers: each function gives one as a `Peer`. Packages are imported when a row prepares them, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import Call, Peer, Published

SPECIFICATION = "the project's specification, measured by its authors on a 2-core AVX512-VNNI machine"


def numpy_matmul(dtype: Any, largest: int = 1 << 62, *, name: str = "", headline: bool = False) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        x, y = a.astype(dtype), b.astype(dtype)
        return lambda: x @ y

    return Peer(name or f"NumPy {np.dtype(dtype)}", prepare, largest, headline=headline)


def numpy_dgemm_remainder(modulus: int) -> Peer:
    """float64 holds every sum as long as k·(p−1)² < 2^53; conversions and remainder are part of the job."""

    def prepare(a: Any, b: Any, threads: int) -> Call:
        if a.shape[1] * (modulus - 1) ** 2 >= 2**53:
            raise ValueError(f"float64 does not hold the sums of {a.shape[1]} products modulo {modulus}")
        return lambda: np.remainder((a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64), modulus)

    return Peer("NumPy DGEMM, remainder", prepare)


def numpy_dgemm_exact(bits: int) -> Peer:
    """float64 holds every sum as long as k·2^(2·bits−2) ≤ 2^53; conversions both ways are part of the job."""

    def prepare(a: Any, b: Any, threads: int) -> Call:
        if a.shape[1] * 2 ** (2 * bits - 2) > 2**53:
            raise ValueError(f"float64 does not hold the sums of {a.shape[1]} products of {bits}-bit integers")
        return lambda: (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64)

    return Peer("NumPy DGEMM, converted", prepare)


def torch_int_mm() -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        import torch

        torch.set_num_threads(threads)
        x, y = torch.from_numpy(a.copy()), torch.from_numpy(b.copy())
        return lambda: torch._int_mm(x, y)

    return Peer("torch._int_mm", prepare, headline=True)


def torch_matmul(dtype: str, largest: int = 1 << 62) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        import torch

        torch.set_num_threads(threads)
        x, y = (torch.from_numpy(v.astype(dtype)) for v in (a, b))
        return lambda: x @ y

    return Peer(f"torch {dtype}", prepare, largest, headline=True)


def _flint(threads: int) -> Any:
    import flint

    flint.ctx.threads = threads
    return flint


def as_ints(matrix: Any) -> Any:
    """A matrix of flint integers as an object array of Python ints."""
    rows = matrix.tolist()
    return np.array([[int(v) for v in row] for row in rows], dtype=object).reshape(matrix.nrows(), matrix.ncols())


def flint_fmpz_mat(largest: int, *, converting: bool = False, name: str = "flint fmpz_mat") -> Peer:
    """Of converted matrices, or (`converting`) from lists of lists of Python ints and back to them."""

    def prepare(a: Any, b: Any, threads: int) -> Call:
        flint = _flint(threads)
        x, y = a.tolist(), b.tolist()
        if converting:
            return lambda: as_ints(flint.fmpz_mat(x) * flint.fmpz_mat(y))
        p, q = flint.fmpz_mat(x), flint.fmpz_mat(y)
        return lambda: p * q

    return Peer(name, prepare, largest, values=np.asarray if converting else as_ints, headline=True)


def flint_nmod_mat(modulus: int, largest: int) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        flint = _flint(threads)
        x, y = (flint.nmod_mat(*v.shape, v.ravel().tolist(), modulus) for v in (a, b))
        return lambda: x * y

    return Peer("flint nmod_mat", prepare, largest, values=as_ints, headline=True)


def flint_acb_mat(precision: int, largest: int) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        flint = _flint(threads)
        flint.ctx.prec = precision
        x, y = (flint.acb_mat(v.tolist()) for v in (a, b))
        return lambda: x * y

    def values(matrix: Any) -> Any:
        return np.array([[complex(v) for v in row] for row in matrix.tolist()])

    return Peer(f"flint acb_mat, {precision} bits", prepare, largest, values=values)


def galois_field(prime: int, largest: int) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        import galois

        # Only lookup tables, of small fields, need a true primitive element; for large p the search would take long.
        unchecked = {"primitive_element": 2, "verify": False} if prime >= 2**32 else {}
        field = galois.GF(prime, **unchecked)
        x, y = (field(v.astype(field.dtypes[-1])) for v in (a, b))
        return lambda: x @ y

    return Peer("galois GF(p)", prepare, largest, values=lambda c: np.asarray(c).astype(object))


def _pairs(matrix: list[list[Any]]) -> tuple[Any, Any]:
    """Any kind of wide numbers as two float64: the nearest, and the rest."""
    hi = np.array([[float(v) for v in row] for row in matrix])
    lo = np.array([[float(v - float(v)) for v in row] for row in matrix])
    return hi, lo


def flint_arb_mat(precision: int, largest: int) -> Peer:
    """Operands are gm.DoubleDouble, converted exactly."""

    def prepare(a: Any, b: Any, threads: int) -> Call:
        flint = _flint(threads)
        flint.ctx.prec = 2200  # hi + lo of any two float64

        def convert(x: Any) -> Any:
            rows = zip(x.hi.tolist(), x.lo.tolist(), strict=True)
            return flint.arb_mat([[flint.arb(h) + flint.arb(low) for h, low in zip(*row, strict=True)] for row in rows])

        x, y = convert(a), convert(b)
        flint.ctx.prec = precision
        return lambda: x * y

    return Peer(
        f"flint arb_mat, {precision} bits", prepare, largest, values=lambda c: _pairs(c.mid().tolist()), headline=True
    )


def mpmath_matrix(precision: int, largest: int) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        import mpmath

        mpmath.mp.prec = precision
        x, y = (mpmath.matrix(v.to_mpmath().tolist()) for v in (a, b))  # exact, whatever the precision
        return lambda: x * y

    return Peer(f"mpmath, {precision} bits", prepare, largest, values=lambda c: _pairs(c.tolist()), headline=True)


def _numpy_pairs(c: Any) -> tuple[Any, Any]:
    hi = c.astype(np.float64)
    return hi, (c - hi.astype(c.dtype)).astype(np.float64)


def xprec_ddouble(largest: int) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        import xprec

        x, y = (v.hi.astype(xprec.ddouble) + v.lo.astype(xprec.ddouble) for v in (a, b))
        return lambda: x @ y

    return Peer("xprec ddouble", prepare, largest, values=_numpy_pairs, headline=True)


def quaddtype(largest: int) -> Peer:
    def prepare(a: Any, b: Any, threads: int) -> Call:
        import numpy_quaddtype

        numpy_quaddtype.set_num_threads(threads)
        dtype = numpy_quaddtype.QuadPrecDType()
        x, y = (v.hi.astype(dtype) + v.lo.astype(dtype) for v in (a, b))
        return lambda: x @ y

    return Peer("numpy-quaddtype", prepare, largest, values=_numpy_pairs, headline=True)


def fflas_ffpack(low: float, high: float) -> Published:
    """fflas-ffpack has no wheel on PyPI: published rates on one thread."""
    return Published("fflas-ffpack", (low, high), 1, SPECIFICATION)
