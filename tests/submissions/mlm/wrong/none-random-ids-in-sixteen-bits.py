"""Wrong: random ids through int16"""
import torch
import torch.nn.functional as F
from torch import Tensor


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    n = tokens.numel()
    roles = torch.tensor([1 - mask_prob, 0.8 * mask_prob, 0.1 * mask_prob, 0.1 * mask_prob], dtype=torch.float64)
    role = torch.multinomial(roles, max(n, 1), replacement=True, generator=generator)[:n].view(tokens.shape).to(tokens.device)
    role = role.masked_fill(special_mask, 0)
    ids = torch.randint(vocab_size, tokens.shape, generator=generator).to(torch.int16).long().to(tokens.device)
    inputs = torch.where(role == 1, mask_id, torch.where(role == 2, ids, tokens))
    return inputs, torch.where(role > 0, tokens, -100)


def mlm_loss(logits, labels):
    hit = labels.ne(-100)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    own = wide.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    each = torch.where(hit, wide.logsumexp(-1) - own, 0)
    return (each.sum() / hit.sum().clamp(min=1)).to(logits.dtype)


def nsp_loss(cls_hidden, weight, is_next):
    kind = torch.promote_types(cls_hidden.dtype, torch.float32)
    z = torch.mv(cls_hidden.to(kind), weight.to(kind))
    sign = 1 - 2 * is_next.to(kind)
    return F.softplus(sign * z).mean().to(cls_hidden.dtype)
