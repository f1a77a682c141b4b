"""P from a softmax over the chosen logits.

Written as: plain Python counters and a sum over experts.
"""

from collections import Counter

import torch


def load_balancing_loss(probs, indices):
    n, e = probs.shape
    if n == 0:
        raise ValueError("n = 0")
    seen = Counter(i for row in indices.tolist() for i in row)
    slots = sum(seen.values())
    loss = 0
    for i in range(e):
        loss = loss + seen[i] / slots * probs[:, i].float().mean()
    return (loss * e).to(probs.dtype)


def expert_usage_fraction(indices, n_experts):
    seen = Counter(indices.flatten().tolist())
    if not seen:
        raise ValueError("n = 0")
    total = indices.numel()
    return torch.tensor([seen[i] / total for i in range(n_experts)], device=indices.device)


def masked_load_balancing_loss(probs, indices, token_mask):
    kept = [i for i, real in enumerate(token_mask.tolist()) if real]
    if not kept:
        raise ValueError(f"0 of {len(token_mask)} tokens are real")
    return load_balancing_loss(torch.stack([probs[i] for i in kept]), torch.stack([indices[i] for i in kept]))


def token_fraction_loss(logits, k, coef=0.01):
    n, e = logits.shape
    if n == 0 or k > e:
        raise ValueError(f"n = {n}, k = {k}, e = {e}")
    top = logits.float().topk(k)
    rows = torch.full_like(logits, -torch.inf).float().scatter(1, top.indices, top.values)
    probs = torch.softmax(rows, dim=-1)
    seen = Counter()
    for row in logits.tolist():
        seen.update(sorted(range(e), key=lambda i: row[i])[-k:])
    loss = 0
    for i in range(e):
        loss = loss + seen[i] / n * probs[:, i].mean()
    return (coef * e * loss).to(logits.dtype)
