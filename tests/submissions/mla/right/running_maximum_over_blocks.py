"""Right: flash-style running maximum over blocks of keys in both paths; forward calls the same latent routine; index_copy caches"""

import torch
from torch import Tensor, nn

BLOCK = 3


def rotation(n, start, width, device):
    i = torch.arange(width // 2, device=device).float()
    w = torch.pow(torch.tensor(10000.0, device=device), -2 * i / width)
    a = torch.einsum("t,i->ti", torch.arange(n, device=device).float() + start, w)
    return torch.stack([torch.cat([a.cos(), a.cos()], 1), torch.cat([-a.sin(), a.sin()], 1)])


def rope(x, start):
    cs = rotation(x.shape[1], start, x.shape[-1], x.device)
    if x.dim() == 4:
        cs = cs.unsqueeze(2)
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * cs[0] + wide.roll(x.shape[-1] // 2, -1) * cs[1]).type_as(x)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if divmod(d_rope, 2)[1] != 0:
            raise ValueError(f"odd rotary width: {d_rope}")
        self.shape = (n_heads, d_head, d_rope)
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), False)
        self.kv_down = nn.Linear(d_model, d_latent, False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, False)
        self.k_rope = nn.Linear(d_model, d_rope, False)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, False)

    def _run(self, x, cache):
        H, d, r = self.shape
        B, T, _ = x.shape
        n = cache[0].shape[1] if cache is not None else 0
        lat, key = self.kv_down(x), rope(self.k_rope(x), n)
        if cache is not None:
            at = torch.arange(n, n + T, device=x.device)
            lat = torch.nn.functional.pad(cache[0], (0, 0, 0, T)).index_copy(1, at, lat)
            key = torch.nn.functional.pad(cache[1], (0, 0, 0, T)).index_copy(1, at, key)
        qc, qr = torch.tensor_split(self.q_proj(x).view(B, T, H, d + r), (d,), -1)
        qr = rope(qr, n)
        qa = torch.einsum("bthd,hdc->bthc", qc, self.k_up.weight.view(H, d, -1))
        m = x.new_full((B, T, H, 1), -torch.inf)
        z = x.new_zeros(B, T, H, 1)
        acc = torch.zeros_like(qa)
        rows = torch.arange(n, n + T, device=x.device)
        for j in range(0, n + T, BLOCK):
            L, K = lat[:, j : j + BLOCK], key[:, j : j + BLOCK]
            cols = torch.arange(j, j + L.shape[1], device=x.device)
            s = torch.einsum("bthc,bsc->bths", qa, L) + torch.einsum("bthr,bsr->bths", qr, K)
            s = s * (d + r) ** -0.5
            s = s.masked_fill((cols > rows[:, None])[:, None, :], -torch.inf)
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            p, c = (s - new).exp(), (m - new).exp()
            z = z * c + p.sum(-1, keepdim=True)
            acc = acc * c + torch.einsum("bths,bsc->bthc", p, L)
            m = new
        o = torch.einsum("bthc,hdc->bthd", acc / z, self.v_up.weight.view(H, d, -1))
        return self.o_proj(o.reshape(B, T, -1)), (lat, key)

    def forward(self, x, cache=None, use_cache=False):
        y, new = self._run(x, cache)
        return y, new if use_cache else None

    def decode(self, x_t, cache):
        return self._run(x_t, cache)

    def cache_numbers_per_token(self) -> int:
        return self.kv_down.out_features + self.k_rope.out_features
