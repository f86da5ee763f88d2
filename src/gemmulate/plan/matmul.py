"""`gm.matmul`: the public product. It validates once, then one chain of choices leads to the code that does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np

from gemmulate.engines import get_engine
from gemmulate.engines.base import Array, DeviceArray, Engine
from gemmulate.errors import ResultOverflow
from gemmulate.formats.double_double import DoubleDouble
from gemmulate.plan.double_double import check_pair_options, multiply_double_double
from gemmulate.plan.frameworks import framework_product
from gemmulate.plan.operands import Kind, Stack, as_operand, as_stack, common_kind, kernel_view, result_dtype
from gemmulate.plan.prepared import Prepared
from gemmulate.plan.small import multiply_small
from gemmulate.plan.stacks import Index, each
from gemmulate.schemes.accuracy import Bits, Grade
from gemmulate.schemes.fixed_bits import multiply_fixed_bits
from gemmulate.schemes.floats import SMALL_PRODUCT, choose_floats, grade_of, multiply_floats
from gemmulate.schemes.integers import (
    IntegerChoice,
    choose_integers,
    multiply_integers,
    multiply_to_objects,
)
from gemmulate.schemes.modular import as_modulus, multiply_modular
from gemmulate.schemes.python_ints import multiply_objects
from gemmulate.schemes.resident import multiply_resident, takes_resident
from gemmulate.schemes.wrapped import multiply_wrapped

Accuracy = Literal["fast", "fp64", "fp32", "exact"]
Overflow = Literal["raise", "wrap", "object"]

_OVERFLOWS: tuple[str, ...] = get_args(Overflow)
_GRADES: dict[str, Grade] = {"fast": "fast", "fp64": "componentwise", "fp32": "componentwise", "exact": "exact"}


def matmul(
    a: Any,
    b: Any,
    out: Array | tuple[Array, ...] | None = None,
    *,
    accuracy: Accuracy | Bits = "fp64",
    modulus: int | None = None,
    overflow: Overflow = "raise",
    engine: str | Engine | None = None,
    threads: int | None = None,
    formats: str | Sequence[str] | None = None,
) -> Any:
    """The matrix product of a and b, exact for integers and with a proven error bound for floats.

    Shapes follow `numpy.matmul`: vectors, matrices, stacks with broadcasting, any strides; (…, m, k) times (…, k, n)
    gives (…, m, n). The result's bits do not depend on engine, threads, blocking or memory layout.

    Integers (bool, (u)int8 … (u)int64, object arrays of Python ints) are exact. The result is int64, uint64 when
    both inputs are unsigned, object when one holds Python ints. `overflow` says what happens to a result that does
    not fit: "raise" (ResultOverflow), "wrap" (NumPy's dtype and bits; bool gives the logical product) or "object"
    (always Python ints).

    `modulus=p` gives the integer product's residues in [0, p) as int64, for any p in 2 … 2^63 and integers of any
    size and sign; `overflow` then has no effect.

    Floats by `accuracy`, with u = 2^-53 (float32: 2^-24, float16: 2^-11, bfloat16 of ml_dtypes: 2^-8):
    "fast": |C − AB| ≤ 2u k max|row i of a| max|column j of b|;
    "fp64" (or "fp32", the same grade): |C − AB| ≤ k u |A||B| for every element, proven for the data at hand;
    "exact": the correctly rounded dot product (round to nearest even, overflow and subnormals as IEEE 754);
    Products with m·k·n ≤ 64³ of float64 or float32 are correctly rounded at each of these grades.
    gm.Bits(n): n bits of each operand relative to its row's or column's largest, |C − AB| ≲ 2^(1−n) k max max + u |C|.
    The result has the operands' common type (float32 for float16 with bfloat16) and is rounded to it once.
    complex64 and complex128 likewise, for the real and the imaginary part as dot products of depth 2k each.
    NaN and infinities give what IEEE arithmetic gives for their own elements and touch no others.

    gm.DoubleDouble operands (one or both; the other may be any real floats or integers) give a gm.DoubleDouble with
    |C − AB| ≤ 2^-104 |A||B| for every element ("fp64"), or the nearest pair ("exact").

    `out` (writable, of the result's shape; also as third argument, or alone in a tuple) receives the result; for
    integers it may have another integer dtype, and a value that does not fit it, or the result's own, raises. If a
    product raises, out is unchanged. The parts of a DoubleDouble go to a tuple (hi, lo) of two float64 arrays, which is
    returned.

    `formats`, e.g. "fp4_e2m1" or "fp4_e2m1,fp8_e4m3", runs the exact products through encodings on the planes of
    these formats (as INT8, summed no deeper than their accumulators are exact): the same bits, slower here; it shows
    and tests what a device with such units computes. With accuracy="fast" float64 operands may be rounded to integers
    that fewer products cover (partial-cover moduli): the same bound, proven afterwards, but other bits.

    Raises TypeError, ValueError (naming the argument), ResultOverflow, EngineUnavailable.

    Sources: Ozaki, Uchino, Imamura 2025 (Ozaki scheme II); grades after Demmel et al. 2024.

    >>> import gemmulate as gm, numpy as np
    >>> a = np.array([[2**40, -1], [3, 5]])
    >>> gm.matmul(a, a, overflow="object")
    array([[1208925819614629174706173, -1099511627781],
           [3298534883343, 22]], dtype=object)
    >>> gm.matmul(a, a, modulus=10**18 + 9)
    array([[819614629163825848, 999998900488372228],
           [     3298534883343,                 22]])
    >>> gm.matmul([[0.1, 0.2, -0.3]], [[1.0], [1.0], [1.0]], accuracy="exact")
    array([[2.77555756e-17]])
    """
    grade = check_options(accuracy, modulus, overflow)
    if type(a) is not np.ndarray or type(b) is not np.ndarray or out is not None:
        multiply = framework_product(a, b, out)
        if multiply is not None:
            options = {"accuracy": accuracy, "modulus": modulus, "overflow": overflow}
            return multiply(a, b, out, engine, threads=threads, formats=formats, **options)
    runner = engine_for(engine, threads, formats)
    if (
        out is None
        and formats is None
        and (small := multiply_small(runner, a, b, grade, modulus, overflow)) is not None
    ):
        return small
    if isinstance(a, DoubleDouble) or isinstance(b, DoubleDouble):
        return multiply_double_double(runner, a, b, check_pair_options(accuracy, modulus), out)
    for operand in (a, b):
        if formats is None and isinstance(operand, Prepared):  # planes have packed forms of their own
            runner = operand.remembering(runner)
    if isinstance(out, tuple):
        if len(out) != 1:
            raise TypeError("out is a tuple, which only takes the parts of a DoubleDouble; pass one NumPy array")
        (out,) = out  # as NumPy's functions take it
    left, right, kind = read_operands(a, b, modulus)
    stack = as_stack(left, right)
    if modulus is not None:
        result = _modular_stack(runner, stack, kind, as_modulus(modulus), out)
    elif kind in ("float", "complex"):
        result = _float_stack(runner, stack, grade, out)
    elif kind == "object":
        result = _object_stack(runner, stack, out)
    else:
        result = _integer_stack(runner, stack, overflow, out)
    if out is not None:
        return out
    result = result.reshape(stack.shape)
    return result if stack.shape else result[()]


def engine_for(engine: str | Engine | None, threads: int | None, formats: str | Sequence[str] | None) -> Engine:
    """The engine asked for, wrapped by the planes of `formats` where these are given."""
    runner = get_engine(engine, threads)
    if formats is None:
        return runner
    from gemmulate.schemes.encoded_engine import EncodedEngine

    return EncodedEngine(formats, runner)


def read_operands(a: Any, b: Any, modulus: int | None) -> tuple[Array, Array, Kind]:
    """Both operands in a common exact type; TypeError where there is none, or where a modulus meets floats."""
    x, y = as_operand(a, "a"), as_operand(b, "b")
    if modulus is not None:
        for name, operand in (("a", x), ("b", y)):
            if operand.dtype.kind not in "biuO":
                raise TypeError(f"modulus = {modulus} needs integer operands, {name} is {operand.dtype}; convert it")
    return common_kind(x, y)


def check_options(accuracy: str | Bits, modulus: int | None, overflow: str) -> Grade | Bits:
    if not isinstance(accuracy, Bits) and (not isinstance(accuracy, str) or accuracy not in _GRADES):
        raise ValueError(f"accuracy = {accuracy!r} is unknown; choose one of {', '.join(_GRADES)} or gm.Bits(n)")
    if modulus is not None:
        as_modulus(modulus)
    if not isinstance(overflow, str) or overflow not in _OVERFLOWS:
        raise ValueError(f"overflow = {overflow!r} is unknown; choose one of {', '.join(_OVERFLOWS)}")
    return accuracy if isinstance(accuracy, Bits) else _GRADES[accuracy]


def _check_out(out: Array | None, stack: Stack) -> None:
    if out is None:
        return
    if not isinstance(out, (np.ndarray, type(stack.a))):
        raise TypeError(f"out is a {type(out).__name__}; pass a NumPy array of shape {stack.shape}")
    if out.shape != stack.shape:
        raise ValueError(f"out has shape {out.shape}, the product has shape {stack.shape}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError("out is read-only; pass a writable array")


def _target(engine: Engine, out: Array | None, stack: Stack, dtype: np.dtype[Any]) -> tuple[Array, bool]:
    """Where to compute: out itself if kernels can write it and it overlaps no input, else a new array."""
    on_host = isinstance(stack.a, np.ndarray)
    if (
        out is not None
        and out.dtype == dtype
        and (not on_host or _writable_by_kernels(out))
        and not np.may_share_memory(out, stack.a)
        and not np.may_share_memory(out, stack.b)
    ):
        return out.reshape(stack.full_shape), True  # adds dimensions of length 1 at most: a view
    return (engine.empty_on_host if on_host else engine.empty)(stack.full_shape, dtype), False


def _writable_by_kernels(out: Array) -> bool:
    return out.dtype.isnative and out.flags.aligned and all(s % out.itemsize == 0 for s in out.strides)


def matrices(stack: Stack, index: Index) -> tuple[Array, Array]:
    """a (m, k) and b.T (n, k) of one product of the stack, as the engines read them."""
    return kernel_view(stack.a[index]), kernel_view(stack.b[index].T)


def _float_stack(engine: Engine, stack: Stack, grade: Grade | Bits, out: Array | None) -> Array:
    dtype = np.dtype(stack.a.dtype.newbyteorder("="))
    _check_out(out, stack)
    if out is not None and out.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"out has dtype {out.dtype}, the product has {dtype}: another one would need a second rounding")
    target, in_place = _target(engine, out, stack, dtype)
    if stack.depth == 0:
        target[...] = 0
    elif target.size:
        each(engine, stack, lambda engine, index: _multiply_floats(engine, stack, index, grade, target[index]))
    if out is not None and not in_place:
        out[...] = target.reshape(stack.shape)
    return target


def _multiply_floats(engine: Engine, stack: Stack, index: Index, grade: Grade | Bits, out: Array) -> None:
    a, bt = matrices(stack, index)
    if out.dtype.kind == "c":
        for part, (x, y) in zip((out.real, out.imag), complex_parts(a, bt), strict=True):
            _multiply_real(engine, x, y, grade, part)
    elif grade != "fast" or not _multiply_partial(engine, a, bt, out.dtype, out):
        _multiply_real(engine, a, bt, grade, out)


def complex_parts(a: Array, bt: Array) -> Iterator[tuple[Array, Array]]:
    """Real operands (m, 2k) and (n, 2k) whose products are the real and the imaginary part of a · b.

    [Re a, −Im a] · [Re b; Im b] and [Re a, Im a] · [Im b; Re b]: each element is one dot product of depth 2k, so
    every grade holds for both parts and "exact" rounds each of them once.
    """
    yield np.concatenate((a.real, -a.imag), axis=1), np.concatenate((bt.real, bt.imag), axis=1)
    yield np.concatenate((a.real, a.imag), axis=1), np.concatenate((bt.imag, bt.real), axis=1)


def _modular_stack(engine: Engine, stack: Stack, kind: Kind, p: int, out: Array | None) -> Array:
    _check_out(out, stack)
    target, in_place = _target(engine, out, stack, np.dtype(np.int64))
    if stack.depth == 0:
        target[...] = 0
    elif target.size:

        def multiply(engine: Engine, index: Index) -> None:
            a, bt = matrices(stack, index) if kind == "integer" else (stack.a[index], stack.b[index].T)
            multiply_modular(engine, a, bt, p, target[index])

        each(engine, stack, multiply)
    if out is not None and not in_place:
        _store_checked(target.reshape(stack.shape), out, int(target.max(initial=0)).bit_length() + 1)
    return target


def _multiply_real(engine: Engine, a: Array, bt: Array, grade: Grade | Bits, out: Array) -> None:
    result = out.dtype
    if isinstance(grade, Bits) and isinstance(out, DeviceArray):
        multiply_fixed_bits(engine, a, bt, grade.n, out)
        return
    grade = grade_of(grade, a, bt, result)
    small = grade == "exact" and a.shape[0] * a.shape[1] * bt.shape[0] <= SMALL_PRODUCT
    if small and a.dtype == result and engine.exact_product(a, bt, out):
        return
    if not isinstance(grade, Bits) and takes_resident(engine, a, bt, out):
        multiply_resident(engine, a, bt, grade, out)
        return
    multiply_floats(engine, a, bt, choose_floats(engine, a, bt, grade, result), out)


def _multiply_partial(engine: Engine, a: Array, bt: Array, result: np.dtype[Any], out: Array) -> bool:
    """Write the product by partial-cover moduli where a format's planes were asked for and they pay."""
    from gemmulate.schemes.encoded_engine import EncodedEngine, multiply_fast

    if not isinstance(engine, EncodedEngine):
        return False
    return multiply_fast(engine, a, bt, choose_floats(engine, a, bt, "fast", result), out)


def _object_stack(engine: Engine, stack: Stack, out: Array | None) -> Array:
    _check_out(out, stack)
    result = np.empty(stack.full_shape, dtype=object)
    for index in np.ndindex(*stack.batch):
        result[index] = multiply_objects(engine, stack.a[index], stack.b[index].T)
    if out is not None:
        _store_checked(result.reshape(stack.shape), out, _object_bits(result))
    return result


def _object_bits(x: Array) -> int:
    return max((((~v) if v < 0 else v).bit_length() + 1 for v in x.flat), default=1)


def _integer_stack(engine: Engine, stack: Stack, overflow: Overflow, out: Array | None) -> Array:
    _check_out(out, stack)
    if overflow == "wrap":
        return _wrapped_stack(engine, stack, out)
    dtype = result_dtype(stack.a.dtype, stack.b.dtype)
    if overflow == "object":
        result = np.empty(stack.full_shape, dtype=object)
        for index in np.ndindex(*stack.batch):
            result[index] = _exact_objects(engine, *matrices(stack, index))
        if out is not None:
            _store_checked(result.reshape(stack.shape), out, _object_bits(result))
        return result
    choices = _choices(engine, stack)
    fits = _limit_bits(dtype)
    certain = all(c.bound.bit_length() + 1 <= fits for c in choices.values())
    narrow = (
        out is not None
        and out.dtype == np.int32
        and all(c.zero_points is not None and c.bound < 1 << 31 for c in choices.values())
    )
    target, in_place = _target(engine, out if certain else None, stack, np.dtype(np.int32) if narrow else dtype)
    bits = _run_integers(engine, stack, choices, target)
    if bits > fits:
        raise ResultOverflow(
            f"a result needs {bits} bits (sign included) and does not fit {dtype}; "
            'pass overflow="object" for Python ints or overflow="wrap" for NumPy\'s wrapped values',
            bits=bits,
        )
    if out is not None and not in_place:
        _store_checked(target.reshape(stack.shape), out, bits)
    return target


def _limit_bits(dtype: np.dtype[Any]) -> int:
    """Largest bit length, sign included, that the dtype may hold (an unsigned one holds no negative number)."""
    return 8 * dtype.itemsize + (dtype.kind == "u")


def _choices(engine: Engine, stack: Stack) -> dict[tuple[int, ...], IntegerChoice]:
    if stack.depth == 0 or 0 in stack.full_shape:
        return {}
    chosen = each(engine, stack, lambda engine, index: choose_integers(engine, *matrices(stack, index)))
    return dict(zip(np.ndindex(*stack.batch), chosen, strict=True))


def _run_integers(engine: Engine, stack: Stack, choices: dict[tuple[int, ...], IntegerChoice], target: Array) -> int:
    if not choices:
        target[...] = 0
        return 1

    def multiply(engine: Engine, index: Index) -> int:
        return multiply_integers(engine, *matrices(stack, index), choices[index], target[index])

    return max(each(engine, stack, multiply))


def _exact_objects(engine: Engine, a: Array, bt: Array) -> Array:
    if 0 in (*a.shape, bt.shape[0]):
        return np.full((a.shape[0], bt.shape[0]), 0, dtype=object)
    choice = choose_integers(engine, a, bt)
    if choice.bound < 1 << 63 or choice.system is None:
        block = np.empty((a.shape[0], bt.shape[0]), dtype=np.int64)
        multiply_integers(engine, a, bt, choice, block)
        return block.astype(object)
    return multiply_to_objects(engine, a, bt, choice)


def _wrapped_stack(engine: Engine, stack: Stack, out: Array | None) -> Array:
    dtype = np.result_type(stack.a.dtype, stack.b.dtype)
    if dtype.kind not in "biu":
        raise TypeError(
            f'overflow="wrap" gives NumPy\'s result, but NumPy multiplies a ({stack.a.dtype}) and b '
            f'({stack.b.dtype}) as {dtype}; convert one of them or use overflow="raise" or "object"'
        )
    if out is not None and not np.can_cast(dtype, out.dtype, "same_kind"):
        raise TypeError(
            f'out has dtype {out.dtype}, to which NumPy does not cast the {dtype} product of overflow="wrap"; '
            "pass an integer out"
        )
    choices = _choices(engine, stack)
    width = max(4, dtype.itemsize)
    if choices and dtype.kind != "b" and max(c.products for c in choices.values()) > engine.wrapped_cost(width):
        narrow = dtype.itemsize < 4
        target, in_place = _target(engine, None if narrow else out, stack, np.dtype(np.int32) if narrow else dtype)
        each(engine, stack, lambda engine, index: multiply_wrapped(engine, *matrices(stack, index), target[index]))
        wrapped = target.astype(dtype, copy=False)
        if out is not None and not in_place:
            out[...] = wrapped.astype(out.dtype).reshape(stack.shape)
        return wrapped
    target, _ = _target(engine, None, stack, np.dtype(np.int64))
    _run_integers(engine, stack, choices, target)
    if dtype.kind == "b":
        result = target.astype(np.bool_)
    elif dtype.itemsize == 8:
        result = target.view(dtype)
    else:
        result = target.astype(dtype)
    if out is not None:
        out[...] = result.astype(out.dtype).reshape(stack.shape)
    return result


def _store_checked(result: Array, out: Array, bits: int) -> None:
    """Copy integers to out, or raise before anything is written."""
    if out.dtype.kind == "O":
        out[...] = result
        return
    if out.dtype.kind not in "iu":
        raise TypeError(f"out has dtype {out.dtype}; an exact integer product goes to an integer dtype or object")
    info = np.iinfo(out.dtype)
    if result.size and (bits > _limit_bits(out.dtype) or not (info.min <= result.min() and result.max() <= info.max)):
        raise ResultOverflow(
            f"a result needs {bits} bits (sign included) and does not fit out's dtype {out.dtype}; "
            "pass a wider out, or an object array for Python ints",
            bits=bits,
        )
    out[...] = result.astype(out.dtype)
