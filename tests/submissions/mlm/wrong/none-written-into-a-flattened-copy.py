"""Wrong: writes into a flattened copy: nothing happens for transposed tokens"""

import math

import torch
from torch.nn import functional as F


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    u = torch.rand(tokens.numel(), generator=generator).to(tokens.device)
    role = torch.rand(tokens.numel(), generator=generator).to(tokens.device)
    ids = torch.randint(vocab_size, (tokens.numel(),), generator=generator).to(tokens.device)
    target = (u < mask_prob) & ~special_mask.reshape(-1)
    inputs = tokens.clone()
    flat = inputs.reshape(-1)
    flat.copy_(torch.where(target & (role < 0.8), torch.full_like(flat, mask_id), torch.where(target & (role < 0.9), ids, flat)))
    labels = torch.where(target, tokens.reshape(-1), torch.full_like(flat, -100)).reshape(tokens.shape)
    return inputs, labels


def mlm_loss(logits, labels):
    V = logits.shape[-1]
    flat = logits.reshape(-1, V)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    goal = labels.reshape(-1)
    real = goal != -100
    picked = F.cross_entropy(flat, goal.masked_fill(~real, 0), reduction="none")
    return (picked.where(real, torch.zeros_like(picked)).sum() / real.sum().clamp(min=1)).to(logits.dtype)


def nsp_loss(cls_hidden, weight, is_next):
    z = (cls_hidden * weight).sum(-1)
    y = is_next.to(z.dtype)
    return F.binary_cross_entropy_with_logits(z, y).to(cls_hidden.dtype)
