"""Returns things that do harm when they are unpickled."""

import os

import torch
from torch import nn


class Bomb:
    """Unpickling one writes a file."""

    def __reduce__(self):
        return (os.system, ("touch /tmp/kit-unpickled",))


class BombTensor(torch.Tensor):
    """A tensor whose pickle is a bomb."""

    def __reduce_ex__(self, protocol):
        return (os.system, ("touch /tmp/kit-unpickled",))


class GroupedQueryAttention(nn.Module):
    """Wrong on purpose: the heads do not attend to anything."""

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        d = d_model // n_heads
        self.q_proj = nn.Linear(d_model, n_heads * d, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * d, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * d, bias=False)
        self.o_proj = nn.Linear(n_heads * d, d_model, bias=False)

    def forward(self, x, kv_cache=None, use_cache=False):
        y = self.o_proj(x)
        return BombTensor(y) if use_cache else Bomb(), None
