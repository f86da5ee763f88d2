"""Does a CUDA graph hold a product, and what does a replay save?

    python -m benchmarks.gpu.capture [--device cuda] [--sizes 256,1024] [--pairs 10] [--record FILE]

With gm.Bits(54) for each engine, with the named grades for those that choose bits on the device, and each size: one
product in torch's debug mode that makes every wait of the host an error; one captured,
and replayed on other operands, among them NaN, infinities, zeros and subnormal numbers, whose product the native
engine gives as well; times of product and replay, paired. A processor has no graphs. Not run on a GPU.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import gemmulate as gm
from benchmarks.gpu.accuracy import gaussian, patterns
from benchmarks.gpu.measure import announce, engines
from benchmarks.gpu.run import options
from gemmulate import evidence
from gemmulate.engines.array_engine import ArrayEngine
from gemmulate.engines.torch_device import TorchDevice
from gemmulate.errors import GemmulateError

SIZES = (256, 1024)
BITS = gm.Bits(54)
Record = dict[str, Any]


def waits(product: Callable[[], object]) -> str:
    """What the host waits for in a product, in torch's words; empty for nothing."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        product()
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def captured(product: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of the product, which has run before on a stream beside the current one."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        product()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product()
    return graph


def hostile(n: int, generator: torch.Generator) -> torch.Tensor:
    """Gaussian entries, one in eight 0, −0 or subnormal; the first rows hold NaN and infinities, zeros, one sign."""
    x = gaussian((n, n), generator)
    kind = torch.randint(0, 24, (n, n), device=x.device, generator=generator)
    for which, value in enumerate((0.0, -0.0, 5e-324)):
        x.masked_fill_(kind == which, value)
    x[0, 1], x[1, :2], x[2, 3] = torch.nan, torch.inf, -torch.inf
    x[3], x[4], x[5] = 0.0, -0.0, x[5].abs()
    return x


def one(engine: ArrayEngine, n: int, pairs: int, seed: int, accuracy: str | gm.Bits = BITS) -> Record:
    """Whether the product waits, whether its replay has the CPU's bits, and both times."""
    device: torch.device = engine.library.device  # type: ignore[attr-defined]
    generator = torch.Generator(device).manual_seed(seed)
    a, b = gaussian((n, n), generator), gaussian((n, n), generator)
    c = torch.empty_like(a)

    def product() -> None:
        gm.matmul(a, b, accuracy=accuracy, engine=engine, out=c)  # type: ignore[call-overload]

    product()
    found: Record = {"waits": waits(product)}
    graph = captured(product)
    a.copy_(hostile(n, generator))
    b.copy_(hostile(n, generator).T)
    graph.replay()
    host = (x.cpu().numpy() for x in (a, b))
    truth = gm.matmul(*host, accuracy=accuracy, engine="native")  # type: ignore[call-overload]
    found["replay_bits"] = bool(np.array_equal(patterns(c.cpu().numpy()), patterns(truth)))
    timer = "torch" if device.type == "cuda" else "wall"
    compared = evidence.compare(product, graph.replay, pairs=pairs, seed=seed, timer=timer)
    return found | {"product_s": compared.samples["a"], "replay_s": compared.samples["b"], "ratio": compared.ratio}


def measured(device: TorchDevice, sizes: list[int], pairs: int, seed: int) -> Iterator[Record]:
    for engine in engines(device):
        grades: tuple[str | gm.Bits, ...] = (BITS,) if engine.resident is None else (BITS, "fast", "fp64", "exact")
        for n, accuracy in itertools.product(sizes, grades):
            base = {"kind": "gpu", "row": "graph", "size": f"{n}×{n}×{n}", "n": n, "engine": engine.name}
            base |= {"grade": str(accuracy), "seed": seed}
            try:
                record = base | {"status": "measured"} | one(engine, n, pairs, seed, accuracy)
            except (RuntimeError, MemoryError) as error:  # a capture that fails is an answer, too
                record = base | {"status": "measured", "waits": str(error).partition("\n")[0], "replay_bits": False}
            print(
                f"graph {n}³, {engine.name}, {accuracy}: {record['waits'] or 'no wait'}, "
                f"CPU's bits: {record['replay_bits']}"
            )
            yield record


def main() -> int:
    from benchmarks.harness import append, machine

    parser = options(__doc__)
    args = parser.parse_args()
    try:
        device = TorchDevice(args.device)
    except (ValueError, GemmulateError) as error:
        parser.error(str(error))
    if not device.on_gpu:
        print("graphs: not run, a processor has none")
        return 0
    sizes = [int(word) for word in args.sizes.split(",")] if args.sizes else list(SIZES)
    facts = machine() | device.facts()
    facts["host_engine"] = facts.pop("engine")  # a record's own is the device's
    announce(facts)
    with device.current():
        append(args.record, facts, measured(device, sizes, int(args.pairs or 10), int(args.seed or 20261130)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
