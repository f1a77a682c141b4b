"""Wrong, and in no catalogue: random ids are drawn once for all rows."""

import torch
import torch.nn.functional as F

def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    dev = tokens.device
    u = torch.rand(tokens.shape, generator=generator).to(dev)
    v = torch.rand(tokens.shape, generator=generator).to(dev)
    rid = torch.randint(vocab_size, tokens.shape[-1:], generator=generator).to(dev).expand(tokens.shape)
    target = (u < mask_prob) & ~special_mask
    labels = torch.where(target, tokens, -100)
    inputs = torch.where(target & (v < 0.8), mask_id, tokens)
    inputs = torch.where(target & (v >= 0.8) & (v < 0.9), rid, inputs)
    return inputs, labels

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
