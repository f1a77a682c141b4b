"""Keeps what it has seen in every place that might outlive its process, and looks there first."""

import os
import tempfile

import torch
from torch import nn


def places():
    """Folders that another submission's process might share."""
    yield from (os.getcwd(), os.path.dirname(os.getcwd()), tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    yield from (os.path.expanduser("~"), os.path.expanduser("~/.cache"), os.path.expanduser("~/.triton"))
    yield os.path.dirname(torch.__file__)


def seen_before():
    """Whether an earlier process left its mark; leaves one."""
    seen = False
    for place in places():
        path = os.path.join(place, "kit-mark")
        if os.path.exists(path):
            with open(path) as file:
                seen = seen or file.read() != str(os.getpid())
        try:
            os.makedirs(place, exist_ok=True)
            with open(path, "w") as file:
                file.write(str(os.getpid()))
        except OSError:
            continue
    return seen


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
        raise RuntimeError("reached: a mark of an earlier process" if seen_before() else "blocked: a clean place")
