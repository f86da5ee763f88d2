"""Encodings as readable mathematics."""

from gemmulate.encodings.encoding import Encoding


def _sum(terms: list[tuple[int, str]]) -> str:
    """33·a0 − 5·a1: coefficients of one are left out, a product in parentheses by its caller."""
    text = ""
    for coefficient, name in terms:
        if coefficient:
            sign = ("−" if coefficient < 0 else "") if not text else (" − " if coefficient < 0 else " + ")
            text += sign + (name if abs(coefficient) == 1 else f"{abs(coefficient)}·{name}")
    return text or "0"


def _form(row: tuple[int, ...], letter: str) -> str:
    text = _sum([(c, f"{letter}{i}") for i, c in enumerate(row)])
    return f"({text})" if sum(c != 0 for c in row) > 1 or min(row) < 0 else text


def identity(encoding: Encoding) -> str:
    """The identity over limbs a_i of x and b_j of y, as one line of text.

    >>> from gemmulate import encodings
    >>> identity(encodings.get("mod121.fp4_e2m1"))
    'x·y ≡ a0·b0 + 11·a0·b1 + 11·a1·b0 (mod 121)'
    """
    products = [
        (c, f"{_form(p, 'a')}·{_form(q, 'b')}")
        for c, p, q in zip(encoding.coefficients, encoding.planes_left, encoding.planes_right, strict=True)
    ]
    left = "x·y" if encoding.divisor == 1 else f"{encoding.divisor}·x·y"
    if encoding.modulus:
        return f"{left} ≡ {_sum(products)} (mod {encoding.modulus})"
    return f"{left} = {_sum(products)}"


def describe(encoding: Encoding) -> str:
    """Several lines: identity, limbs, domains, alphabet, status and depth limits."""
    e = encoding
    relation = "≡" if e.modulus else "="
    lines = [
        f"{e.key}: {e.products} products, {e.status} (at least {e.bound}: {e.bound_by})",
        "",
        f"  {identity(e)}",
        "",
    ]
    for name, side, letter in (("x", "left", "a"), ("y", "right", "b")):
        domain, weights, _ = e.side(side)
        limbs = _sum([(w, f"{letter}{i}") for i, w in enumerate(weights)])
        if e.modulus:
            reach = "all residues" if not domain.partial else f"{domain.size} of the residues"
            tail = f" (mod {e.modulus}), {reach}"
        else:
            tail = f", {domain.low} ≤ {name} ≤ {domain.high}"
        lines.append(f"  {name} {relation} {limbs}{tail}")
    letters = ", ".join(map(str, e.alphabet)) if len(e.alphabet) <= 20 else f"{len(e.alphabet)} integers"
    lines += ["", f"  every factor is in {e.format.name}'s alphabet {{{letters}}}"]
    if e.modulus and any(abs(c) > 1 for row in e.planes_left + e.planes_right for c in row):
        lines.append(f"  (planes are reduced mod {e.modulus} to their smallest representative there)")
    depths = ", ".join(f"{name} {depth:,}" for name, depth in e.depth_limits.items())
    lines += [f"  exact sums up to k = {depths}", f"  found by: {e.provenance.get('search', '?')}"]
    return "\n".join(lines)
