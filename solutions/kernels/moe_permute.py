"""Routing and permutation of a mixture of experts: from router logits to tokens sorted by expert.

Top-k routing as in Mixtral (Jiang et al. 2024, arXiv:2401.04088, section 2.1); the stable counting sort that
MegaBlocks (Gale et al. 2022, arXiv:2211.15841, section 4) does before its grouped products.

    T   tokens        E   experts        k   experts a token        slot = token * k + choice

Three launches.
1. Route: a block of tokens, all experts.  k times the largest logit, ties to the lowest index; softmax over the k.
   The block also counts its slots per expert: counts (blocks, E).
2. Offsets: one program runs down the blocks' counts.  Where an expert begins in the sorted order, and how many of its
   slots lie in earlier blocks.
3. Place: a slot goes to its expert's beginning + its slots in earlier blocks + those before it in this block.

No atomics: the order in which programs run would show in `order`.  Bytes: the logits once, 4 T E; weights, indices and
order written and indices read again, 16 T k; the counts are small beside them when a block has many tokens.
"""

import torch
import triton
import triton.language as tl

BLOCK_TOKENS = 128
TABLE_ELEMENTS = 16384


@triton.jit
def _route_kernel(
    logits_ptr, weights_ptr, indices_ptr, counts_ptr, logits_stride, T, E,
    K: tl.constexpr, TOKENS: tl.constexpr, EXPERTS: tl.constexpr, CHOICES: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    tokens = block.to(tl.int64) * TOKENS + tl.arange(0, TOKENS)  # (TOKENS,)
    experts = tl.arange(0, EXPERTS)  # (EXPERTS,)
    choices = tl.arange(0, CHOICES)  # (CHOICES,)
    real = tokens < T
    inside = real[:, None] & (experts < E)[None, :]
    at = tokens[:, None] * logits_stride + experts[None, :]
    left = tl.load(logits_ptr + at, mask=inside, other=-float("inf"))  # (TOKENS, EXPERTS)
    first = tl.max(left, axis=1)
    weights = tl.zeros([TOKENS, CHOICES], dtype=tl.float32)
    indices = tl.zeros([TOKENS, CHOICES], dtype=tl.int32)
    counts = tl.zeros([EXPERTS], dtype=tl.int32)
    for j in tl.static_range(K):
        best = tl.max(left, axis=1)  # (TOKENS,)
        is_best = left == best[:, None]
        index = tl.min(tl.where(is_best, experts[None, :], EXPERTS), axis=1)
        here = (choices == j)[None, :]
        weights = tl.where(here, tl.exp(best - first)[:, None], weights)
        indices = tl.where(here, index[:, None], indices)
        chosen = experts[None, :] == index[:, None]
        counts += tl.sum((chosen & real[:, None]).to(tl.int32), axis=0)
        left = tl.where(chosen, -float("inf"), left)
    weights = weights / tl.sum(weights, axis=1)[:, None]
    slots = tokens[:, None] * K + choices[None, :]
    kept = real[:, None] & (choices < K)[None, :]
    tl.store(weights_ptr + slots, weights, mask=kept)
    tl.store(indices_ptr + slots, indices, mask=kept)
    tl.store(counts_ptr + block * E + experts, counts, mask=experts < E)


@triton.jit
def _offsets_kernel(counts_ptr, earlier_ptr, offsets_ptr, blocks, slots, E, EXPERTS: tl.constexpr):
    experts = tl.arange(0, EXPERTS)
    inside = experts < E
    earlier = tl.zeros([EXPERTS], dtype=tl.int32)
    for block in range(blocks):
        tl.store(earlier_ptr + block * E + experts, earlier, mask=inside)
        earlier += tl.load(counts_ptr + block * E + experts, mask=inside, other=0)
    # After the last block `earlier` is each expert's total; a start is the sum of the totals before it.
    starts = tl.cumsum(earlier, axis=0) - earlier
    tl.store(offsets_ptr + experts, starts, mask=inside)
    tl.store(offsets_ptr + E, slots)


@triton.jit
def _place_kernel(
    indices_ptr, earlier_ptr, offsets_ptr, order_ptr, slots, E,
    TOKENS: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    local = tl.arange(0, SLOTS)  # (SLOTS,)
    slot = block * (TOKENS * K) + local
    inside = (local < TOKENS * K) & (slot < slots)
    expert = tl.load(indices_ptr + slot, mask=inside, other=E)
    same = (expert[:, None] == tl.arange(0, EXPERTS)[None, :]).to(tl.int32)  # (SLOTS, EXPERTS)
    before = tl.cumsum(same, axis=0) - same
    rank = tl.sum(before * same, axis=1)  # this expert's slots before this one, in this block
    start = tl.load(offsets_ptr + expert, mask=inside, other=0)
    earlier = tl.load(earlier_ptr + block * E + expert, mask=inside, other=0)
    place = start + earlier + rank
    tl.store(order_ptr + place, slot, mask=inside)


def topk_route(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose k experts for each token and sort the chosen slots by expert.

    A slot is one choice of one token: slot = token * k + choice, where choice 0 is the token's largest logit.

    Args:
        logits: (T, E) float32, finite.  The last dimension is contiguous; rows may lie any distance apart.
        k: experts a token, 1 <= k <= E.

    Returns:
        weights: (T, k) float32, the softmax over the token's k chosen logits, by falling logit.
        indices: (T, k) int32, the chosen experts, by falling logit; of equal logits the lower index comes first.
        order: (T * k,) int32, order[p] = the slot at place p when slots are sorted by expert, slots of one expert by
            rising slot number.
        offsets: (E + 1,) int32, expert e's slots are order[offsets[e] : offsets[e + 1]].

    Raises:
        ValueError: k is not between 1 and E.

    Cost: the logits are read once; the work on slots does not grow with E * T.
    """
    T, E = logits.shape
    if not 1 <= k <= E:
        raise ValueError(f"k must be between 1 and the number of experts {E}, got {k}")
    device, experts, choices = logits.device, triton.next_power_of_2(E), triton.next_power_of_2(k)
    # The place kernel holds a (slots of a block, experts) table on chip; as many tokens as fit keep the counts few.
    tokens = min(max(TABLE_ELEMENTS // (experts * choices), 1), BLOCK_TOKENS, triton.next_power_of_2(T))
    blocks = triton.cdiv(T, tokens)
    weights = torch.empty((T, k), dtype=torch.float32, device=device)
    indices = torch.empty((T, k), dtype=torch.int32, device=device)
    order = torch.empty(T * k, dtype=torch.int32, device=device)
    offsets = torch.empty(E + 1, dtype=torch.int32, device=device)
    counts = torch.empty((blocks, E), dtype=torch.int32, device=device)
    earlier = torch.empty((blocks, E), dtype=torch.int32, device=device)
    _route_kernel[(blocks,)](
        logits, weights, indices, counts, logits.stride(0), T, E,
        K=k, TOKENS=tokens, EXPERTS=experts, CHOICES=choices, num_warps=8,
    )  # fmt: skip
    _offsets_kernel[(1,)](counts, earlier, offsets, blocks, T * k, E, EXPERTS=experts, num_warps=1)
    _place_kernel[(blocks,)](
        indices, earlier, offsets, order, T * k, E,
        TOKENS=tokens, K=k, SLOTS=triton.next_power_of_2(tokens * k), EXPERTS=experts, num_warps=8,
    )  # fmt: skip
    return weights, indices, order, offsets
