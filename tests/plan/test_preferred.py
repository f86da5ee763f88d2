"""Which engines a CUDA device tries first, against rates of the catalogue put together by hand."""

import pytest

from gemmulate.model.device import device_names, load_device
from gemmulate.plan.preferred import preferred_engines

INT8 = ("triton", "torch-cuda")


def test_a_device_whose_int8_is_cut_takes_other_units_first() -> None:
    """B300's T op/s are 165 (INT8), 5,000 (FP8) and 15,000 (FP4); BF16 is half of FP8."""
    rates = load_device("b300").nominal()
    assert (rates.int8, rates.fp8, rates.fp4) == (165e12, 5000e12, 15000e12)
    assert 59 / 15000 < 15 / 2500 < 45 / 5000 < 15 / 165
    found = preferred_engines("NVIDIA B300 SXM6 AC")
    assert found == ("triton-bf16", "triton-fp8", "triton", "torch-cuda-fp4", "torch-cuda-fp8", "torch-cuda")
    assert preferred_engines("NVIDIA GB300") == found


@pytest.mark.parametrize("name", ["NVIDIA H200 NVL", "NVIDIA B200", "NVIDIA GeForce RTX 5090", "NVIDIA L40S"])
def test_where_int8_is_whole_it_stays(name: str) -> None:
    """B200: 15/4,500 beside FP4's 59/9,000."""
    assert preferred_engines(name) == INT8


def test_a_device_without_rates_takes_int8() -> None:
    assert preferred_engines("NVIDIA T1000") == INT8


@pytest.mark.parametrize("key", device_names())
def test_int8_is_always_among_them(key: str) -> None:
    found = preferred_engines(load_device(key).name)
    assert set(INT8) <= set(found)
    assert [name.startswith("triton") for name in found] == sorted(
        (n.startswith("triton") for n in found), reverse=True
    )
