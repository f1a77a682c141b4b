"""Looks for tokens in the environment of this process and of every other that it can see."""

import os

from torch import nn

CANARY = "kit-canary"


def canary():
    """Where the canary stands, or None."""
    if any(CANARY in value for value in os.environ.values()):
        return "os.environ"
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            for name in ("environ", "cmdline"):
                try:
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        if CANARY.encode() in file.read():
                            return f"/proc/{pid}/{name}"
                except OSError:
                    continue
    return None


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
        found = canary()
        raise RuntimeError("blocked: no canary" if found is None else f"reached: the canary in {found}")
