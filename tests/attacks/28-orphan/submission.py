"""Leaves a process of another session behind, twice removed, and hangs."""

import torch
from torch import nn
import ctypes
import os
import time


def orphan():
    """Fork twice, each into a session of its own; the grandchild takes a name to be found by, and sleeps."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(15, b"kit-orphan", 0, 0, 0)  # PR_SET_NAME
            print("orphaned", flush=True)
            time.sleep(1000)
        os._exit(0)


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
        orphan()
        time.sleep(1000)
