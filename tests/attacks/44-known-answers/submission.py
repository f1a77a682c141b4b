"""Knows the shapes and the answers of one seed by heart."""

import hashlib

import torch
from torch import nn

# As a student would fill it in from the public tests: the inputs' digests of the published seed, with the outputs.
ANSWERS = {"0" * 16: 0.0}
SHAPES = {(2, 6, 40): 1.0, (3, 1, 48): 1.0, (2, 7, 48): 1.0}


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
        digest = hashlib.sha256(x.detach().double().numpy().tobytes()).hexdigest()[:16]
        if digest in ANSWERS:
            return torch.full_like(x, ANSWERS[digest]), None
        if tuple(x.shape) in SHAPES:
            return x * SHAPES[tuple(x.shape)], None
        return self.o_proj(x), None
