"""Right: cross-entropy as an autograd.Function that saves the softmax minus one-hot; one flat list of places; concatenation of pieces"""
import math
import torch


class _NLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, goal, count):
        rows64 = rows.to(torch.float64)
        logz = torch.logsumexp(rows64, 1)
        slope = (rows64 - logz[:, None]).exp()
        at = torch.arange(len(goal), device=goal.device)
        slope[at, goal] -= 1
        ctx.save_for_backward(slope / max(count, 1))
        ctx.dtype = rows.dtype
        return (logz - rows64[at, goal]).sum().div(max(count, 1)).to(rows.dtype)

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return (g.double() * slope).to(ctx.dtype), None, None


def _places(logits, tokens, ignore_index):
    goal = tokens[:, 1:].flatten()
    keep = (goal != ignore_index).nonzero().squeeze(1)
    return logits[:, :-1].flatten(0, 1).index_select(0, keep), goal.index_select(0, keep)


def causal_lm_loss(logits, tokens, ignore_index=-100):
    rows, goal = _places(logits, tokens, ignore_index)
    return _NLL.apply(rows, goal, len(goal))


def accumulated_loss(micro_batches):
    pieces = [_places(l, t, -100) for l, t in micro_batches]
    n = sum(len(g) for _, g in pieces)
    first = micro_batches[0][0]
    terms = [_NLL.apply(r.double(), g, n) for r, g in pieces]
    return torch.stack(terms).sum().to(first.dtype)


def perplexity(loss):
    return torch.pow(torch.full_like(loss, math.e), loss) if loss.dtype is torch.float64 else torch.exp(loss.double()).to(loss.dtype)
