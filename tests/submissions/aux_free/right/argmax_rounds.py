"""Style: the best expert k times, each struck out; weights by a one-hot product."""

import torch
from torch import nn


class BiasBalancedRouter(nn.Module):
    def __init__(self, d_model, n_experts, k, bias_step=1e-3):
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k {k} > n_experts {n_experts}")
        self.k, self.n, self.step = k, n_experts, bias_step
        self.gate = nn.Linear(d_model, n_experts, bias=False)
        self.register_buffer("bias", torch.zeros(n_experts))

    def forward(self, x):
        scores = torch.sigmoid(self.gate(x))
        key = (scores + self.bias).detach().clone()
        got = []
        for _ in range(self.k):
            best = key.argmax(-1)
            got.append(best)
            key.scatter_(-1, best[:, None], float("-inf"))
        idx = torch.stack(got[::-1], -1)
        w = torch.einsum("nke,ne->nk", nn.functional.one_hot(idx, self.n).to(scores), scores)
        return w / w.sum(-1, keepdim=True), idx, scores

    @torch.no_grad()
    def update_bias(self, indices):
        load = torch.bincount(indices.reshape(-1), minlength=self.n).double()
        mean = load.mean()
        self.bias += self.step * torch.sign(mean - load).to(self.bias.dtype)
