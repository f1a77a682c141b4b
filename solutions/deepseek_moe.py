"""DeepSeekMoE: fine-grained experts, shared experts, and routing limited to groups of experts.

Papers: Dai et al. 2024, DeepSeekMoE, arXiv:2401.06066, section 3 (split every expert into m, choose m k of m E, keep
some always on); DeepSeek-AI 2024, DeepSeek-V3, arXiv:2412.19437, section 2.1.2 (a group's affinity is the sum of its
two best experts). The balance loss is that of Switch, arXiv:2101.03961, eq. 4-6, with f over slots.

    p = softmax(x W_g) over m E experts       K = the m k largest       g_i = p_i / sum_{j in K} p_j
    y = sum_{i in K} g_i E_i(x) + sum_s S_s(x),      every E_i and S_s a SwiGLU of width d_ff / m

N tokens, E experts before the split, m = split, d = d_model, F = d_ff. Cost per token: (m k + n_s) SwiGLUs of width
F / m, 6 d F (k + n_s / m) FLOPs: the same as k whole experts, with C(m E, m k) combinations in place of C(E, k).
Group-limited routing bounds the devices a token is sent to, and so the all-to-all, by top_groups.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    """w_down(silu(w_gate(x)) * w_up(x)), no bias."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))


class DeepSeekMoE(nn.Module):
    """Mixture-of-experts layer with fine-grained and shared experts.

    Args:
        d_model: width of a token.
        d_ff: hidden width of an expert before the split.
        n_experts: E, routed experts before the split.
        k: experts per token before the split.
        split: m; there are m * n_experts routed experts of width d_ff // m, of which a token uses m * k.
        n_shared: experts of width d_ff // m that every token passes through, added ungated.

    Attributes:
        gate: nn.Linear(d_model, m * n_experts) without bias.
        experts: nn.ModuleList of m * n_experts SwiGLU.
        shared: nn.ModuleList of n_shared SwiGLU.

    Raises:
        ValueError: d_ff is not a multiple of split, or k > n_experts.
    """

    def __init__(self, d_model: int, d_ff: int, n_experts: int, k: int, split: int = 1, n_shared: int = 1) -> None:
        super().__init__()
        if split < 1 or d_ff % split != 0:
            raise ValueError(f"d_ff must be a multiple of split, got d_ff={d_ff} and split={split}")
        if not 1 <= k <= n_experts:
            raise ValueError(f"k must be between 1 and n_experts, got k={k} and n_experts={n_experts}")
        n_routed = split * n_experts
        self.n_chosen = split * k
        width = d_ff // split
        self.gate = nn.Linear(d_model, n_routed, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, width) for _ in range(n_routed))
        self.shared = nn.ModuleList(SwiGLU(d_model, width) for _ in range(n_shared))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: (B, T, d_model).

        Returns:
            y: (B, T, d_model), x's dtype; routed plus shared experts, without the residual.
            aux: scalar, x's dtype; n * sum_i f_i P_i over the n routed experts, f_i the share of the slots given to
                expert i (sums to 1), P_i its mean probability; not scaled by a coefficient.
        """
        B, T, d = x.shape
        if B * T == 0:
            raise ValueError(f"a batch without tokens cannot be routed, got x of shape {tuple(x.shape)}")
        flat = x.reshape(B * T, d)  # (N, d)
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = self.gate(flat).to(wide)  # (N, m E)
        probs = torch.softmax(logits, dim=-1)
        chosen, indices = probs.topk(self.n_chosen, dim=-1)  # (N, m k)
        weights = chosen / chosen.sum(dim=-1, keepdim=True)

        n_routed = len(self.experts)
        counts = torch.bincount(indices.reshape(-1), minlength=n_routed)
        f = counts.to(wide) / indices.numel()  # (m E,), sums to 1, no gradient
        P = probs.mean(dim=0)
        aux = n_routed * (f * P).sum()

        y = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(indices == e)
            if token.numel() == 0:
                continue
            gated = weights[token, slot, None].to(x.dtype) * expert(flat[token])
            y.index_add_(0, token, gated.to(y.dtype))
        for expert in self.shared:
            y = y + expert(flat)
        return y.view(B, T, d), aux.to(x.dtype)


def moe_parameter_counts(d_model: int, d_ff: int, n_experts: int, k: int, n_shared: int = 0) -> tuple[int, int]:
    """Parameters of one layer's SwiGLU experts.

    Args:
        d_model: width of a token.
        d_ff: hidden width of one expert.
        n_experts: routed experts.
        k: routed experts per token.
        n_shared: experts that every token uses, of the same width.

    Returns:
        total: parameters of all expert matrices, routed and shared.
        active: those that one token's forward uses. Router, attention and embeddings are not counted.
    """
    if k > n_experts:
        raise ValueError(f"k must be at most n_experts, got k={k} and n_experts={n_experts}")
    per_expert = 3 * d_model * d_ff  # gate, up and down
    total = (n_experts + n_shared) * per_expert
    active = (k + n_shared) * per_expert
    return total, active


def group_limited_topk(scores: Tensor, k: int, n_groups: int, top_groups: int) -> tuple[Tensor, Tensor]:
    """The k best experts of each token among those in its best groups.

    Experts lie in n_groups groups of consecutive numbers and equal size. A group's score is the sum of its two best
    experts' scores. Only experts of the top_groups best groups can be chosen.

    Args:
        scores: (N, E), non-negative.
        k: experts per token.
        n_groups: groups of E / n_groups experts each.
        top_groups: groups a token may use.

    Returns:
        weights: (N, k), scores' dtype; the chosen scores divided by their sum.
        indices: (N, k), int64; the chosen experts, all different and in any order; weights[n, j] belongs to
            indices[n, j].

    Raises:
        ValueError: E is not a multiple of n_groups, or k > E.
    """
    n_tokens, n_experts = scores.shape
    if n_experts % n_groups != 0:
        raise ValueError(f"E must be a multiple of n_groups, got E={n_experts} and n_groups={n_groups}")
    size = n_experts // n_groups
    if not 1 <= k <= top_groups * size or top_groups > n_groups:
        raise ValueError(f"cannot choose k={k} of E={n_experts} experts in {top_groups} of {n_groups} groups")
    grouped = scores.reshape(n_tokens, n_groups, size)
    best_two = grouped.topk(min(2, size), dim=-1).values
    group_scores = best_two.sum(dim=-1)  # (N, n_groups)
    best_groups = group_scores.topk(top_groups, dim=-1).indices  # (N, top_groups)
    allowed = torch.zeros_like(group_scores, dtype=torch.bool).scatter(1, best_groups, True)
    open_experts = allowed.repeat_interleave(size, dim=1)  # (N, E)
    ranked = scores.masked_fill(~open_experts, float("-inf"))  # not 0: a score of 0 may be allowed
    indices = ranked.topk(k, dim=-1).indices
    picked = scores.gather(1, indices)  # (N, k)
    weights = picked / picked.sum(dim=-1, keepdim=True)
    return weights, indices
