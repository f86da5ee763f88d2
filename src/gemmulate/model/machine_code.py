"""c_q in instructions: what a conversion kernel's machine code (SASS) issues for each input and modulus."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemmulate.model.checks import ModelError

_INSTRUCTION = re.compile(r"^\s*/\*(?P<at>[0-9a-f]{4,})\*/\s+(?P<text>[^;]+?)\s*;")
_LABEL = re.compile(r"^(?P<name>\.L_x_\d+):")
_BRANCH = re.compile(r"^(?:@!?U?P\d+\s+)?BRA(?:\.\w+)*\s+(?:!?U?P\d+,\s*)?`\((?P<label>\.L_x_\d+)\)$")


@dataclass(frozen=True)
class LoopCount:
    """Instructions of a kernel with one loop: outside it, and in one pass of it."""

    outside: int
    body: int

    def c_q(self, entries: int, moduli: int) -> float:
        """Instructions for each input and modulus, of a thread that converts `entries` inputs, a modulus a pass."""
        return (self.outside + moduli * self.body) / (entries * moduli)


def count_instructions(sass: str) -> LoopCount:
    """Instructions of one kernel as `nvdisasm -c` lists it: straight code and its only loop.

    A loop is what lies between a branch back and its target. Padding (NOP, and the branch to itself at the end) does
    not count.

    Raises:
        ModelError: the text has no instructions, or not exactly one loop, so that no count by modulus follows.
    """
    labels: dict[str, int] = {}
    waiting: list[str] = []
    code: list[tuple[int, str]] = []
    for line in sass.splitlines():
        if label := _LABEL.match(line):
            waiting.append(label["name"])
        elif found := _INSTRUCTION.match(line):
            address = int(found["at"], 16)
            labels |= dict.fromkeys(waiting, address)
            waiting.clear()
            code.append((address, found["text"]))
    if not code:
        raise ModelError("the listing holds no instructions; give the output of `nvdisasm -c` for one kernel")
    jumps = [(at, labels[branch["label"]]) for at, text in code if (branch := _BRANCH.match(text))]
    loops = [(target, at) for at, target in jumps if target < at]
    if len(loops) != 1:
        raise ModelError(
            f"the kernel has {len(loops)} loops; instructions for each modulus are counted where it has one"
        )
    start, end = loops[0]
    padding = {at for at, target in jumps if target == at}
    counted = [at for at, text in code if at not in padding and not text.startswith("NOP")]
    body = sum(start <= at <= end for at in counted)
    return LoopCount(len(counted) - body, body)
