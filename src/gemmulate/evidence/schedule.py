"""The order of a paired run: ABBA quads, turned to BAAB at random.

Each quad cancels a linear drift: both sides stand at the same mean position. Turning quads at random keeps interference
with a period of four runs from falling on one side, and makes the signs of the quads independent whatever the noise.
"""

import secrets

import numpy as np


def new_seed() -> int:
    """A fresh seed, recorded with the run."""
    return secrets.randbits(32)


def order(pairs: int, seed: int) -> str:
    """The order of `pairs` pairs as a string of A and B; an odd last pair is AB or BA. pairs ≥ 1.

    >>> sorted(set(order(2, seed) for seed in range(20)))
    ['ABBA', 'BAAB']
    """
    rng = np.random.default_rng(seed)
    turned = rng.integers(0, 2, size=(pairs + 1) // 2)
    return "".join("BAAB" if turn else "ABBA" for turn in turned)[: 2 * pairs]
