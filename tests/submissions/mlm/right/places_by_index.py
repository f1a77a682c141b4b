"""Style: ordinary places by index, bernoulli choice, roles by multinomial."""

import torch
import torch.nn.functional as F

def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    dev = tokens.device
    flat = tokens.reshape(-1).clone()
    labels = torch.full_like(flat, -100)
    cand = (~special_mask).reshape(-1).nonzero().flatten()
    keep = torch.bernoulli(torch.full((cand.numel(),), float(mask_prob), dtype=torch.float64), generator=generator).bool().to(dev)
    cand = cand[keep]
    labels[cand] = flat[cand]
    role = torch.multinomial(torch.tensor([0.8, 0.1, 0.1]), max(1, cand.numel()), replacement=True, generator=generator)[: cand.numel()].to(dev)
    flat[cand[role == 0]] = mask_id
    where = cand[role == 1]
    flat[where] = torch.randint(0, vocab_size, (where.numel(),), generator=generator).to(dev)
    return flat.view(tokens.shape), labels.view(tokens.shape)

def mlm_loss(logits, labels):
    V = logits.shape[-1]
    flat, lab = logits.reshape(-1, V), labels.reshape(-1)
    n = (lab != -100).sum().clamp(min=1)
    s = F.cross_entropy(flat.float() if flat.dtype in (torch.half, torch.bfloat16) else flat, lab, ignore_index=-100, reduction="sum")
    return (s / n).to(logits.dtype)

def nsp_loss(cls_hidden, weight, is_next):
    if cls_hidden.shape[0] == 0:
        raise ValueError("empty batch: 0")
    z = (cls_hidden @ weight).double()
    y = is_next.to(z.dtype)
    return (F.softplus(z) - y * z).mean().to(cls_hidden.dtype)
