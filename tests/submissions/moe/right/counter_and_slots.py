"""Right: plain Python bookkeeping with a Counter and dataclass slots, batched per expert at the end; usage is a property"""
from __future__ import annotations
from collections import Counter, defaultdict
from dataclasses import dataclass
import math
import torch
from torch import nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Slot:
    token: int
    column: int


class TopKRouter(nn.Module):
    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        super().__init__()
        if k > n_experts:
            raise ValueError(f"k {k} E {n_experts}")
        self.top_k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x):
        logits = self.gate(x)
        _, indices = torch.topk(logits.detach(), self.top_k, sorted=False)
        return logits.gather(-1, indices).softmax(-1), indices, logits.softmax(-1)


def load_balancing_loss(probs, indices):
    counts = Counter(indices.flatten().tolist())
    return sum(n * probs[:, e].mean() for e, n in counts.items()) * probs.shape[1] / indices.numel()


class Expert(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.add_module("w1", nn.Linear(d_model, d_ff))
        self.add_module("w2", nn.Linear(d_ff, d_model))

    def forward(self, x):
        return nn.Sequential(self.w1, nn.SiLU(), self.w2)(x)


class MoELayer(nn.Module):
    def __init__(self, d_model, d_ff, n_experts, k=2, n_shared=0, capacity_factor=None):
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_experts)])
        self.shared = nn.ModuleList([Expert(d_model, d_ff) for _ in range(n_shared)])
        self.cf = capacity_factor
        self._usage = [0] * n_experts

    @property
    def last_usage(self):
        return torch.tensor(self._usage)

    def forward(self, x):
        B, T, d = x.shape
        if B * T == 0:
            raise ValueError(f"B {B} T {T}")
        tokens = x.reshape(B * T, d)
        weights, indices, probs = self.router(tokens)
        room = math.inf if self.cf is None else math.ceil(self.cf * B * T * self.router.top_k / len(self.experts))
        queues = defaultdict(list)
        for n, row in enumerate(indices.tolist()):
            for j, e in enumerate(row):
                if len(queues[e]) < room:
                    queues[e].append(Slot(n, j))
        self._usage = [len(queues[e]) for e in range(len(self.experts))]
        rows = [[] for _ in range(B * T)]
        for e, queue in queues.items():
            if queue:
                answers = self.experts[e](torch.stack([tokens[s.token] for s in queue]))
                for s, a in zip(queue, answers):
                    rows[s.token].append(a * weights[s.token, s.column])
        y = torch.stack([sum(r) if r else torch.zeros_like(tokens[0]) for r in rows])
        for s in self.shared:
            y = y + s(tokens)
        return y.view(B, T, d), load_balancing_loss(probs, indices)
