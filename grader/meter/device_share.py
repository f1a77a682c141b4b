"""How near a timed kernel comes to what its device can do, and when a time is too good to be one.

The device's own copy and matrix product are the measure; the published peaks are the floor under which no time is
believed.  The measuring has not been run on CUDA.
"""

from __future__ import annotations

import functools

import msgspec
import torch

from grader.meter.cuda import ROOFLINE_SHARE, CudaClock, Peaks, measure_peaks
from grader.meter.roofline import KNOWN, floor
from grader.model import SpeedTarget


class Achieved(msgspec.Struct, frozen=True):
    """One call's rates in words, and why its time is no result (empty when it is one)."""

    words: str
    problem: str = ""


class DevicePeaks(msgspec.Struct, frozen=True):
    """A device: its name as torch gives it, and what it does in a large copy and in a large matrix product."""

    name: str
    measured: Peaks


@functools.cache
def device_peaks() -> DevicePeaks:
    """The current CUDA device, measured once a process (a second or two)."""
    device = torch.device("cuda")
    return DevicePeaks(torch.cuda.get_device_name(device), measure_peaks(CudaClock.of(device), device))


def achieved_on(device: DevicePeaks, target: SpeedTarget, call_ns: float) -> Achieved:
    """What a call of ``call_ns`` achieves of what the device can do.

    Args:
        device: where it ran.
        target: holds the bytes that a call must move and the matrix operations it must do, by the challenge's formula.
        call_ns: time of one call.
    """
    peaks = device.measured
    moved = target.moved_bytes / call_ns * 1e9
    words = (
        f"{call_ns / 1e3:.1f} us, {moved / 1e12:.2f} TB/s, {moved / peaks.bytes_per_second:.0%} of this device's copy"
    )
    if target.flops:
        done = target.flops / call_ns * 1e9
        words += f"; {done / 1e12:.1f} TFLOP/s, {done / peaks.flops_per_second:.0%} of its matrix product"
    published = next((known for known in KNOWN if known.name in device.name), None)
    floor_ns = target.moved_bytes / peaks.bytes_per_second * 1e9
    if published is not None:
        floor_ns = floor(target.moved_bytes, target.flops, published).seconds * 1e9
    if call_ns < ROOFLINE_SHARE * floor_ns:
        return Achieved(
            words,
            f"a call in {call_ns / 1e3:.1f} us is quicker than the device can move its bytes ({floor_ns / 1e3:.1f} us)",
        )
    return Achieved(words)
