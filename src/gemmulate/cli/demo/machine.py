"""Where the demo runs: its figures mean nothing without it."""

import os

import msgspec

TITLE = "Looking at the machine"


class Machine(msgspec.Struct, frozen=True):
    """The machine and the peers that the figures belong to."""

    processor: str
    threads: int
    engines: list[str]
    missing: dict[str, str]
    blas: dict[str, str]
    slowed_by: list[str]
    """Environment variables that hold NumPy's BLAS back."""


def has_native_core() -> bool:
    """Whether the C++ core runs here; without it the demo takes smaller matrices."""
    import gemmulate as gm

    return any(engine.name == "native" and engine.available for engine in gm.engines())


def measure() -> Machine:
    """Look at the machine."""
    from gemmulate.cli.doctor import examined

    found = examined()
    return Machine(
        processor=found["machine"]["processor"],
        threads=found["machine"]["threads"],
        engines=[engine["name"] for engine in found["engines"] if engine["available"]],
        missing={engine["name"]: engine["reason"] for engine in found["engines"] if not engine["available"]},
        blas=found["blas"],
        slowed_by=[f"{name}={os.environ[name]}" for name in ("OPENBLAS_CORETYPE",) if name in os.environ],
    )


def show(record: Machine) -> None:
    """Print the machine in a few lines."""
    blas = record.blas
    kernel = f", kernel {blas['kernel']}" if "kernel" in blas else ""
    print(f"{record.processor}, {record.threads} threads; NumPy with {blas['name']} {blas['version']}{kernel}")
    print(f"engines: {', '.join(record.engines)}")
    if record.missing:
        print(f"missing: {', '.join(record.missing)}; gemmulate doctor says why")
    if "native" in record.missing:
        print("NOTE without its native core gemmulate is as exact and much slower; the matrices below are smaller ones")
    if record.slowed_by:
        print(f"NOTE {', '.join(record.slowed_by)} is set and slows NumPy's float products; unset it to compare speed")
