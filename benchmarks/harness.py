"""What every row of the benchmarks shares: paired timing, agreement of results, the machine's facts, raw records.

A row is a module of `benchmarks/rows` with `jobs(n, rng)`; each Job is measured beside each of its peers in turns
(ours, theirs, theirs, ours, …) in one process. Operands are converted for a peer before the clock starts. Before
anything is timed, both results on the peer's own operands are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import gemmulate as gm

Call = Callable[[], Any]
PAUSE_S = 0.3  # idle threads of OpenBLAS and OpenMP spin for a while and would take a core from the next product
CLOCKS: dict[str, Callable[[], float]] = {"elapsed": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Peer:
    """What somebody would use instead. `prepare(a, b, threads)` converts and returns the call to be timed; it raises
    ImportError where the package is missing. `values` turns the peer's result into what the job's `agree` compares."""

    name: str
    prepare: Callable[[Any, Any, int], Call]
    largest: int = 1 << 62  # n above which it takes more than a few seconds
    values: Callable[[Any], Any] = np.asarray
    headline: bool = False  # shown in the README


@dataclass(frozen=True)
class Published:
    """A peer that is not measured here: the rate that its source gives, and with how many threads."""

    name: str
    gops: tuple[float, float]
    threads: int
    source: str


def equal(ours: Any, theirs: Any, a: Any, b: Any) -> bool:
    return bool(np.array_equal(ours, theirs))


@dataclass(frozen=True)
class Job:
    """One product: what it is called in records and tables, its operands, the options of `gm.matmul`."""

    name: str
    a: Any
    b: Any
    peers: tuple[Peer, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    out: Any = None  # dtype of `out=`
    agree: Callable[[Any, Any, Any, Any], bool] = equal
    published: tuple[Published, ...] = ()
    multiplies: int = 1  # real products: 4 for complex ones
    largest: int = 1 << 62
    build: Callable[[Any, Any, int], Call] | None = None  # where it is not one call of gm.matmul

    def call(self, a: Any, b: Any, threads: int) -> Call:
        if self.build is not None:
            return self.build(a, b, threads)
        options = self.options | {"threads": threads}
        if self.out is not None:
            options["out"] = np.empty((a.shape[0], b.shape[1]), dtype=self.out)
        return lambda: gm.matmul(a, b, **options)

    def planned(self) -> dict[str, int]:
        """Moduli and INT8 products that the plan takes."""
        plan = gm.plan(self.a, self.b, **self.options)
        return {"moduli": len(plan.moduli), "products": plan.products}


def cpus() -> int:
    return len(os.sched_getaffinity(0))


def cpu_model() -> str:
    """The processor's name as the system tells it, with family and model: clouds call several of them "AMD EPYC"."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" not in told:
        return platform.machine()
    return f"{told['model name']} (family {told.get('cpu family', '?')}, model {told.get('model', '?')})"


def machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpu": cpu_model(),
        "cpus": cpus(),
        "load_before": os.getloadavg()[0],
        "engine": next(e.reason for e in gm.engines() if e.name == "native"),
        "blas": [
            f"{i['internal_api']} {i.get('architecture', '?')} {i['num_threads']} threads" for i in threadpool_info()
        ],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "gemmulate": gm.__version__,
        "command": " ".join(sys.orig_argv[1:]),
    }


def busy_s() -> float:
    """Processor seconds that the whole machine has worked since it started; NaN where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return float("nan")
    user, nice, system, _idle, _wait, irq, soft, steal = map(int, stat.read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


class OtherLoad:
    """How many processors others kept busy since this object was made, which makes a measurement worth little."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), busy_s(), time.process_time()

    def __call__(self) -> float:
        elapsed, busy, own = self._start
        others = (busy_s() - busy) - (time.process_time() - own)
        return max(0.0, others) / (time.perf_counter() - elapsed)


def timed(call: Call) -> dict[str, float]:
    """Seconds of one call by every clock."""
    time.sleep(PAUSE_S)
    start = {name: clock() for name, clock in CLOCKS.items()}
    call()
    return {name: clock() - start[name] for name, clock in CLOCKS.items()}


