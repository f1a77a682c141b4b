"""The least time a device can take: bytes over bandwidth, or operations over peak, whichever is longer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A device's published peaks: memory bandwidth and dense matrix throughput."""

    name: str
    bytes_per_second: float
    flops_per_second: dict[str, float]
    capability: int


A100 = Device("A100", 2.039e12, {"bfloat16": 312e12, "float16": 312e12, "float32": 156e12}, 80)
H100 = Device("H100", 3.35e12, {"bfloat16": 990e12, "float16": 990e12, "float32": 495e12}, 90)
B200 = Device("B200", 8.0e12, {"bfloat16": 2250e12, "float16": 2250e12, "float32": 1100e12}, 100)
H200 = Device("H200", 4.8e12, H100.flops_per_second, 90)
KNOWN = (A100, H100, H200, B200)
DEVICES = (A100, H100, B200)
"""float32 is the TF32 path of the matrix units, which is what ``tl.dot`` uses by default."""


@dataclass(frozen=True)
class Floor:
    """The roofline floor of one shape on one device."""

    device: Device
    seconds: float
    bound: str

    def __str__(self) -> str:
        microseconds = self.seconds * 1e6
        shown = f"{microseconds:.0f}" if microseconds >= 10 else f"{microseconds:.1f}"
        return f"{self.device.name}: at least {shown} µs, {self.bound}-bound"


def floor(moved_bytes: float, flops: float = 0.0, device: Device = H100, dtype: str = "bfloat16") -> Floor:
    """The floor for work that moves ``moved_bytes`` and does ``flops`` matrix operations.

    Raises:
        ValueError: a negative amount, or a dtype without a published peak.
    """
    if moved_bytes < 0 or flops < 0:
        raise ValueError(f"bytes and FLOPs cannot be negative, got {moved_bytes} and {flops}")
    if dtype not in device.flops_per_second:
        raise ValueError(f"no published peak for {dtype} on {device.name}")
    memory = moved_bytes / device.bytes_per_second
    compute = flops / device.flops_per_second[dtype]
    return Floor(device, max(memory, compute), "memory" if memory >= compute else "compute")


def floors(moved_bytes: float, flops: float = 0.0, dtype: str = "bfloat16") -> tuple[Floor, ...]:
    """The floors on A100, H100 and B200."""
    return tuple(floor(moved_bytes, flops, device, dtype) for device in DEVICES)
