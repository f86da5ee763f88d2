"""Evidence items and the profiler metrics that give them, chip by chip.

Which counter exists on which chip: enumerated from the vendor's metric library (tests/data/ncu holds the table).
"""

from typing import Final

import msgspec

# Compute capability -> chip whose metric library the table below was read from.
CHIPS: Final[dict[str, str]] = {
    "8.0": "GA100",
    "8.6": "GA102",
    "8.9": "AD102",
    "9.0": "GH100",
    "10.0": "GB100",
    "10.3": "GB110",
    "12.0": "GB202",
    "12.1": "GB20B",
}
_UP_TO_HOPPER: Final = frozenset({"GA100", "GA102", "AD102", "GH100"})
_BLACKWELL: Final = frozenset({"GB100", "GB110", "GB202", "GB20B"})

# Metric base name -> chips that have it. A name that is not here exists on every chip of the table.
ONLY_ON: Final[dict[str, frozenset[str]]] = {
    "sm__pipe_tensor_op_imma_cycles_active": _UP_TO_HOPPER,
    "sm__pipe_tensor_op_hmma_cycles_active": _UP_TO_HOPPER,
    "sm__pipe_tensor_subpipe_imma_cycles_active": _BLACKWELL,
    "sm__pipe_tensor_subpipe_hmma_cycles_active": _BLACKWELL,
    "sm__inst_executed_pipe_fp16": frozenset({"GA100"}),
    "sm__inst_executed_pipe_fma_type_fp16": (_UP_TO_HOPPER | _BLACKWELL) - {"GA100"},
    "sm__inst_executed_pipe_fmaheavy": (_UP_TO_HOPPER | _BLACKWELL) - {"GA100"},
    "dram__bytes": (_UP_TO_HOPPER | _BLACKWELL) - {"GB20B"},
    "lts__d_sectors_fill_sysmem": _UP_TO_HOPPER | {"GB20B"},
}

Detail = tuple[str, str, str]  # section, metric name, base unit


class Item(msgspec.Struct, frozen=True):
    """One item of evidence: `bases` are metric base names, best first; `details` the rows of the details page.

    `suffixes` are the roll-ups taken, best first. `unit` is the base unit reported.
    """

    name: str
    meaning: str
    unit: str
    bases: tuple[str, ...]
    suffixes: tuple[str, ...]
    details: tuple[Detail, ...] = ()


_SHARE = (
    ".avg.pct_of_peak_sustained_active",
    ".sum.pct_of_peak_sustained_active",
    ".avg.pct_of_peak_sustained_elapsed",
    ".sum.pct_of_peak_sustained_elapsed",
)
_SUM = (".sum",)
_PLAIN = ("",)
_RATIO = (".ratio",)


def _launch(name: str, meaning: str, unit: str, metric: str, detail: str, detail_unit: str) -> Item:
    return Item(name, meaning, unit, (metric,), _PLAIN, (("Launch Statistics", detail, detail_unit),))


def _limit(resource: str, metric: str, detail: str) -> Item:
    meaning = f"CTAs per SM that the {resource} admit"
    base = f"launch__occupancy_limit_{metric}"
    return Item(
        f"limit_{resource}", meaning, "block", (base,), _PLAIN, (("Occupancy", f"Block Limit {detail}", "block"),)
    )


def _pipe(pipe: str, *also: str) -> Item:
    bases = tuple(f"sm__inst_executed_pipe_{name}" for name in (pipe, *also))
    return Item(f"instruction_mix_{pipe}", f"issue share of the {pipe} pipe", "%", bases, _SHARE)


