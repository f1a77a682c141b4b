"""The queries are divided by sqrt(d_head)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Rope:
    """Half-split rotation from a starting position."""

    def __init__(self, width: int, base: float = 10000.0) -> None:
        self.frequencies = [base ** (-2 * i / width) for i in range(width // 2)]

    def __call__(self, x: Tensor, start: int) -> Tensor:
        steps = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32) + start
        angle = steps[:, None] * torch.tensor(self.frequencies, dtype=torch.float32, device=x.device)
        left, right = x.tensor_split(2, dim=-1)
        turned = (left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin())
        return torch.cat(turned, dim=-1).to(x.dtype)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model: int, n_heads: int, d_head: int, d_latent: int, d_rope: int) -> None:
        super().__init__()
        if d_rope % 2 == 1:
            raise ValueError(f"the rotary width {d_rope} has no pairs")
        self.heads, self.content, self.latent_width, self.rotary = n_heads, d_head, d_latent, d_rope
        self.rope = Rope(d_rope)
        self.o_proj = nn.Linear(n_heads * d_head, d_model, bias=False)
        self.k_rope = nn.Linear(d_model, d_rope, bias=False)
        self.v_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.k_up = nn.Linear(d_latent, n_heads * d_head, bias=False)
        self.kv_down = nn.Linear(d_model, d_latent, bias=False)
        self.q_proj = nn.Linear(d_model, n_heads * (d_head + d_rope), bias=False)

    def _queries(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        q = self.q_proj(x).unflatten(2, (self.heads, -1)).permute(0, 2, 1, 3)
        q = q / self.content**0.5
        return q.narrow(-1, 0, self.content), self.rope(q.narrow(-1, self.content, self.rotary), start)

    def forward(
        self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, use_cache: bool = False
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        batch, length, _ = x.shape
        start = 0
        new = [self.kv_down(x)]
        if cache is not None:
            start = cache[0].shape[1]
            new.insert(0, cache[0])
        latents = torch.cat(new, dim=1)
        key = self.rope(self.k_rope(x), start)
        keys = key if cache is None else torch.cat((cache[1], key), dim=1)
        q_c, q_r = self._queries(x, start)
        k_c = F.linear(latents, self.k_up.weight).unflatten(2, (self.heads, -1))
        v = F.linear(latents, self.v_up.weight).unflatten(2, (self.heads, -1))
        mask = torch.full((length, start + length), float("-inf"), device=x.device, dtype=x.dtype).triu(start + 1)
        scores = torch.einsum("bhtd,bshd->bhts", q_c, k_c) + q_r @ keys[:, None].mT + mask
        mixed = torch.einsum("bhts,bshd->bthd", torch.softmax(scores, dim=3), v)
        y = self.o_proj(mixed.reshape(batch, length, -1))
        return (y, (latents, keys)) if use_cache else (y, None)

    def decode(self, x_t: Tensor, cache: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        old_latents, old_keys = cache
        start = old_latents.shape[1]
        latent, key = self.kv_down(x_t), self.rope(self.k_rope(x_t), start)
        q_c, q_r = self._queries(x_t, start)
        w_k = self.k_up.weight.unflatten(0, (self.heads, self.content))
        q_l = (q_c.transpose(0, 1).squeeze(2) @ w_k).transpose(0, 1)  # (B, H, d_latent)
        q_r = q_r.squeeze(2)
        old = q_l @ old_latents.mT + q_r @ old_keys.mT  # (B, H, T_past)
        own = q_l @ latent.mT + q_r @ key.mT  # (B, H, 1)
        weights = torch.cat((old, own), dim=-1).softmax(dim=-1)
        mixed = weights[..., :-1] @ old_latents + weights[..., -1:] @ latent
        w_v = self.v_up.weight.unflatten(0, (self.heads, self.content))
        heads = (mixed.transpose(0, 1) @ w_v.mT).transpose(0, 1)
        y = self.o_proj(heads.flatten(1)).unsqueeze(1)
        return y, (torch.cat((old_latents, latent), dim=1), torch.cat((old_keys, key), dim=1))

    def cache_numbers_per_token(self) -> int:
        return self.latent_width + self.rotary
