"""Comparison with arange in place of counting, and the masked loss as a subset of the batch."""

import torch


def _loss(p, idx):
    experts = torch.arange(p.shape[-1], device=p.device)
    hits = (idx.unsqueeze(-1) == experts).flatten(0, 1).sum(0)  # (E,)
    f = hits / hits.sum()
    P = p.float().mean(0) if p.dtype in (torch.float16, torch.bfloat16) else p.mean(0)
    return ((f * P).mean() * len(experts) ** 2).type_as(p)


def load_balancing_loss(probs, indices):
    if not len(probs):
        raise ValueError("load_balancing_loss of 0 tokens")
    return _loss(probs, indices)


def expert_usage_fraction(indices, n_experts):
    if not indices.numel():
        raise ValueError("expert_usage_fraction of 0 tokens")
    hits = torch.stack([(indices == e).sum() for e in range(n_experts)])
    return hits / hits.sum()


def masked_load_balancing_loss(probs, indices, token_mask):
    rows = token_mask.nonzero().squeeze(1)
    if not len(rows):
        raise ValueError(f"{len(token_mask)} tokens, all padding")
    return _loss(probs.index_select(0, rows), indices.index_select(0, rows))


def token_fraction_loss(logits, k, coef=0.01):
    if not len(logits):
        raise ValueError("token_fraction_loss of 0 tokens")
    if k > logits.shape[-1]:
        raise ValueError(f"k = {k} of {logits.shape[-1]} experts")
    order = logits.argsort(dim=-1, descending=True)
    return coef * k * _loss(logits.softmax(-1), order[:, :k])
