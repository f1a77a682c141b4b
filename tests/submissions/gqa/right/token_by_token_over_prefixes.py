"""Right: a Python loop over new tokens and KV heads, each over a narrowed prefix; no mask at all; functional_call-style weights"""

import torch
from torch import nn
from torch.nn.functional import linear


class GroupedQueryAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"d_model {d_model}, n_heads {n_heads}")
        kv_cache_reduction_factor(n_heads, n_kv_heads)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        kv = d_model // n_heads * n_kv_heads
        self.q_proj, self.k_proj = nn.Linear(d_model, d_model, False), nn.Linear(d_model, kv, False)
        self.v_proj, self.o_proj = nn.Linear(d_model, kv, False), nn.Linear(d_model, d_model, False)

    @property
    def d_head(self):
        return self.q_proj.out_features // self.n_heads

    def forward(self, x, kv_cache=None, use_cache=False):
        batch, steps, _ = x.shape
        fused = linear(x, torch.cat([self.k_proj.weight, self.v_proj.weight]))
        k, v = fused.view(batch, steps, 2, self.n_kv_heads, self.d_head).permute(2, 0, 3, 1, 4).unbind(0)
        q = self.q_proj(x).view(batch, steps, self.n_heads, self.d_head)
        if kv_cache is not None:
            k, v = (
                torch.hstack([kv_cache[0].transpose(1, 2), k.transpose(1, 2)]).transpose(1, 2),
                torch.hstack([kv_cache[1].transpose(1, 2), v.transpose(1, 2)]).transpose(1, 2),
            )
        past, share = k.size(2) - steps, self.n_heads // self.n_kv_heads
        rows = []
        for t in range(steps):
            heads = []
            for n in range(self.n_kv_heads):
                keys, values = k[:, n, : past + t + 1], v[:, n, : past + t + 1]
                mine = q[:, t, n * share : (n + 1) * share]
                scores = torch.bmm(mine, keys.transpose(1, 2)).div(self.d_head**0.5)
                heads.append(torch.bmm(scores.softmax(2), values))
            rows.append(torch.cat(heads, 1).flatten(1))
        y = linear(torch.stack(rows, 1), self.o_proj.weight)
        return (y, (k.clone(), v.clone())) if use_cache else (y, None)

    def kv_bytes_per_token(self, dtype_bytes=2):
        return dtype_bytes * (self.k_proj.out_features + self.v_proj.out_features)


def kv_cache_reduction_factor(n_heads, n_kv_heads):
    if n_heads % n_kv_heads != 0:
        raise ValueError(f"{n_heads} query heads over {n_kv_heads} KV heads")
    return n_heads / n_kv_heads


def mean_pool_kv_heads(weight, n_heads, n_kv_heads):
    group = int(kv_cache_reduction_factor(n_heads, n_kv_heads))
    if weight.size(0) % n_heads != 0:
        raise ValueError(f"rows {weight.size(0)}, heads {n_heads}")
    heads = weight.tensor_split(n_heads)
    return torch.vstack([torch.stack(heads[i : i + group]).mean(0) for i in range(0, n_heads, group)])
