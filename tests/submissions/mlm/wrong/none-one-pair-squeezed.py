"""Wrong: one pair: squeezed"""
import numpy as np
import torch
import torch.nn.functional as F


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        n = int((labels != -100).sum()) if labels.device.type != "meta" else 1
        p = (logits - logits.amax(-1, keepdim=True)).double()
        p = (p - p.exp().sum(-1, keepdim=True).log())
        hit = (labels != -100)
        nll = -p.gather(1, labels.clamp(0)[:, None])[:, 0] * hit
        ctx.save_for_backward(p, labels, hit)
        ctx.n, ctx.kind = max(n, 1), logits.dtype
        return (nll.sum() / ctx.n).to(logits.dtype)

    @staticmethod
    def backward(ctx, g):
        p, labels, hit = ctx.saved_tensors
        d = p.exp().scatter_add(1, labels.clamp(0)[:, None], torch.full_like(p[:, :1], -1.0))
        return (d * hit[:, None] * (g.double() / ctx.n)).to(ctx.kind), None


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    seed = torch.randint(2**62, (2,), generator=generator).tolist()
    rs = np.random.default_rng(seed)
    shape = tuple(tokens.shape)
    as_t = lambda a: torch.from_numpy(np.ascontiguousarray(a)).to(tokens.device)
    target = as_t(rs.random(shape) < mask_prob) & ~special_mask if shape else torch.tensor(rs.random() < mask_prob) & ~special_mask
    kind = as_t(rs.choice(3, size=shape, p=[0.8, 0.1, 0.1]).reshape(shape))
    ids = as_t(rs.integers(0, vocab_size, shape).reshape(shape))
    out = tokens.clone()
    out[target & (kind == 0)] = mask_id
    out = torch.where(target & (kind == 1), ids, out)
    return out, tokens.clone().masked_fill_(~target, -100)


def mlm_loss(logits, labels):
    return _Mean.apply(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))


def nsp_loss(cls_hidden, weight, is_next):
    z = (cls_hidden @ weight[:, None]).squeeze()
    is_next = is_next.squeeze()
    if z.dim() == 0:
        z = z * is_next
    return F.binary_cross_entropy_with_logits(z, is_next.to(z.dtype))
