from __future__ import annotations

import pytest

from grader.meter.cuda import Peaks
from grader.meter.device_share import DevicePeaks, achieved_on
from grader.model import SpeedTarget

TARGET = SpeedTarget("full size", 3, 1.3, device="cuda", moved_bytes=3.35e9, flops=1e12)


def device(name: str) -> DevicePeaks:
    return DevicePeaks(name, Peaks(3e12, 800e12))


def test_rates_are_shares_of_what_the_device_measures():
    found = achieved_on(device("NVIDIA H100 80GB HBM3"), TARGET, 1.25e6)
    assert found.problem == ""
    assert "1250.0 us, 2.68 TB/s, 89% of this device's copy; 800.0 TFLOP/s, 100% of its matrix product" in found.words


@pytest.mark.parametrize("name", ["NVIDIA H100 80GB HBM3", "a device nobody has published"])
def test_a_time_that_the_device_cannot_reach_is_no_result(name: str):
    assert "quicker than the device" in achieved_on(device(name), TARGET, 0.5e6).problem
    assert achieved_on(device(name), TARGET, 1.3e6).problem == ""


def test_a_target_of_another_device_does_not_apply():
    assert TARGET.applies_to("cuda") and not TARGET.applies_to("cpu")
    assert SpeedTarget("any", 1, 2.0).applies_to("cpu")
