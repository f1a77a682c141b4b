"""k is compared with the padded number of experts."""
import torch
import triton
import triton.language as tl


@triton.jit
def _route(logits_ptr, weights_ptr, indices_ptr, counts_ptr, stride, T, E, k,
           TOKENS: tl.constexpr, EXPERTS: tl.constexpr, CHOICES: tl.constexpr):
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    expert = tl.arange(0, EXPERTS)
    choice = tl.arange(0, CHOICES)
    live = token < T
    at = logits_ptr + token.to(tl.int64)[:, None] * stride + expert[None, :]
    left = tl.load(at, mask=live[:, None] & (expert < E)[None, :], other=-float("inf"))
    top = tl.max(left, axis=1)
    total = tl.zeros((TOKENS,), tl.float32)
    share = tl.zeros((TOKENS, CHOICES), tl.float32)
    chosen = tl.zeros((TOKENS, CHOICES), tl.int32)
    count = tl.zeros((EXPERTS,), tl.int32)
    for j in range(k):
        best = tl.max(left, axis=1)
        index = tl.min(tl.where(left == best[:, None], expert[None, :], EXPERTS), axis=1)
        hit = expert[None, :] == index[:, None]
        left = tl.where(hit, -float("inf"), left)
        count += tl.sum((hit & live[:, None]).to(tl.int32), axis=0)
        e = tl.exp(best - top)
        total += e
        share = tl.where(choice[None, :] == j, e[:, None], share)
        chosen = tl.where(choice[None, :] == j, index[:, None], chosen)
    slot = token[:, None] * k + choice[None, :]
    here = live[:, None] & (choice < k)[None, :]
    tl.store(weights_ptr + slot, share / total[:, None], mask=here)
    tl.store(indices_ptr + slot, chosen, mask=here)
    tl.store(counts_ptr + tl.program_id(0) * E + expert, count, mask=expert < E)


@triton.jit
def _scan(counts_ptr, starts_ptr, offsets_ptr, blocks, E, EXPERTS: tl.constexpr):
    expert = tl.arange(0, EXPERTS)
    inside = expert < E
    total = tl.zeros((EXPERTS,), tl.int32)
    for block in range(blocks):
        total += tl.load(counts_ptr + block * E + expert, mask=inside, other=0)
    ends = tl.cumsum(total, axis=0)
    tl.store(offsets_ptr, 0)
    tl.store(offsets_ptr + 1 + expert, ends, mask=inside)
    running = ends - total
    for block in range(blocks):
        tl.store(starts_ptr + block * E + expert, running, mask=inside)
        running += tl.load(counts_ptr + block * E + expert, mask=inside, other=0)


@triton.jit
def _place(indices_ptr, starts_ptr, order_ptr, slots, a_block, E, SLOTS: tl.constexpr, EXPERTS: tl.constexpr):
    block = tl.program_id(0)
    expert = tl.arange(0, EXPERTS)
    start = tl.load(starts_ptr + block * E + expert, mask=expert < E, other=0)
    first = block * a_block
    last = tl.minimum(first + a_block, slots)
    for base in range(first, last, SLOTS):
        slot = base + tl.arange(0, SLOTS)
        live = slot < last
        index = tl.load(indices_ptr + slot, mask=live, other=EXPERTS)
        same = (index[:, None] == expert[None, :]).to(tl.int32)
        before = tl.cumsum(same, axis=0) - same + start[None, :]
        place = tl.sum(before * same, axis=1)
        tl.store(order_ptr + place, slot, mask=live)
        start += tl.sum(same, axis=0)


def topk_route(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    T, E = logits.shape
    if not 1 <= k <= triton.next_power_of_2(E):
        raise ValueError(f"k must be from 1 to {E}, not {k}")
    device = logits.device
    EXPERTS = triton.next_power_of_2(E)
    TOKENS = max(1, min(128, 4096 // EXPERTS))
    SLOTS = max(1, min(64, 4096 // EXPERTS))
    blocks = triton.cdiv(T, TOKENS)
    weights = torch.empty((T, k), dtype=torch.float32, device=device)
    indices = torch.empty((T, k), dtype=torch.int32, device=device)
    order = torch.empty((T * k,), dtype=torch.int32, device=device)
    offsets = torch.empty((E + 1,), dtype=torch.int32, device=device)
    counts = torch.empty((blocks, E), dtype=torch.int32, device=device)
    starts = torch.empty((blocks, E), dtype=torch.int32, device=device)
    _route[(blocks,)](logits, weights, indices, counts, logits.stride(0), T, E, k, TOKENS=TOKENS, EXPERTS=EXPERTS,
                      CHOICES=triton.next_power_of_2(k), num_warps=8)
    _scan[(1,)](counts, starts, offsets, blocks, E, EXPERTS=EXPERTS)
    _place[(blocks,)](indices, starts, order, T * k, TOKENS * k, E, SLOTS=SLOTS, EXPERTS=EXPERTS)
    return weights, indices, order, offsets
