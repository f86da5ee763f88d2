"""Contract: compiler listings are read as they are, agree with each other, and damaged ones are refused."""

import json
import re
import resource
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemmulate.screen.compiled import choose, read_compiled
from gemmulate.screen.nvcc import compile_and_read, find_nvcc
from gemmulate.screen.text_file import EvidenceError

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DATA = Path(__file__).parents[1] / "data" / "compiler"
NOTE = Path(__file__).parents[2] / "examples" / "vortex.toml"

# Typed from the listings: function -> registers, spill stores, spill loads, stack, shared.
HEAVY_90A = {
    "k_nb": (10, 0, 0, 0, 0),
    "k_1024_100": (32, 896, 920, 472, 4096),
    "k_640_160": (32, 1492, 1628, 792, 4096),
    "k_512_160": (128, 552, 564, 288, 4096),
    "k_384_240": (32, 2272, 2548, 1208, 4096),
    "k_320_240": (96, 1640, 1704, 920, 4096),
    "k_288_240": (32, 2272, 2548, 1208, 4096),
    "k_256_240": (255, 0, 0, 0, 4096),
    "k_128_240": (255, 0, 0, 0, 4096),
}


def cli(run_cli: Run, *arguments: object) -> list[dict[str, Any]]:
    done = run_cli("compiled", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return list(json.loads(done.stdout)["functions"])


def test_the_ptxas_sample(run_cli: Run) -> None:
    found = cli(run_cli, DATA / "heavy_ptxas_90a.log")
    keys = ("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "shared_bytes")
    assert {one["function"]: tuple(one[key] for key in keys) for one in found} == HEAVY_90A
    assert {one["arch"] for one in found} == {"sm_90a"}
    assert found[0]["barriers"] == 3


def test_both_listings_of_one_kernel_agree(run_cli: Run) -> None:
    found = {one["function"]: one for one in cli(run_cli, DATA / "resusage_heavy_90a.txt", "--arch", "90a")}
    assert found.keys() == HEAVY_90A.keys()
    for name, (registers, _, _, stack, shared) in HEAVY_90A.items():
        one = found[name]
        assert (one["registers"], one["stack_bytes"], one["shared_bytes"]) == (registers, stack, shared)
        assert one["spill_store_bytes"] is None
        assert one["arch"] == "sm_90a"


def test_the_reserve_is_not_taken_off_where_it_is_not(run_cli: Run) -> None:
    found = {one["function"]: one["shared_bytes"] for one in cli(run_cli, DATA / "resusage_heavy_86.txt")}
    assert found["k_256_240"] == 4096
    assert found["k_nb"] == 0


def test_the_architecture_of_a_listing(tmp_path: Path) -> None:
    listing = (DATA / "resusage_heavy_90a.txt").read_text()
    nameless = tmp_path / "listing.txt"
    nameless.write_text(listing)
    unknown = read_compiled(nameless)[1]
    assert (unknown.arch, unknown.shared_bytes) == ("", None)
    assert "give --arch" in unknown.note
    named = tmp_path / "usage_sm_90a.txt"
    named.write_text(listing)
    assert read_compiled(named)[1].shared_bytes == 4096
    headed = tmp_path / "fatbin.txt"
    early = (DATA / "resusage_heavy_86.txt").read_text()
    headed.write_text(f"\nFatbin elf code:\narch = sm_86\n{early}\nFatbin elf code:\narch = sm_90a\n{listing}")
    found = [(one.arch, one.shared_bytes) for one in read_compiled(headed) if one.function == "k_256_240"]
    assert found == [("sm_86", 4096), ("sm_90a", 4096)]


def test_shared_memory_below_the_reserve_is_not_guessed(tmp_path: Path) -> None:
    """On sm_90 SHARED holds 1,024 reserved bytes; taking them off 512 gave −512."""
    file = tmp_path / "listing.txt"
    file.write_text("arch = sm_90a\n Function f:\n  REG:8 STACK:0 SHARED:512 LOCAL:0 CONSTANT[0]:536\n")
    (found,) = read_compiled(file)
    assert found.shared_bytes is None
    assert found.note == "SHARED:512 is less than the 1024 reserved bytes of sm_90a; not understood"


@pytest.mark.parametrize("arch", ["75", "80", "86", "87", "88", "89", "90a", "100f", "103a", "110", "120a", "121"])
def test_listings_of_every_architecture(arch: str, tmp_path: Path) -> None:
    file = tmp_path / "listing.txt"
    first = 0x160 if int(arch.rstrip("af")) < 90 else 0x210 if arch == "90a" else 0x380
    file.write_text(f" Function f:\n  REG:8 STACK:0 SHARED:3072 LOCAL:0 CONSTANT[0]:{first + 8} TEXTURE:0\n")
    (found,) = read_compiled(file, arch)
    assert (found.arch, found.shared_bytes) == (f"sm_{arch}", 3072 if first == 0x160 else 2048)


def test_a_mislabelled_listing_is_refused_or_not_believed(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="constant bank of sm_89 or before, not sm_90a"):
        read_compiled(DATA / "resusage_heavy_86.txt", "90a")
    with pytest.raises(EvidenceError, match="is about sm_90a, not sm_89"):
        read_compiled(DATA / "heavy_ptxas_90a.log", "89")
    assert read_compiled(DATA / "heavy_ptxas_90a.log", "90")[0].arch == "sm_90a"
    wrong = tmp_path / "resusage_90a.txt"
    wrong.write_text((DATA / "resusage_heavy_86.txt").read_text())
    assert (read_compiled(wrong)[1].arch, read_compiled(wrong)[1].shared_bytes) == ("", 4096)


@pytest.mark.parametrize(
    ("name", "count", "spills"),
    [("ptxas_89.log", 5, {0, 28, 72, 16}), ("ptxas_120a.log", 5, {0, 32, 8})],
)
def test_the_attention_samples(name: str, count: int, spills: set[int]) -> None:
    found = read_compiled(DATA / name)
    assert len(found) == count
    assert {one.registers for one in found} == {255}
    assert {one.spill_store_bytes for one in found} == spills
    # What the screen of the note says of its baseline: most variants spill, 8 to 72 bytes.
    assert sum(bool(one.spill_store_bytes) for one in found) == 4


def test_a_device_function_has_no_registers_of_its_own(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "ptxas info    : Compiling entry function 'k' for 'sm_120a'\n"
        "ptxas info    : Function properties for helper\n"
        "    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Function properties for k\n"
        "    256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 48 registers, 272 bytes cumulative stack size, 384 bytes cmem[0], 1 textures\n"
    )
    helper, kernel = read_compiled(log)
    assert (helper.function, helper.registers, helper.spill_load_bytes, helper.shared_bytes) == (
        "helper",
        None,
        8,
        None,
    )
    assert (kernel.registers, kernel.stack_bytes, kernel.shared_bytes, kernel.barriers) == (48, 256, 0, None)


@pytest.mark.parametrize("name", sorted(file.name for file in DATA.iterdir()))
def test_every_sample_in_utf16_and_with_windows_line_ends(name: str, tmp_path: Path) -> None:
    text = (DATA / name).read_text(encoding="utf-8")
    copy = tmp_path / name
    for raw in (text.encode("utf-16"), text.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + text.encode()):
        copy.write_bytes(raw)
        assert read_compiled(copy) == read_compiled(DATA / name)


@pytest.mark.parametrize("name", ["heavy_ptxas_90a.log", "resusage_heavy_86.txt"])
def test_a_truncated_listing_is_refused_or_a_prefix(name: str, tmp_path: Path) -> None:
    raw = (DATA / name).read_bytes()
    whole = read_compiled(DATA / name)
    cut = tmp_path / name
    refused = 0
    for end in range(0, len(raw), 3):
        cut.write_bytes(raw[:end])
        try:
            found = read_compiled(cut)
        except EvidenceError:
            refused += 1
        else:
            assert found == whole[: len(found)], end
    assert refused > len(raw) / 3 / 4


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b"\x7fELF\x02\x01\x01\x00" + bytes(100), "is binary"),
        (b"hello\nworld\n", "no ptxas -v or cuobjdump"),
        (b"ptxas info    : 0 bytes gmem\n", "no ptxas -v or cuobjdump"),
        (b" Function f:\n  REG:x STACK:0\n", "is no resource line"),
        (b" Function f:\n Function g:\n", "has no resource line"),
        (b"text " * 300_000, "a line of more than"),
        (b"some text\n" + b"\0" * 10 + b"\n", "binary"),
        ("ptxas".encode("utf-16")[:-1], "no ptxas"),
        ((DATA / "../ncu/sm75_details_long.csv").resolve().read_bytes(), "no ptxas -v or cuobjdump"),
        (
            b"ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
            b"ptxas info    : Function properties for k\n"
            b"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            b"ptxas info    : Used 10 registers, used 3 barr\n",
            "'used 3 barr' is not understood",
        ),
        (b"ptxas info    : Compiling entry function 'k' for 'sm_90a'\n" * 2, "no 'Used"),
        (
            b"ptxas info    : Function properties for k\n"
            b"    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
            b"ptxas info    : Used 10 registers\n",
            "without its kernel",
        ),
        (b"ptxas info    : Used " + b"9" * 5000 + b" registers\n", "more than 12 digits"),
        (b" Function f:\n  REG:8 STACK:" + b"1" * 5000 + b" SHARED:0 LOCAL:0\n", "more than 12 digits"),
        (b"ptxas fatal   : Unresolved extern function '_Z1gv'\n", "the compiler's error: Unresolved extern function"),
    ],
)
def test_what_is_no_listing(raw: bytes, words: str, tmp_path: Path, run_cli: Run) -> None:
    file = tmp_path / "evidence"
    file.write_bytes(raw)
    done = run_cli("compiled", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_a_hundred_megabytes_in_bounded_memory(tmp_path: Path) -> None:
    file = tmp_path / "large.log"
    block = b"ptxas warning : something that is not evidence at all, again and again\n" * 15_000
    with file.open("wb") as out:
        for _ in range(100):
            out.write(block)
    assert file.stat().st_size > 100_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(EvidenceError, match="no ptxas"):
        read_compiled(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_too_many_functions(tmp_path: Path) -> None:
    file = tmp_path / "many_86.txt"
    line = "  REG:10 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:360 TEXTURE:0 SURFACE:0 SAMPLER:0\n"
    file.write_text("".join(f" Function f{i}:\n{line}" for i in range(100_001)))
    with pytest.raises(EvidenceError, match="more than 100,000 functions"):
        read_compiled(file)


def test_one_kernel_is_chosen_by_name() -> None:
    functions = read_compiled(DATA / "heavy_ptxas_90a.log")
    assert choose(functions, "320_240", "log").function == "k_320_240"
    with pytest.raises(EvidenceError, match="9 kernels match"):
        choose(functions, "", "log")
    with pytest.raises(EvidenceError, match="no kernel name contains 'x'"):
        choose(functions, "x", "log")


def test_projected_and_compiled_are_reconciled(run_cli: Run) -> None:
    log = f"{DATA / 'ptxas_120a.log'}:EfLb0E13__nv_bfloat16L11ComputeUnit1EL8MaskMode0ELb0ELb1ELb0ELb0"
    done = run_cli("screen", NOTE, "--json", "--compiled", f"VEA-A={log}")
    assert done.returncode == 0, done.stderr
    candidate = json.loads(done.stdout)["candidates"]["VEA-A"]
    rows = {row["item"]: (row["projected"], row["compiled"], row["holds"]) for row in candidate["reconciled"]}
    assert rows["registers per thread"] == ("128", "255", False)
    assert rows["spill bytes"] == ("0", "0", True)
    assert rows["resident CTAs per SM"] == ("1", "1", True)
    assert candidate["state"] == "compiled"
    assert "registers" not in candidate["evidence_owed"]
    gates = {gate["name"]: gate["outcome"] for gate in candidate["gates"]}
    assert gates["local spills"] == "pass"


def test_a_kernel_name_may_hold_colons(run_cli: Run, tmp_path: Path) -> None:
    """The names of demangled listings do; the last colon split them."""
    file = tmp_path / "a:b.log"
    file.write_text((DATA / "ptxas_120a.log").read_text().replace("'_Z24qk_int_sv_f8", "'ns::f8"))
    name = re.findall(r"entry function '(.+)' for", file.read_text())[0]
    for place in (f"{file}:{name}", f"{file}:{name.removeprefix('ns:')}"):
        done = run_cli("screen", NOTE, "--json", "--compiled", f"VEA-A={place}")
        assert "kernels match" not in done.stderr
        assert "No such file" not in done.stderr


def test_evidence_of_another_architecture_does_not_count(run_cli: Run) -> None:
    log = f"{DATA / 'heavy_ptxas_90a.log'}:k_320_240"
    done = run_cli("screen", NOTE, "--json", "--compiled", f"VEA-B={log}")
    candidate = json.loads(done.stdout)["candidates"]["VEA-B"]
    (row,) = [row for row in candidate["reconciled"] if row["item"] == "architecture"]
    assert row == {"item": "architecture", "projected": "12.0", "compiled": "sm_90a", "holds": False}
    assert candidate["launchable"] is False
    assert "registers" in candidate["evidence_owed"]


@pytest.mark.parametrize(
    ("value", "words"),
    [("VEA-A", "is not NAME=FILE"), ("X={log}:k_nb", "'X' is unknown"), ("VEA-A={log}", "9 kernels match")],
)
def test_bad_compiled_options(value: str, words: str, run_cli: Run) -> None:
    done = run_cli("screen", NOTE, "--compiled", value.replace("{log}", str(DATA / "heavy_ptxas_90a.log")))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr


KERNEL = """
extern "C" __global__ void __launch_bounds__(LIMIT) scale(float* out, float factor) {
    __shared__ float tile[1000];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = factor * tile[999 - threadIdx.x];
}
"""


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on PATH, under CUDA_HOME or in site-packages")
def test_nvcc_compiles_for_several_architectures(tmp_path: Path, run_cli: Run) -> None:
    source = tmp_path / "scale.cu"
    source.write_text(KERNEL)
    found = cli(run_cli, source, "--arch", "86,90a,12.0", "--nvcc-flags", "-DLIMIT=256")
    assert [one["arch"] for one in found] == ["sm_86", "sm_90a", "sm_120"]
    assert {(one["function"], one["shared_bytes"]) for one in found} == {("scale", 4000)}


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on PATH, under CUDA_HOME or in site-packages")
def test_what_nvcc_refuses(tmp_path: Path) -> None:
    source = tmp_path / "scale.cu"
    source.write_text(KERNEL.replace("factor *", "factr *"))
    with pytest.raises(EvidenceError, match=r'nvcc refused it for sm_90a.*"factr" is undefined'):
        compile_and_read(source, ["90a"], ["-DLIMIT=256"])
    with pytest.raises(ValueError, match="is no architecture"):
        compile_and_read(source, ["hopper"])
    with pytest.raises(ValueError, match="no architecture to compile for"):
        compile_and_read(source, [])
    with pytest.raises(OSError, match="No such file"):
        compile_and_read(tmp_path / "none.cu", ["90a"])
    assert not re.search(r"gemmulate-", " ".join(path.name for path in tmp_path.iterdir()))
