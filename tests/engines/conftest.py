"""Every test of this folder runs on every engine that is available here."""

import pytest

import gemmulate as gm
from gemmulate.engines import Engine, get_engine


@pytest.fixture(params=[r.name for r in gm.engines()])
def engine(request: pytest.FixtureRequest) -> Engine:
    record = {r.name: r for r in gm.engines()}[request.param]
    if not record.available:
        pytest.skip(record.reason)
    return get_engine(record.name, 2)