def in_turns(ours: Call, theirs: Call, pairs: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Times of `pairs` pairs, in the order ABBA."""
    mine: list[dict[str, float]] = []
    others: list[dict[str, float]] = []
    for pair in range(pairs):
        for times, call in ((mine, ours), (others, theirs))[:: 1 if pair % 2 == 0 else -1]:
            times.append(timed(call))
    return mine, others


def columns(prefix: str, times: list[dict[str, float]]) -> dict[str, list[float]]:
    return {f"{prefix}{name}_s": [t[name] for t in times] for name in CLOCKS}


def measure(job: Job, peer: Peer, pairs: int, threads: int, clock: str) -> dict[str, Any]:
    """Rates in Gop/s (2 n³ / time; four times that for complex numbers) of both sides and the ratio of each pair."""
    size = job.a.shape[0]
    peer_size = min(size, peer.largest)
    a, b = job.a[:peer_size, :peer_size], job.b[:peer_size, :peer_size]
    theirs = peer.prepare(a, b, threads)
    if not job.agree(job.call(a, b, threads)(), peer.values(theirs()), a, b):
        raise AssertionError(f"{job.name} beside {peer.name}, n = {peer_size}: the results differ")
    ours = job.call(job.a, job.b, threads)
    ours()
    load = OtherLoad()
    mine, others = in_turns(ours, theirs, pairs)
    gops = [2e-9 * job.multiplies * size**3 / t[clock] for t in mine]
    peer_gops = [2e-9 * job.multiplies * peer_size**3 / t[clock] for t in others]
    return {
        "job": job.name,
        "peer": peer.name,
        "headline": peer.headline,
        "size": size,
        "peer_size": peer_size,
        "threads": threads,
        "clock": clock,
        **job.planned(),
        "other_load": load(),
        "gops": gops,
        "peer_gops": peer_gops,
        "ratios": sorted(x / y for x, y in zip(gops, peer_gops, strict=True)),
        **columns("ours_", mine),
        **columns("peer_", others),
    }


def measure_published(job: Job, peer: Published, pairs: int, clock: str) -> dict[str, Any]:
    """Ours, with the threads of the published rate, beside that rate: two machines, two days, so no ratio of pairs."""
    size = job.a.shape[0]
    ours = job.call(job.a, job.b, peer.threads)
    ours()
    load = OtherLoad()
    mine = [timed(ours) for _ in range(pairs)]
    return {
        "job": job.name,
        "peer": peer.name,
        "headline": True,
        "size": size,
        "threads": peer.threads,
        "clock": clock,
        **job.planned(),
        "other_load": load(),
        "published_gops": list(peer.gops),
        "source": peer.source,
        "gops": [2e-9 * job.multiplies * size**3 / t[clock] for t in mine],
        **columns("ours_", mine),
    }


def render(record: dict[str, Any]) -> str:
    """One line of text for a record."""
    start = f"{record['job']:<44} {record['size']:>5} {statistics.median(record['gops']):>9.4g}  {record['peer']:<26} "
    if "published_gops" in record:
        low, high = record["published_gops"]
        return f"{start}{'':>5} {low:g} … {high:g} published, {record['threads']} thread; not measured here"
    ratios = record["ratios"]
    return (
        f"{start}{record['peer_size']:>5} {statistics.median(record['peer_gops']):>9.3g} "
        f"{statistics.median(ratios):>8.3g}  {ratios[0]:.3g} … {ratios[-1]:.3g}  {record['other_load']:.1f}"
    )


def missing(job: str, peer: str, error: ImportError) -> str:
    return f"{job:<44} {'':>5} {'':>9}  {peer:<26} not installed ({error.name})"


def records(jobs: Iterable[Job], pairs: int, threads: int, clock: str) -> Iterator[dict[str, Any]]:
    """Measures and prints job after job."""
    for job in jobs:
        for peer in job.peers:
            try:
                record = measure(job, peer, pairs, threads, clock)
            except ImportError as error:
                print(missing(job.name, peer.name, error), flush=True)
                continue
            print(render(record), flush=True)
            yield record
        for published in job.published:
            record = measure_published(job, published, pairs, clock)
            print(render(record), flush=True)
            yield record


def choose_own_kernel() -> None:
    """Starts the process anew without what some environments set for old builds of OpenBLAS, so that NumPy is measured
    with the kernel that it chooses itself."""
    if {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"} & os.environ.keys():
        os.environ.pop("OPENBLAS_CORETYPE", None)
        os.environ.pop("OPENBLAS_L2_SIZE", None)
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="n of the n × n products; slow peers run smaller ones")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cpus())
    parser.add_argument(
        "--clock", choices=CLOCKS, default="elapsed", help="cpu: processor time of all threads, for a loaded machine"
    )
    parser.add_argument("--record", type=Path, help="append raw records, JSON lines, to this file")
    return parser


def append(path: Path | None, facts: dict[str, Any], found: Iterable[dict[str, Any]]) -> None:
    """Adds each record with the machine's facts as soon as it is there: an interrupted run keeps what it measured."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    for record in found:
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(facts | record, ensure_ascii=False) + "\n")


def announce(facts: dict[str, Any], threads: int, pairs: int, clock: str) -> None:
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, load {facts['load_before']:.1f}; {facts['engine']}")
    print(f"{', '.join(facts['blas'])}; {threads} threads, {pairs} pairs, {clock} time")


def main(description: str | None, jobs: Callable[[int, np.random.Generator], Iterable[Job]]) -> None:
    """The command line of a row."""
    args = options(description).parse_args()
    choose_own_kernel()
    with threadpool_limits(args.threads):
        facts = machine()
        announce(facts, args.threads, args.pairs, args.clock)
        print(
            f"{'job':<44} {'n':>5} {'Gop/s':>9}  {'peer':<26} {'n':>5} {'Gop/s':>9} {'ratio':>8}  range, other load",
            flush=True,
        )
        found = jobs(args.size, np.random.default_rng(20261129))
        append(args.record, facts, records(found, args.pairs, args.threads, args.clock))
