"""The way of working that each growth target is there to tell from the solution's, as text to add to the solution."""

from __future__ import annotations

# The recurrence, as a sum over all earlier inputs at every step.
SUM_OVER_THE_PAST = """
def ssm_recurrent(x, A_bar, B_bar, C, D):
    K = ssm_kernel(A_bar, B_bar, C, x.shape[0])
    steps = [sum(K[t - s] * x[s] for s in range(t + 1)) + D * x[t] for t in range(x.shape[0])]
    return torch.stack(steps).to(x.dtype)
"""
# One chunk, in which every token looks at every earlier one.
ALL_PAIRS = """
def chunked_selective_scan(x, delta, A, B, C, D, chunk):
    decay = (delta[..., None] * A).cumsum(1)  # (B, T, d, N)
    between = torch.exp((decay[:, :, None] - decay[:, None]).clamp(max=0.0))  # (B, T, T, d, N)
    causal = torch.ones(x.shape[1], x.shape[1], dtype=x.dtype, device=x.device).tril()
    return torch.einsum("btsdn,ts,bsn,bsd,btn->btd", between, causal, B, delta * x, C) + D * x
"""
# Attention over a cache of everything: the window is cut out of copies of it all.
FULL_CACHE = """
class RollingKVCache:
    def __init__(self, window, n_kv_heads, d_head):
        self.window, self.tokens = window, []

    def append(self, k_t, v_t):
        self.tokens.append(torch.stack((k_t, v_t)))

    def window_kv(self):
        k, v = torch.cat(self.tokens, dim=3)[..., -self.window :, :].clone()
        return k, v
"""
OTHER_WAYS = {"ssm": SUM_OVER_THE_PAST, "selective_scan": ALL_PAIRS, "sliding_window": FULL_CACHE}
