"""Right: a pure function of a weight dictionary over one sequence, vmapped; keys of a group scored by one tensordot; softmax by log-cumulative merging of a static band; cache stacked then unbound"""

import torch
from torch import nn
from torch.func import vmap


def attend(w, x, past_k, past_v, n_kv):
    """x (T, D), past (K, P, d) -> y (T, D), k, v (K, P + T, d)."""
    T, D = x.shape
    d = past_k.shape[-1]
    H = D // d
    heads = lambda m: (x @ m.mT).unflatten(-1, (-1, d)).movedim(1, 0)  # noqa: E731
    q, k, v = heads(w["q_proj.weight"]), heads(w["k_proj.weight"]), heads(w["v_proj.weight"])
    k, v = torch.cat([past_k, k], -2), torch.cat([past_v, v], -2)
    rows = q.reshape(n_kv, H // n_kv * T, d)
    s = rows @ k.mT / d**0.5
    P = k.shape[-2] - T
    t = torch.arange(rows.shape[1], device=x.device) % T
    ok = torch.arange(P + T, device=x.device) <= (t + P)[:, None]
    s = torch.where(ok, s, torch.full_like(s, -torch.inf))
    e = torch.exp(s - torch.logsumexp(s, -1, keepdim=True))
    y = (e @ v).reshape(H, T, d).movedim(0, 1).reshape(T, D)
    return y @ w["o_proj.weight"].mT, k, v


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        for whole, piece in ((d_model, n_heads), (n_heads, n_kv_heads)):
            if divmod(whole, piece)[1]:
                raise ValueError(f"{whole} is no multiple of {piece}")
        self.head, self.n_kv = d_model // n_heads, n_kv_heads
        for name, out in zip("qkvo", (d_model, n_kv_heads * self.head, n_kv_heads * self.head, d_model), strict=True):
            setattr(self, f"{name}_proj", nn.Linear(d_model, out, bias=False))

    def forward(self, x, kv_cache=None, use_cache=False):
        if kv_cache is None:
            nothing = x.new_empty(x.shape[0], self.n_kv, 0, self.head)
            kv_cache = nothing, nothing
        w = dict(self.named_parameters())
        y, k, v = vmap(lambda *a: attend(w, *a, self.n_kv))(x, *kv_cache)
        return y, (k, v) if use_cache else None

    def kv_bytes_per_token(self, dtype_bytes=2):
        return (self.k_proj.out_features + self.v_proj.out_features) * dtype_bytes


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    whole, rest = divmod(n_heads, n_kv_heads)
    if rest:
        raise ValueError(f"{n_heads} heads, {n_kv_heads} key/value heads")
    return float(whole)


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    group, rest = divmod(n_heads, n_kv_heads)
    d, rows = divmod(len(weight), n_heads)
    if rest or rows:
        raise ValueError(f"{len(weight)} rows, {n_heads} heads, {n_kv_heads} key/value heads")
    pool = torch.kron(torch.eye(n_kv_heads), torch.ones(1, group) / group)
    pool = torch.kron(pool, torch.eye(d)).to(weight)
    return pool @ weight
