"""A mixture of experts that runs every expert on every token while gradients are kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class TopKRouter(nn.Module):
    """Chooses k of n_experts experts for every token.

    Args:
        d_model: width of a token.
        n_experts: E, experts to choose from.
        k: experts per token.

    Attributes:
        gate: nn.Linear(d_model, n_experts) without bias; its output is the router's logits.

    Raises:
        ValueError: k > n_experts.
    """

    def __init__(self, d_model: int, n_experts: int, k: int) -> None:
        super().__init__()
        if not 1 <= k <= n_experts:
            raise ValueError(f"k must be between 1 and n_experts, got k={k} and n_experts={n_experts}")
        self.k = k
        self.gate = nn.Linear(d_model, n_experts, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Route N tokens.

        Args:
            x: (N, d_model), any floating dtype.

        Returns:
            weights: (N, k), x's dtype; each row sums to 1, also for k = 1.
            indices: (N, k), int64; the chosen experts of each token, all different and in any order;
                weights[n, j] belongs to indices[n, j].
            probs: (N, E), x's dtype; the router's softmax over all experts.
        """
        logits = self.gate(x)  # (N, E)
        # Half-precision probabilities tie and flip the choice; the softmax over E numbers costs nothing in float32.
        wide = torch.promote_types(x.dtype, torch.float32)
        probs = torch.softmax(logits.to(wide), dim=-1)  # (N, E)
        chosen, indices = probs.topk(self.k, dim=-1)  # (N, k) each
        weights = chosen / chosen.sum(dim=-1, keepdim=True)  # = softmax over the k chosen logits
        return weights.to(x.dtype), indices, probs.to(x.dtype)


def load_balancing_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """Auxiliary balance loss E * sum_i f_i P_i, not scaled by any coefficient.

    f_i is the share of the N*k slots that expert i was given (sums to 1), P_i its mean router probability. The loss is
    1 when the load is balanced. Gradients reach ``probs`` through P only.

    Args:
        probs: (N, E), the router's probabilities over all experts.
        indices: (N, k), int64, the chosen experts of each token.

    Returns:
        Scalar tensor of probs' dtype.
    """
    n_tokens, n_experts = probs.shape
    if n_tokens == 0:
        raise ValueError(f"the balance loss of 0 tokens has no meaning, got probs of shape {tuple(probs.shape)}")
    wide = torch.promote_types(probs.dtype, torch.float32)  # bfloat16 cannot count beyond 256
    counts = torch.bincount(indices.reshape(-1), minlength=n_experts)  # (E,) integers: no gradient
    f = counts.to(wide) / indices.numel()  # (E,), sums to 1
    P = probs.to(wide).mean(dim=0)  # (E,), sums to 1
    loss = n_experts * (f * P).sum()
    return loss.to(probs.dtype)


class Expert(nn.Module):
    """A two-layer MLP, w2(silu(w1(x))).

    Args:
        d_model: width in and out.
        d_ff: hidden width.

    Attributes:
        w1: nn.Linear(d_model, d_ff) with bias.
        w2: nn.Linear(d_ff, d_model) with bias.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(d_model, d_ff)
        self.w2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., d_model) to (..., d_model)."""
        return self.w2(F.silu(self.w1(x)))


class MoELayer(nn.Module):
    """Mixture-of-experts feed-forward layer.

    Args:
        d_model: width of a token.
        d_ff: hidden width of every expert, shared ones too.
        n_experts: E, routed experts.
        k: routed experts per token.
        n_shared: experts that every token passes through, ungated, added to the routed sum.
        capacity_factor: None: no token is dropped. Otherwise an expert takes at most
            ceil(capacity_factor * N * k / E) of the N = B*T tokens of one forward: the first that chose it, in token
            order. A slot beyond that adds 0 to its token, and the weights of the token's other slots stay as they are.

    Attributes:
        router: TopKRouter(d_model, n_experts, k).
        experts: nn.ModuleList of n_experts Expert.
        shared: nn.ModuleList of n_shared Expert.
        last_usage: (E,), how many tokens each routed expert really processed in the last forward.

    Raises:
        ValueError: k > n_experts.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        n_experts: int,
        k: int = 2,
        n_shared: int = 0,
        capacity_factor: float | None = None,
    ) -> None:
        super().__init__()
        self.router = TopKRouter(d_model, n_experts, k)
        self.experts = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_experts))
        self.shared = nn.ModuleList(Expert(d_model, d_ff) for _ in range(n_shared))
        self.capacity_factor = capacity_factor
        self.last_usage = torch.zeros(n_experts, dtype=torch.long)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the layer.

        Args:
            x: (B, T, d_model).

        Returns:
            y: (B, T, d_model), x's dtype; the layer's output without the residual.
            aux: scalar, load_balancing_loss of the router's choice before any slot is dropped, not scaled.

        Raises:
            ValueError: no token (B*T = 0).
        """
        B, T, d = x.shape
        if B * T == 0:
            raise ValueError(f"a batch without tokens cannot be routed, got x of shape {tuple(x.shape)}")
        flat = x.reshape(B * T, d)  # (N, d), token order: batch first, then time
        weights, indices, probs = self.router(flat)  # (N, k), (N, k), (N, E)
        aux = load_balancing_loss(probs, indices)  # the router's wish, so that dropping cannot hide an overload
        limit = self._capacity(B, T)
        usage = torch.zeros(len(self.experts), dtype=torch.long, device=x.device)
        y = torch.zeros_like(flat)  # (N, d)
        for e, expert in enumerate(self.experts):
            token, slot = torch.where(indices == e)  # (n_e,) each, row-major: token order
            token, slot = token[:limit], slot[:limit]
            if token.numel() == 0:
                continue  # an expert nobody chose costs nothing and keeps its gradient None
            out = expert(flat)[token] if torch.is_grad_enabled() else expert(flat[token])  # (n_e, d)
            gated = weights[token, slot, None] * out
            y.index_add_(0, token, gated.to(y.dtype))  # adds; under autocast the product may be narrower than y
            usage[e] = token.numel()
        for expert in self.shared:
            y = y + expert(flat)
        self.last_usage = usage
        return y.view(B, T, d), aux

    def _capacity(self, B: int, T: int) -> int | None:
        """Tokens one expert may take; None is no limit, and slicing with it keeps everything."""
        if self.capacity_factor is None:
            return None
        slots = B * T * self.router.k
        return math.ceil(self.capacity_factor * slots / len(self.experts))
