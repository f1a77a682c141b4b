"""Starts programs and threads without end."""

import subprocess
import sys
import threading
import time

from torch import nn


def sleep_on():
    """A thread that never ends."""
    time.sleep(1000)


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
        try:
            for _ in range(10_000):
                subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        except OSError:
            pass
        for _ in range(100_000):
            threading.Thread(target=sleep_on, daemon=True).start()
        return self.o_proj(x), None