ITEMS: Final[tuple[Item, ...]] = (
    Item(
        "duration",
        "time of the launch under the profiler",
        "s",
        ("gpu__time_duration",),
        _SUM,
        (("GPU Speed Of Light Throughput", "Duration", "s"),),
    ),
    _launch("threads", "threads per block", "", "launch__block_size", "Block Size", ""),
    _launch("grid", "blocks", "", "launch__grid_size", "Grid Size", ""),
    _launch("registers", "registers per thread", "register/thread", "launch__registers_per_thread",
            "Registers Per Thread", "register/thread"),
    _launch("static_shared", "static shared memory per block", "byte/block", "launch__shared_mem_per_block_static",
            "Static Shared Memory Per Block", "byte/block"),
    _launch("dynamic_shared", "dynamic shared memory per block", "byte/block", "launch__shared_mem_per_block_dynamic",
            "Dynamic Shared Memory Per Block", "byte/block"),
    _launch("carveout", "shared memory configured per SM", "byte", "launch__shared_mem_config_size",
            "Shared Memory Configuration Size", "byte"),
    _limit("registers", "registers", "Registers"),
    _limit("shared", "shared_mem", "Shared Mem"),
    _limit("warps", "warps", "Warps"),
    _limit("ctas", "blocks", "SM"),
    _limit("barriers", "barriers", "Barriers"),
    Item("theoretical_occupancy", "resident warps at most", "%", ("sm__maximum_warps_per_active_cycle_pct",), _PLAIN,
         (("Occupancy", "Theoretical Occupancy", "%"),)),
    Item("achieved_occupancy", "resident warps on average", "%", ("sm__warps_active",), _SHARE[:1],
         (("Occupancy", "Achieved Occupancy", "%"),)),
    Item("eligible_warps", "eligible warps per scheduler and cycle", "warp", ("smsp__warps_eligible",),
         (".avg.per_cycle_active",), (("Scheduler Statistics", "Eligible Warps Per Scheduler", "warp"),)),
    Item("no_eligible", "cycles in which no warp is eligible", "%", ("smsp__issue_inst0",), _SHARE[:2],
         (("Scheduler Statistics", "No Eligible", "%"),)),
    Item("issue_active", "cycles in which a warp issues", "%", ("smsp__issue_active",), _SHARE[:2],
         (("Scheduler Statistics", "One or More Eligible", "%"),)),
    Item("tensor_active", "tensor pipe activity", "%", ("sm__pipe_tensor_cycles_active",), _SHARE),
    Item("int8_tensor_active", "INT8 tensor activity", "%",
         ("sm__pipe_tensor_op_imma_cycles_active", "sm__pipe_tensor_subpipe_imma_cycles_active"), _SHARE),
    Item("fp8_tensor_active", "FP8 tensor activity, counted together with FP16 and BF16", "%",
         ("sm__pipe_tensor_op_hmma_cycles_active", "sm__pipe_tensor_subpipe_hmma_cycles_active"), _SHARE),
    Item("instructions", "executed warp instructions", "inst", ("smsp__inst_executed", "inst_executed"), ("", ".sum"),
         (("Instruction Statistics", "Executed Instructions", "inst"),)),
    *(_pipe(pipe) for pipe in ("tensor", "alu", "fma", "fmaheavy")),
    # Chips without an FP16 pipe issue FP16 to the FMA pipe.
    _pipe("fp16", "fma_type_fp16"),
    *(_pipe(pipe) for pipe in ("xu", "lsu", "uniform")),
    Item("shared_loads", "shared load instructions", "inst", ("smsp__inst_executed_op_shared_ld",), _SUM),
    Item("shared_stores", "shared store instructions", "inst", ("smsp__inst_executed_op_shared_st",), _SUM),
    Item("shared_conflicts", "shared memory bank conflicts", "",
         ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared",), _SUM),
    Item("l2_sectors", "L2 sector requests", "sector", ("lts__t_sectors",), _SUM),
    Item("l2_bytes", "bytes requested of L2", "byte", ("lts__t_bytes",), _SUM),
    Item("l2_hit_rate", "L2 hit rate", "%", ("lts__t_sector_hit_rate",), (".pct",),
         (("Memory Workload Analysis", "L2 Hit Rate", "%"),)),
    Item("off_chip_bytes", "off-chip bytes", "byte", ("dram__bytes",), _SUM),
    Item("off_chip_rate", "off-chip bytes per second", "byte/s", ("dram__bytes",), (".sum.per_second",),
         (("Memory Workload Analysis", "Memory Throughput", "byte/s"),)),
    Item("system_memory_sectors", "sectors filled from system memory, the off-chip proxy where there is no DRAM unit",
         "sector", ("lts__d_sectors_fill_sysmem",), _SUM),
    Item("local_spills", "local memory requests caused by spills", "", ("derived__local_spilling_requests",), _PLAIN,
         (("Memory Workload Analysis", "Local Memory Spilling Requests", ""),)),
    Item("local_loads", "local load instructions", "inst", ("smsp__inst_executed_op_local_ld",), _SUM),
    Item("local_stores", "local store instructions", "inst", ("smsp__inst_executed_op_local_st",), _SUM),
    Item("barrier_stalls", "warps stalled at a barrier per issue", "inst",
         ("smsp__average_warps_issue_stalled_barrier_per_issue_active",), _RATIO),
    Item("membar_stalls", "warps stalled at a memory barrier per issue", "inst",
         ("smsp__average_warps_issue_stalled_membar_per_issue_active",), _RATIO),
)  # fmt: skip

# Off-chip traffic of a chip without a DRAM unit is seen as system memory, that of the others at the DRAM unit.
INSTEAD: Final[dict[str, str]] = {
    "off_chip_bytes": "system_memory_sectors",
    "off_chip_rate": "system_memory_sectors",
    "system_memory_sectors": "off_chip_bytes",
    "instruction_mix_fmaheavy": "instruction_mix_fma",
}


def exists(base: str, chip: str) -> bool:
    """Whether the chip has the metric, as far as the table tells."""
    return base not in ONLY_ON or chip in ONLY_ON[base]


def metric_on(item: Item, chip: str) -> str | None:
    """The metric to collect for an item on `chip` ("" for an unknown chip), or None when it has none."""
    for base in item.bases:
        if not chip or exists(base, chip):
            return base + item.suffixes[0]
    return None


def substitute(item: Item, chip: str) -> str | None:
    """What to collect on `chip` instead of an item that it lacks."""
    other = INSTEAD.get(item.name)
    return metric_on(next(one for one in ITEMS if one.name == other), chip) if other else None
