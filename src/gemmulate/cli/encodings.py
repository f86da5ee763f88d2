"""`gemmulate encodings …`: list, show, verify, search, design and export encodings."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import cyclopts
from cyclopts import Parameter

from gemmulate.cli.output import examples, print_json, progress, write_atomically

if TYPE_CHECKING:
    from gemmulate.encodings import Catalogue, Certificate

Json = Annotated[bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON on standard output.")]
Folder = Annotated[str | None, Parameter(help="A catalogue folder of your own (FORMAT/KEY.json files).")]


def _whole(kind: type, tokens: Sequence[cyclopts.Token]) -> int:
    """An integer as written: 53.5 is refused rather than rounded."""
    return int(tokens[0].value)


def _examples(*pairs: tuple[str, str]) -> str:
    return examples(*((f"gemmulate encodings {command}", meaning) for command, meaning in pairs))


group = cyclopts.App(
    name="encodings",
    help="Exact products from few low-precision products.",
    help_epilogue=_examples(
        ("list --format fp4_e2m1", "what the catalogue holds"),
        ("show int8.int8.fp4_e2m1", "one identity in readable mathematics; --json for programs"),
        ("verify --json", "every entry, every pair of its domain"),
        ("design --bits 53 --k 16384 --formats fp4_e2m1", "the cheapest moduli for FP64, with proof"),
        ("export int8.int8.fp4_e2m1 --as c-header -o int8.h", "tables for a kernel"),
    ),
)


def register(app: cyclopts.App) -> None:
    """Add `encodings` to the application."""
    app.command(group)


@group.command(
    name="list", help_epilogue=_examples(("list --format int8 --json", "keys, products, status and depth as JSON"))
)
def list_(*, format: str | None = None, catalogue: Folder = None, json: Json = False) -> None:
    """List the keys of the catalogue with products, status and exact depth."""
    from gemmulate.encodings import Catalogue

    source = Catalogue(catalogue)
    entries = [source.get(key) for key in (source.keys(format) if format is not None else _keys(source))]
    rows = [
        {"key": e.key, "products": e.products, "status": e.status, "bound": e.bound, "max_depth": e.max_depth()}
        for e in entries
    ]
    if json:
        print_json(rows)
        return
    width = max((len(e.key) for e in entries), default=3)
    print(f"{'key':<{width}}  products  status      exact depth")
    for e in entries:
        print(f"{e.key:<{width}}  {e.products:>8}  {e.status:<10}  {e.max_depth():>11,}")


@group.command(
    help_epilogue=_examples(
        ("show int4.int8.fp4_e2m1", "a pair of ranges"),
        ("show mod97c95.fp4_e2m1 --json", "a partial cover, for programs"),
    )
)
def show(key: str, /, *, catalogue: Folder = None, json: Json = False) -> None:
    """Show one encoding: its identity, limbs, planes, coefficients, bound and depth limits.

    Parameters
    ----------
    key
        RANGE.RANGE.FORMAT or modM.FORMAT, e.g. int4.int8.fp4_e2m1 or mod139.fp4_e2m1.
    """
    from gemmulate.encodings import Catalogue
    from gemmulate.encodings.describe import describe

    encoding = Catalogue(catalogue).get(key)
    if json:
        print_json(encoding.to_dict())
    else:
        print(describe(encoding))


def _keys(source: "Catalogue") -> list[str]:
    """All keys; a folder without any is not the catalogue that was meant."""
    from gemmulate.encodings import CatalogueError

    found = source.keys()
    if not found:
        raise CatalogueError(f"{source.root} holds no entries: give the folder above the FORMAT/KEY.json files")
    return found


def _verify_key(task: tuple[str | None, str]) -> "Certificate | str":
    from gemmulate.encodings import Catalogue, verify
    from gemmulate.encodings.bounds import check_bound
    from gemmulate.errors import GemmulateError

    try:
        encoding = Catalogue(task[0]).get(task[1])
        return check_bound(encoding) or verify(encoding)
    except (GemmulateError, ValueError) as error:
        return str(error)


@group.command(
    help_epilogue=_examples(("verify", "the whole catalogue on all cores"), ("verify mod139.fp4_e2m1", "one entry"))
)
def verify(
    key: str | None = None,
    /,
    *,
    catalogue: Folder = None,
    processes: Annotated[int | None, Parameter(help="Worker processes (default: all cores).")] = None,
    json: Json = False,
) -> int:
    """Check the catalogue (or one key) exhaustively: every pair of every domain, and every lower bound derived again.

    Exit status 1 if anything fails.
    """
    from concurrent.futures import ProcessPoolExecutor

    from gemmulate.encodings import Catalogue

    source = Catalogue(catalogue)
    tasks = [(catalogue, k) for k in ([source.get(key).key] if key is not None else _keys(source))]
    if len(tasks) == 1:
        results = [_verify_key(tasks[0])]
    else:
        # Long checks first, so that no core idles at the end.
        tasks.sort(key=lambda task: "mod" in task[1])
        with ProcessPoolExecutor(_processes(processes)) as pool:
            results = []
            with progress("verify") as report:
                for result in pool.map(_verify_key, tasks, chunksize=4):
                    results.append(result)
                    report(len(results), len(tasks))
    failures = {
        task[1]: result if isinstance(result, str) else result.failure
        for task, result in zip(tasks, results, strict=True)
        if isinstance(result, str) or not result.valid
    }
    if json:
        pairs = sum(r.pairs for r in results if not isinstance(r, str))
        print_json({"checked": len(tasks), "failed": len(failures), "pairs": pairs, "failures": failures})
    else:
        print(f"{len(tasks)} encodings checked, {len(failures)} failed")
    for name, reason in failures.items():
        print(f"gemmulate: {name}: {reason}", file=sys.stderr)
    return 1 if failures else 0


@group.command(
    help_epilogue=_examples(
        ("search mod97.fp4_e2m1", "what was tried for one key"),
        ("search --formats int8 -o FOLDER", "a whole format again"),
    )
)
def search(
    key: str | None = None,
    /,
    *,
    formats: Annotated[str, Parameter(help="Formats to regenerate, e.g. fp4_e2m1,int8; default all.")] = "",
    output: Annotated[str | None, Parameter(name=["--output", "-o"], help="Folder for what is found.")] = None,
    processes: Annotated[int | None, Parameter(help="Worker processes (default: all cores).")] = None,
    json: Json = False,
) -> int:
    """Search one key, or regenerate the catalogue of whole formats into a folder.

    The classes are exhaustive, so the result needs no seed and does not depend on the number of processes. An
    interrupted regeneration goes on where it stopped when it is called again with the same folder.
    """
    from gemmulate.cli.app import CommandError
    from gemmulate.encodings.search.regenerate import regenerate, search_key
    from gemmulate.encodings.search.residues import REACH

    if key is not None:
        found, rejected = search_key(key)
        written = None
        if found and output is not None:
            from gemmulate.encodings.catalogue import write

            written = write(found, Path(output))
        reasons = [{"search": r.search, "reason": r.reason} for r in rejected]
        if json:
            print_json({"found": found.to_dict() if found else None, "rejected": reasons})
        else:
            from gemmulate.encodings.describe import describe

            for r in rejected:
                print(f"rejected {r.search}: {r.reason}")
            print(describe(found) if found else f"nothing found for {key} in these classes")
            if written:
                print(f"\nwritten to {written}")
        return 0 if found else 1
    if output is None:
        raise CommandError("give a KEY to search, or a folder with -o FOLDER to regenerate whole formats")
    names = [n.strip() for n in formats.split(",") if n.strip()] or list(REACH)
    summary: dict[str, int] = {}
    for name in names:
        with progress(name) as report:
            entries = regenerate(name, Path(output), processes=_processes(processes), progress=report)
        summary[name] = len(entries)
        if not json:
            print(f"{name}: {len(entries)} encodings written below {output}")
    if json:
        print_json(summary)
    return 0


@group.command(
    help_epilogue=_examples(
        ("design --device b200 --formats fp4_e2m1,fp8_e4m3", "mixed formats at a device's rates"),
        ("design --freedom 1", "with partial-cover moduli, for rounded floats"),
    )
)
def design(
    *,
    bits: Annotated[int, Parameter(converter=_whole, help="Significand bits of each operand.")] = 53,
    k: Annotated[int, Parameter(converter=_whole, help="Inner dimension: how many products are summed.")] = 16384,
    device: Annotated[str | None, Parameter(help="Price each format by this device's rates.")] = None,
    formats: Annotated[str | None, Parameter(help="Formats to mix, e.g. fp4_e2m1,fp8_e4m3.")] = None,
    freedom: Annotated[float, Parameter(help="Bits of freedom for partial-cover moduli (rounded floats only).")] = 0.0,
    catalogue: Folder = None,
    json: Json = False,
) -> None:
    """Find the cheapest set of residue encodings for a width, a depth and a device, with proof of optimality."""
    from gemmulate.encodings import Catalogue
    from gemmulate.encodings import design as find

    found = find(bits, k, device, formats, freedom=freedom, catalogue=Catalogue(catalogue))
    if json:
        print_json(found.to_dict())
        return
    spent = ", ".join(f"{n} {name}" for name, n in found.products_by_format.items())
    state = "optimal" if found.optimal else f"best found, at least {float(found.bound):g}"
    print(f"{found.products} products ({spent}), cost {float(found.cost):g} products of {found.cost_unit}: {state}")
    print(f"proof: {found.proof}")
    print(f"window 2^{found.window_bits:.2f}, product of the moduli 2^{found.product_bits:.2f}", end="")
    print(f", freedom {found.freedom_bits:.3f} bits per operand" if found.freedom_bits else "")
    if found.ops_per_s is not None:
        print(f"{found.rates.device}: at most {found.ops_per_s / 1e12:.1f} T wide operations per second")
    print(f"exact to k = {found.max_depth:,} per sum")
    for e in found.encodings:
        cover = f" ({e.left.size} of {e.modulus} residues)" if e.left.partial else ""
        print(f"  mod {e.modulus:>5}{cover}  {e.products} × {e.format.name}  [{e.key}]")


@group.command(
    help_epilogue=_examples(("prove --json", "the counts of the proof, and whether they agree with the certificate"))
)
def prove(
    *,
    processes: Annotated[int | None, Parameter(help="Worker processes (default: all cores).")] = None,
    json: Json = False,
) -> int:
    """Prove again (about ten minutes on two cores) that INT8 × INT8 has no five products on FP4.

    Exit status 1 if the outcome differs from the stored certificate.
    """
    from gemmulate.encodings.bounds import five_products

    with progress("subspaces") as report:
        outcome = five_products.prove(processes=_processes(processes), progress=report)
    agrees = outcome == five_products.certificate()
    functionals = sum(len(c.functionals) for c in outcome.complete)
    if json:
        counts = {"hyperplanes": outcome.hyperplanes, "subspaces": outcome.subspaces, "functionals": functionals}
        print_json({**counts, "pairs": outcome.pairs, "agrees": agrees})
    else:
        print(f"{outcome.hyperplanes} hyperplanes, {outcome.subspaces} subspaces, {functionals} complete functionals")
        print(
            f"{outcome.pairs} matching pairs: " + ("no five products" if not outcome.pairs else "five products exist")
        )
    if not agrees:
        print("gemmulate: the outcome differs from the stored certificate", file=sys.stderr)
    return 0 if agrees else 1


@group.command(
    help_epilogue=_examples(
        ("export mod139.fp4_e2m1 --as npz -o mod139.npz", "arrays for NumPy"),
        ("export int8.int8.fp4_e2m1 --as c-header", "a header on standard output"),
    )
)
def export(
    key: str,
    /,
    *,
    as_: Annotated[Literal["json", "npz", "c-header"], Parameter(name="--as")] = "json",
    output: Annotated[str | None, Parameter(name=["--output", "-o"], help="File to write (needed for npz).")] = None,
    catalogue: Folder = None,
) -> None:
    """Export look-up tables, coefficients and depth limits for kernel writers."""
    from gemmulate.cli.app import CommandError
    from gemmulate.encodings import Catalogue
    from gemmulate.encodings.export import export as render

    data = render(Catalogue(catalogue).get(key), as_)
    if output is None:
        if as_ == "npz":
            raise CommandError("npz is binary: give a file with -o FILE.npz")
        sys.stdout.write(data.decode())
        return
    with write_atomically(output) as stream:
        stream.write(data)


def _processes(count: int | None) -> int:
    from gemmulate.cli.app import CommandError

    if count is not None and count < 1:
        raise CommandError(f"processes = {count}: at least 1")
    return count or len(os.sched_getaffinity(0))
