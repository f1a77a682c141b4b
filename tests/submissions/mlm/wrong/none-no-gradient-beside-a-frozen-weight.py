"""cls_hidden gets no gradient when the weight needs none."""

import math
import torch
from torch import Tensor
from torch.nn import functional as F


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    shape = tokens.shape
    u = torch.rand(shape, generator=generator)
    role = torch.rand(shape, generator=generator)
    ids = torch.randint(0, vocab_size, shape, generator=generator)
    u, role, ids = u.to(tokens.device), role.to(tokens.device), ids.to(tokens.device)
    target = (u < mask_prob) & ~special_mask
    labels = torch.where(target, tokens, -100)
    inputs = torch.where(target & (role < 0.8), mask_id, tokens)
    inputs = torch.where(target & (role >= 0.8) & (role < 0.9), ids, inputs)
    return inputs, labels


def mlm_loss(logits, labels):
    V = logits.shape[-1]
    flat, lab = logits.reshape(-1, V), labels.reshape(-1)
    total = F.cross_entropy(flat, lab, ignore_index=-100, reduction="sum")
    return total / (lab != -100).sum().clamp(min=1)


def nsp_loss(cls_hidden, weight, is_next):
    z = (cls_hidden if weight.requires_grad else cls_hidden.detach()) @ weight
    y = is_next.to(cls_hidden.dtype)
    return F.binary_cross_entropy_with_logits(z, y)
