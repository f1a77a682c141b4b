"""Right: one sequence and one head at a time under vmap, weights used as matrices, rotation by 2x2 matrices"""

import torch
from torch import nn
from torch.func import vmap


def angles(n, start, r, device):
    i = torch.arange(0, r, 2, device=device, dtype=torch.float32)
    t = torch.arange(start, start + n, device=device, dtype=torch.float32)
    return torch.einsum("t,i->ti", t, 1.0 / 10000.0 ** (i / r))


def spin(x, a):
    """x (T, r), a (T, r/2)."""
    up = torch.promote_types(x.dtype, torch.float32)
    eye = torch.stack([torch.stack([a.cos(), -a.sin()], -1), torch.stack([a.sin(), a.cos()], -1)], -2).to(up)
    pairs = x.to(up).reshape(x.shape[0], 2, -1).movedim(1, -1)
    return (eye @ pairs[..., None])[..., 0].movedim(-1, 1).reshape(x.shape).to(x.dtype)


class MultiHeadLatentAttention(nn.Module):
    def __init__(self, d_model, n_heads, d_head, d_latent, d_rope):
        if d_rope % 2 != 0:
            raise ValueError(f"rotary width must be even, got {d_rope}")
        super().__init__()
        self.n_heads, self.d_head, self.d_latent, self.d_rope = n_heads, d_head, d_latent, d_rope
        for name, i, o in [
            ("q_proj", d_model, n_heads * (d_head + d_rope)),
            ("kv_down", d_model, d_latent),
            ("k_up", d_latent, n_heads * d_head),
            ("v_up", d_latent, n_heads * d_head),
            ("k_rope", d_model, d_rope),
            ("o_proj", n_heads * d_head, d_model),
        ]:
            self.add_module(name, nn.Linear(i, o, bias=False))

    def _one(self, x, latent, key, absorbed):
        """One sequence: x (T, d), latent (P, l), key (P, r)."""
        H, d, r = self.n_heads, self.d_head, self.d_rope
        T, P = x.shape[0], latent.shape[0]
        a = angles(T, P, r, x.device)
        q = (x @ self.q_proj.weight.T).reshape(T, H, d + r)
        qc = q[..., :d]
        qr = vmap(spin, in_dims=(1, None), out_dims=1)(q[..., d:], a)
        latent = torch.cat([latent, x @ self.kv_down.weight.T])
        key = torch.cat([key, spin(x @ self.k_rope.weight.T, a)])
        wk = self.k_up.weight.reshape(H, d, -1)
        wv = self.v_up.weight.reshape(H, d, -1)
        visible = torch.arange(P + T, device=x.device) <= torch.arange(P, P + T, device=x.device)[:, None]

        def head(qc, qr, wk, wv):
            content = (qc @ wk) @ latent.T if absorbed else qc @ (latent @ wk.T).T
            s = (content + qr @ key.T) * (d + r) ** -0.5
            logp = torch.where(visible, s, -torch.inf).log_softmax(-1)
            w = logp.exp()
            return (w @ latent) @ wv.T if absorbed else w @ (latent @ wv.T)

        y = vmap(head, in_dims=(1, 1, 0, 0), out_dims=1)(qc, qr, wk, wv)
        return y.reshape(T, H * d) @ self.o_proj.weight.T, latent, key

    def forward(self, x, cache=None, use_cache=False):
        if cache is None:
            cache = x.new_zeros(x.shape[0], 0, self.d_latent), x.new_zeros(x.shape[0], 0, self.d_rope)
        y, latent, key = vmap(lambda *s: self._one(*s, False))(x, *cache)
        return y, (latent, key) if use_cache else None

    def decode(self, x_t, cache):
        y, latent, key = vmap(lambda *s: self._one(*s, True))(x_t, *cache)
        return y, (latent, key)

    def cache_numbers_per_token(self):
        return self.kv_down.out_features + self.k_rope.out_features
