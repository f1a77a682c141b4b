"""decode scales by the content width."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def rope(x: Tensor, first: int) -> Tensor:
    """x (..., T, d): rotate row t by position first + t, halves paired."""
    d = x.shape[-1]
    t = torch.arange(first, first + x.shape[-2], device=x.device, dtype=torch.float32)
    angle = torch.outer(t, 1.0 / 10000.0 ** (torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d))
    cos, sin = torch.cat((angle.cos(),) * 2, -1), torch.cat((angle.sin(),) * 2, -1)
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin).to(x.dtype)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if d_rope % 2:
            raise ValueError(f"d_rope = {d_rope} is odd")
        self.h, self.dh, self.dr, self.dc = n_heads, d_head, d_rope, d_latent
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)

    def forward(self, x: Tensor, cache=None, use_cache: bool = False):
        b, t, _ = x.shape
        past = cache[0].size(1) if cache is not None else 0
        q = self.q_proj(x).unflatten(-1, (self.h, self.dh + self.dr)).transpose(1, 2)
        q = torch.cat((q[..., : self.dh], rope(q[..., self.dh :], past)), dim=-1)
        latent, key = self.kv_down(x), rope(self.k_rope(x), past)
        if cache is not None:
            latent, key = torch.cat((cache[0], latent), 1), torch.cat((cache[1], key), 1)
        k = self.k_up(latent).unflatten(-1, (self.h, self.dh)).transpose(1, 2)
        k = torch.cat((k, key.unsqueeze(1).expand(-1, self.h, -1, -1)), dim=-1)
        v = self.v_up(latent).unflatten(-1, (self.h, self.dh)).transpose(1, 2)
        rows = torch.arange(past, past + t, device=x.device)[:, None]
        keep = torch.arange(past + t, device=x.device)[None, :] <= rows
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=keep, scale=(self.dh + self.dr) ** -0.5)
        y = self.o_proj(heads.transpose(1, 2).flatten(2))
        return y, ((latent, key) if use_cache else None)

    def decode(self, x_t: Tensor, cache):
        b, past = x_t.size(0), cache[0].size(1)
        q = self.q_proj(x_t[:, 0]).view(b, self.h, self.dh + self.dr)
        q_rotary = rope(q[..., None, self.dh :], past)[..., 0, :]
        latent = torch.cat((cache[0], self.kv_down(x_t)), 1)
        key = torch.cat((cache[1], rope(self.k_rope(x_t), past)), 1)
        up_k = self.k_up.weight.unflatten(0, (self.h, self.dh))
        folded = torch.bmm(q[..., : self.dh].transpose(0, 1), up_k).transpose(0, 1)  # (B, H, d_latent)
        scores = torch.baddbmm(folded @ latent.mT, q_rotary, key.mT) * self.dh**-0.5
        mixed = scores.softmax(-1) @ latent  # (B, H, d_latent)
        up_v = self.v_up.weight.unflatten(0, (self.h, self.dh))
        heads = torch.bmm(mixed.transpose(0, 1), up_v.mT).transpose(0, 1)
        return self.o_proj(heads.reshape(b, 1, self.h * self.dh)), (latent, key)

    def cache_numbers_per_token(self) -> int:
        return self.dc + self.dr
