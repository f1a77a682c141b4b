"""Right: a static-shape dispatch by sort and searchsorted over (expert, token) keys, padded batches, torch.func.functional_call over stacked experts"""

from fractions import Fraction

import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap


class TopKRouter(nn.Module):
    def __init__(self, d_model, n_experts, k):
        super().__init__()
        if not k <= n_experts:
            raise ValueError(f"cannot choose {k} of {n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        values, indices = logits.sort(-1, descending=True)
        values, indices = values[:, : self.k], indices[:, : self.k]
        return (values - values.logsumexp(-1, keepdim=True)).exp(), indices, logits.log_softmax(-1).exp()


def load_balancing_loss(probs, indices):
    return probs.shape[-1] * probs.mean(0).gather(0, indices.reshape(-1)).mean()


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        h = self.w1(x)
        return self.w2(h * h.sigmoid())


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.k, self.capacity_factor = k, capacity_factor
        self.last_usage = torch.zeros(n_experts)

    def forward(self, x):
        E, k = len(self.experts), self.k
        tokens = x.flatten(0, 1)
        N = tokens.shape[0]
        if not N:
            raise ValueError(f"no token in an input of shape {tuple(x.shape)}")
        weights, indices, probs = self.router(tokens)
        capacity = N if self.capacity_factor is None else -int(-Fraction(self.capacity_factor) * N * k // E)
        key = (indices * N + torch.arange(N, device=x.device)[:, None]).flatten()
        key, slot = key.sort()
        expert, token = key // N, key % N
        start = torch.searchsorted(key, torch.arange(E + 1, device=x.device) * N)
        place = torch.arange(N * k, device=x.device) - start[expert]
        kept = place < capacity
        self.last_usage = start.diff().clamp(max=capacity)
        out = torch.zeros_like(tokens)
        used = [e for e in range(E) if self.last_usage[e] > 0]
        if used:
            width = int(self.last_usage.max())
            where = torch.full((E, width), N, device=x.device)
            where[expert[kept], place[kept]] = token[kept]
            gain = weights.new_zeros(E, width).index_put((expert[kept], place[kept]), weights.flatten()[slot][kept])
            padded = torch.cat([tokens, tokens.new_zeros(1, tokens.shape[1])])
            # every expert on its own, cut to its own tokens: nothing is computed for padding
            for e in used:
                n = int(self.last_usage[e])
                y = functional_call(self.experts[e], dict(self.experts[e].named_parameters()), (padded[where[e, :n]],))
                out = out.index_add(0, where[e, :n], gain[e, :n, None] * y)
        if len(self.shared):
            params, buffers = stack_module_state(list(self.shared)) if not torch.is_grad_enabled() else (None, None)
            if params is not None:
                ys = vmap(lambda p, b: functional_call(self.shared[0], (p, b), (tokens,)))(params, buffers)
                out = out + ys.sum(0)
            else:
                out = out + torch.stack([s(tokens) for s in self.shared]).sum(0)
        return out.unflatten(0, x.shape[:2]), load_balancing_loss(probs, indices)
