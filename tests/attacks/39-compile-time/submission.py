"""Does its mischief while it is compiled and imported, before any test runs."""

import os
import sys

from torch import nn

NESTED = eval(compile("[" * 90 + "]" * 90, "deep", "eval"))
try:
    compile("(" * 5000 + ")" * 5000, "deeper", "eval")
    compile("-" * 200_000 + "1", "deepest", "eval")
except (SyntaxError, MemoryError, RecursionError):
    pass
ABOVE = os.path.dirname(os.path.dirname(os.path.dirname(sys.modules["grader.host.wire"].__file__)))
OUTSIDE = [name for name in ("exercises", "solutions", "tests") if os.path.exists(os.path.join(ABOVE, name))]
if OUTSIDE:
    raise RuntimeError(f"reached: {OUTSIDE}")


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
        raise RuntimeError("blocked: compiled inside")
