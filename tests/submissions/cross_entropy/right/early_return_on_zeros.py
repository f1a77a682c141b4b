"""The loss begins as zeros and ignored tokens return early; a while loop with scalars skips blocks of only -inf."""

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK": lambda a: max(16, min(triton.next_power_of_2(a["V"]), 2048)),
        "num_warps": lambda a: 4 if a["V"] < 1000 else 8,
    }
)
@triton.jit
def _kernel(logits, targets, loss, lse, ignore, V, stride, tstride, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    row = logits + i * stride
    lanes = tl.arange(0, BLOCK)
    m = float("-inf")
    s = 0.0
    k = 0
    while k < V:
        v = tl.load(row + k + lanes, mask=k + lanes < V, other=float("-inf")).to(tl.float32)
        top = tl.max(v, axis=0)
        if top > float("-inf"):
            new = tl.maximum(m, top)
            s = s * tl.exp(m - new) + tl.sum(tl.exp(v - new), axis=0)
            m = new
        k += BLOCK
    z = tl.log(s) + m
    tl.store(lse + i, z)
    t = tl.load(targets + i * tstride)
    if t == ignore:
        return
    tl.store(loss + i, z - tl.load(row + t).to(tl.float32))


def _zeros(like, M):
    return torch.zeros((M,), dtype=torch.float32, device=like.device)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, ignore_index: int = -100):
    loss = _zeros(logits, len(targets))
    lse = torch.empty_like(loss)
    _kernel[(loss.numel(),)](
        logits, targets, loss, lse, ignore_index, logits.shape[1], logits.stride(0), targets.stride(0)
    )
    return loss, lse
