"""Wrong: causal also halves the buckets"""

import torch
from torch import Tensor, nn


def relative_position_bucket(relative_position: Tensor, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128) -> Tensor:
    r = relative_position.to(torch.int64)
    n = num_buckets
    base = torch.zeros_like(r)
    n //= 2
    if bidirectional:
        base += n * r.gt(0)
        d = r.abs()
    else:
        d = torch.maximum(-r, torch.zeros_like(r))
    exact = n // 2
    if exact < 1:
        raise ValueError(f"too few buckets: {num_buckets}")
    if max_distance <= exact:
        raise ValueError(f"max_distance {max_distance} within {exact}")
    ratio = torch.log2(d.clamp(min=exact).double() / exact) / torch.log2(torch.tensor(max_distance / exact, dtype=torch.float64, device=r.device))
    log_bucket = exact + (ratio * (n - exact)).floor().to(torch.int64)
    return base + torch.minimum(torch.minimum(d, torch.full_like(d, exact)) + (log_bucket - exact), torch.full_like(d, n - 1))


class RelativePositionBias(nn.Module):
    def __init__(self, n_heads: int, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.bidirectional, self.num_buckets, self.max_distance = bidirectional, num_buckets, max_distance
        self.embedding = nn.Embedding(num_buckets, n_heads)

    def forward(self, q_len: int, k_len: int) -> Tensor:
        if q_len > k_len:
            raise ValueError(f"q_len {q_len}, k_len {k_len}")
        device = self.embedding.weight.device
        span = torch.arange(1 - k_len, q_len, device=device)
        table = self.embedding.weight[relative_position_bucket(span, self.bidirectional, self.num_buckets, self.max_distance)].T
        row = torch.arange(k_len - q_len, k_len, device=device)
        index = torch.arange(k_len, device=device) - row[:, None] + (k_len - 1)
        return table[:, index].unsqueeze(0)
