"""Wrong: counts through float32"""
import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    def __init__(self, d_model: int, d_ff: int, n_experts: int, k: int, split: int = 1, n_shared: int = 1) -> None:
        nn.Module.__init__(self)
        width, left = divmod(d_ff, split)
        if left:
            raise ValueError(f"d_ff = {d_ff} is not a multiple of split = {split}")
        if k > n_experts:
            raise ValueError(f"k = {k} > n_experts = {n_experts}")
        self.gate = nn.Linear(d_model, split * n_experts, bias=False)
        make = lambda n: nn.ModuleList([SwiGLU(d_model, width) for _ in range(n)])
        self.experts, self.shared = make(split * n_experts), make(n_shared)
        self.slots = split * k

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = x.reshape(-1, x.shape[-1])
        logits = self.gate(tokens)
        top, who = torch.topk(logits, self.slots, dim=-1, sorted=False)
        weight = top.softmax(-1)
        y = torch.zeros_like(tokens) if not len(self.shared) else torch.stack([s(tokens) for s in self.shared]).sum(0)
        order = who.flatten().argsort()
        loads = torch.bincount(who.flatten(), minlength=len(self.experts))
        rows = torch.div(order, self.slots, rounding_mode="trunc")
        for e, (r, o) in enumerate(zip(rows.split(loads.tolist()), order.split(loads.tolist()))):
            if r.numel():
                y = y.index_add(0, r, self.experts[e](tokens[r]) * weight.flatten()[o, None])
        f = loads.to(x.dtype) / who.numel()
        return y.reshape(x.shape), len(self.experts) * torch.dot(f, logits.softmax(-1).mean(0))


def moe_parameter_counts(d_model: int, d_ff: int, n_experts: int, k: int, n_shared: int = 0) -> tuple[int, int]:
    return (int(torch.tensor(3.0 * d_model * d_ff).item() * (n_experts + n_shared)), 3 * d_model * d_ff * (k + n_shared))


def group_limited_topk(scores: Tensor, k: int, n_groups: int, top_groups: int) -> tuple[Tensor, Tensor]:
    E = scores.size(-1)
    if E % n_groups or k > E:
        raise ValueError(f"E={E}, n_groups={n_groups}, k={k}")
    size = E // n_groups
    groups = scores.unflatten(-1, (n_groups, size))
    two = groups.topk(min(2, size), dim=-1).values.sum(-1)
    chosen = F.one_hot(two.topk(top_groups, dim=-1).indices, n_groups).sum(1).bool()
    ranked = torch.where(chosen.repeat_interleave(size, 1), scores, float("-inf"))
    idx = ranked.topk(k, dim=-1).indices
    w = scores.gather(-1, idx)
    return F.normalize(w, p=1, dim=-1), idx
