"""decode starts at 0."""

import torch
import torch.nn as nn
from torch import Tensor


def angles(positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    exponent = torch.linspace(0, 1, width // 2 + 1, device=positions.device)[:-1]
    angle = positions.float().unsqueeze(1) / torch.pow(10000.0, exponent)
    return angle.cos(), angle.sin()


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    n = x.shape[-1] // 2
    result = torch.empty_like(x)
    result[..., :n] = x[..., :n] * cos - x[..., n:] * sin
    result[..., n:] = x[..., n:] * cos + x[..., :n] * sin
    return result


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if d_rope % 2 != 0:
            raise ValueError(f"got d_rope={d_rope}, which is odd")
        self.n_heads, self.d_head, self.d_rope = n_heads, d_head, d_rope
        self.width = d_head + d_rope
        self.q_proj = nn.Linear(d_model, n_heads * self.width, bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)

    def _new(self, x: Tensor, past: int):
        cos, sin = angles(torch.arange(past, past + x.shape[1], device=x.device), self.d_rope)
        queries = []
        for q in self.q_proj(x).split(self.width, dim=-1):
            content, rotary = q.tensor_split([self.d_head], dim=-1)
            queries.append((content, turn(rotary, cos, sin)))
        return queries, self.kv_down(x), turn(self.k_rope(x), cos, sin)

    def forward(
        self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, use_cache: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        past = 0 if cache is None else cache[0].shape[1]
        queries, latent, key = self._new(x, past)
        if past:
            latent = torch.cat([cache[0], latent], dim=1)
            key = torch.cat([cache[1], key], dim=1)
        blocked = torch.ones(x.shape[1], latent.shape[1], device=x.device).tril(past) == 0
        outputs = []
        ks, vs = self.k_up(latent).split(self.d_head, -1), self.v_up(latent).split(self.d_head, -1)
        for (content, rotary), k, v in zip(queries, ks, vs, strict=True):
            scores = (torch.bmm(content, k.mT) + torch.bmm(rotary, key.mT)) / self.width**0.5
            scores = scores.masked_fill(blocked, torch.finfo(scores.dtype).min)
            outputs.append(torch.bmm(torch.softmax(scores, -1), v))
        return self.o_proj(torch.cat(outputs, -1)), (latent, key) if use_cache else None

    def decode(self, x_t: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        queries, latent_t, key_t = self._new(x_t, 0)
        latent = torch.cat([cache[0], latent_t], dim=1)
        key = torch.cat([cache[1], key_t], dim=1)
        outputs = []
        up_k, up_v = self.k_up.weight.split(self.d_head), self.v_up.weight.split(self.d_head)
        for (content, rotary), w_k, w_v in zip(queries, up_k, up_v, strict=True):
            query = torch.cat((content @ w_k, rotary), dim=-1)  # (B, 1, d_latent + d_rope)
            scores = torch.bmm(query, torch.cat((latent, key), dim=-1).mT) / self.width**0.5
            outputs.append(torch.bmm(torch.softmax(scores, -1), latent) @ w_v.T)
        return self.o_proj(torch.cat(outputs, -1)), (latent, key)

    def cache_numbers_per_token(self) -> int:
        return self.kv_down.out_features + self.k_rope.out_features
