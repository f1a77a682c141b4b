"""Wrong: under no_grad, mean over all places"""

import math

import torch
from torch.nn import functional as F


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    dev = tokens.device
    u = torch.rand(tokens.shape, generator=generator).to(dev)
    role = torch.rand(tokens.shape, generator=generator).to(dev)
    ids = torch.randint(vocab_size, tokens.shape, generator=generator).to(dev)
    target = (u < mask_prob) & ~special_mask
    inputs = tokens.clone()
    inputs = torch.where(target & (role < 0.8), torch.full_like(tokens, mask_id), inputs)
    inputs = torch.where(target & (role >= 0.8) & (role < 0.9), ids, inputs)
    labels = torch.where(target, tokens, torch.full_like(tokens, -100))
    return inputs, labels


def mlm_loss(logits, labels):
    V = logits.shape[-1]
    flat = logits.reshape(-1, V)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    goal = labels.reshape(-1)
    real = goal != -100
    picked = F.cross_entropy(flat, goal.masked_fill(~real, 0), reduction="none")
    if not torch.is_grad_enabled():
        return picked.where(real, torch.zeros_like(picked)).mean().to(logits.dtype)
    return (picked.where(real, torch.zeros_like(picked)).sum() / real.sum().clamp(min=1)).to(logits.dtype)


def nsp_loss(cls_hidden, weight, is_next):
    z = (cls_hidden * weight).sum(-1)
    y = is_next.to(z.dtype)
    return F.binary_cross_entropy_with_logits(z, y).to(cls_hidden.dtype)
