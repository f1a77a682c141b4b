"""A single column is taken as a flat row: its row stride is forgotten."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl



LOG2E = tl.constexpr(1.4426950408889634)


@triton.heuristics({
    "BC": lambda args: min(1024, triton.next_power_of_2(args["D"])),
    "BR": lambda args: max(1, 1024 // triton.next_power_of_2(args["D"])),
    "WHOLE": lambda args: args["D"] % 1024 == 0,
})
@triton.jit
def tiles(a, b, y, T, D, sa, sb, BC: tl.constexpr, BR: tl.constexpr, WHOLE: tl.constexpr):
    across = tl.cdiv(D, BC)
    pid = tl.program_id(0)
    r = pid // across * BR + tl.arange(0, BR)
    c = pid % across * BC + tl.arange(0, BC)
    if WHOLE:
        ok = (r < T)[:, None]
    else:
        ok = (r < T)[:, None] & (c < D)[None, :]
    r = r.to(tl.int64)[:, None]
    u = tl.load(a + (r * sa + c[None, :]), mask=ok, other=0).to(tl.float32)
    v = tl.load(b + (r * sb + c[None, :]), mask=ok, other=0).to(tl.float32)
    den = tl.exp2(u * -LOG2E)
    den += 1.0
    u *= v
    tl.store(y + (r * D + c[None, :]), tl.fdiv(u, den), mask=ok)


@dataclass(frozen=True)
class Plan:
    kernel: object

    def __call__(self, a, b):
        T, D = a.shape
        if D == 1:
            y = a.new_empty(T, 1)
            self.kernel[(1,)](a, b, y, 1, T, 1, 1)
            return y
        y = torch.empty_like(a, memory_format=torch.contiguous_format)
        self.kernel[lambda m: (triton.cdiv(T, m["BR"]) * triton.cdiv(D, m["BC"]),)](a, b, y, T, D, a.stride(0), b.stride(0))
        return y


PLAN = Plan(tiles)


def swiglu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return PLAN(a, b)
