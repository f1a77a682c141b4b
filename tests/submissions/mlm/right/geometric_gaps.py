"""Right: targets by geometric gaps between them, roles by an integer 0..9, Python's random seeded from the generator; loss by boolean indexing; NSP by an autograd.Function"""

import math

import torch
from torch.nn import functional as F


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    import random
    luck = random.Random(int(torch.randint(2**62, (), generator=generator)))
    places = [i for i, s in enumerate(special_mask.flatten().tolist()) if not s]
    old = tokens.flatten().tolist()
    new, labels = list(old), [-100] * len(old)
    at = -1
    while mask_prob > 0:
        gap = 0 if mask_prob >= 1 else int(math.log(1.0 - luck.random()) / math.log1p(-mask_prob))
        at += 1 + gap
        if at >= len(places):
            break
        i = places[at]
        labels[i] = old[i]
        match luck.randrange(10):
            case 8:
                new[i] = luck.randrange(vocab_size)
            case 9:
                pass
            case _:
                new[i] = mask_id
    like = dict(dtype=tokens.dtype, device=tokens.device)
    return torch.tensor(new, **like).reshape(tokens.shape), torch.tensor(labels, **like).reshape(tokens.shape)


def mlm_loss(logits, labels):
    keep = labels >= 0
    rows, goal = logits[keep].double(), labels[keep]
    n = max(goal.numel(), 1)
    total = rows.logsumexp(-1).sum() - rows.take_along_dim(goal[:, None], 1).sum()
    return total.div(n).type_as(logits)


class _Bce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, y):
        ctx.save_for_backward(z, y)
        return F.softplus(torch.where(y, -z, z)).mean()
    @staticmethod
    def backward(ctx, g):
        z, y = ctx.saved_tensors
        return g * (z.sigmoid() - y.to(z)) / z.numel(), None

def nsp_loss(cls_hidden, weight, is_next):
    return _Bce.apply(torch.einsum("bd,d->b", cls_hidden, weight), is_next != 0)
