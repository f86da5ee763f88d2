"""Fingerprints of what the two sides return, so that a fast wrong answer is not called faster.

Two results have the same fingerprint when type, shape and every byte agree; -0.0 and 0.0 differ, as do NaN payloads.
"""

import hashlib
import sys
from typing import Any

import numpy as np


def fingerprint(value: Any) -> str | None:
    """SHA-256 of a result: arrays, numbers, strings, bytes, None, and tuples, lists and dicts of them.

    Arrays of torch and CuPy are brought to the host first. None for None, which is no result, and for a value of any
    other kind: its bytes are unknown.
    """
    if value is None:
        return None
    digest = hashlib.sha256()
    return digest.hexdigest() if _feed(digest, value) else None


def _feed(digest: "hashlib._Hash", value: Any) -> bool:
    value = _on_host(value)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        # The types of ml_dtypes all have the str of raw bytes; only their names differ.
        digest.update(f"array {value.dtype.str} {value.dtype.name} {value.shape} ".encode())
        if value.dtype.hasobject:
            return all(_feed(digest, item) for item in value.ravel().tolist())
        digest.update(np.ascontiguousarray(value).tobytes())
        return True
    if isinstance(value, (list, tuple)):
        digest.update(f"{type(value).__name__} {len(value)} ".encode())
        return all(_feed(digest, item) for item in value)
    if isinstance(value, dict):
        digest.update(f"dict {len(value)} ".encode())
        return all(_feed(digest, item) for pair in value.items() for item in pair)
    if isinstance(value, (bytes, bytearray, memoryview)):
        digest.update(b"bytes ")
        digest.update(value)
        return True
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        digest.update(f"{type(value).__name__} {value!r} ".encode())
        return True
    return False


def _on_host(value: Any) -> Any:
    library = type(value).__module__.partition(".")[0]
    if library == "torch":
        return _torch_array(value.detach().cpu())
    return value.get() if library == "cupy" else value


def _torch_array(tensor: Any) -> Any:
    try:
        return tensor.numpy()
    except TypeError:
        # NumPy has no bfloat16 and no FP8: the bytes, with what they stand for.
        raw = tensor.contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy()
        return str(tensor.dtype), tuple(tensor.shape), raw
