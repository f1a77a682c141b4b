"""T5's relative position bias: one learned number per head and *bucket* of distances.

Raffel et al. 2020, arXiv:1910.10683, section 2.1; the rule is `_relative_position_bucket` of the Mesh TensorFlow code.

    score_ij = q_i . k_j + bias[bucket(j - i)]        (T5 does not divide by sqrt(d_head); its initialisation does)

With 32 buckets and a maximum distance of 128, for an encoder (bidirectional):

    distance back 0 1 ... 7 | 8-11 | 12-15 | 16-22 | 23-31 | 32-45 | 46-63 | 64-90 | 91-
    bucket        0 1 ... 7 |  8   |   9   |  10   |  11   |  12   |  13   |  14   |  15        later keys: + 16

Cost: the bucket table is O(q k) integers, the parameters are num_buckets * n_heads numbers, shared by all layers in T5.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def relative_position_bucket(
    relative_position: Tensor, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128
) -> Tensor:
    """T5's bucket of each relative position.

    Args:
        relative_position: integer tensor of any shape, key index minus query index.
        bidirectional: True in an encoder. False in a causal decoder, where keys after the query share bucket 0.
        num_buckets: buckets in all.
        max_distance: distances from here on share the last bucket of their direction.

    Returns:
        int64 tensor of the same shape and device, values in [0, num_buckets).
    """
    relative_position = relative_position.long()  # in int8 there is no 128 for -128 to become
    buckets = torch.zeros_like(relative_position)
    per_direction = num_buckets
    if bidirectional:
        per_direction = num_buckets // 2
        later = relative_position > 0  # distance 0 belongs to the keys before
        buckets = buckets + later.long() * per_direction
        distance = relative_position.abs()
    else:
        distance = (-relative_position).clamp(min=0)  # a later key is masked anyway: it counts as distance 0
    max_exact = per_direction // 2
    if max_exact < 1 or max_distance <= max_exact:
        raise ValueError(f"num_buckets {num_buckets} and max_distance {max_distance} leave no room for the log buckets")

    is_exact = distance < max_exact
    # From max_exact to max_distance the remaining buckets are equally wide in log distance.
    ratio = distance.clamp(min=max_exact).float() / max_exact  # the clamp keeps log(0) out; float32 as in T5
    log_span = math.log(max_distance / max_exact)
    log_buckets = per_direction - max_exact
    steps = (torch.log(ratio) / log_span * log_buckets).long()  # cuts off, so each bucket starts at its threshold
    far = max_exact + steps
    far = far.clamp(max=per_direction - 1)
    return buckets + torch.where(is_exact, distance.long(), far)


class RelativePositionBias(nn.Module):
    """The bias added to attention scores, one number per head, query and key.

    Args:
        n_heads: query heads.
        bidirectional: as in ``relative_position_bucket``.
        num_buckets: rows of the embedding.
        max_distance: as in ``relative_position_bucket``.

    Attributes:
        embedding: ``nn.Embedding(num_buckets, n_heads)``.
    """

    def __init__(self, n_heads: int, bidirectional: bool = True, num_buckets: int = 32, max_distance: int = 128):
        super().__init__()
        self.bidirectional = bidirectional
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.embedding = nn.Embedding(num_buckets, n_heads)

    def forward(self, q_len: int, k_len: int) -> Tensor:
        """The bias of ``q_len`` queries against ``k_len`` keys.

        Args:
            q_len: queries; they are the last ``q_len`` of the ``k_len`` positions (a decoder with a cache).
            k_len: keys.

        Returns:
            (1, n_heads, q_len, k_len) in the dtype and on the device of the embedding.

        Raises:
            ValueError: if q_len > k_len.
        """
        if q_len > k_len:
            raise ValueError(f"q_len {q_len} is more than k_len {k_len}: the queries are the last of the keys")
        device = self.embedding.weight.device
        first_query = k_len - q_len
        query = torch.arange(first_query, k_len, device=device)  # (q_len,)
        key = torch.arange(k_len, device=device)  # (k_len,)
        relative_position = key[None, :] - query[:, None]  # (q_len, k_len)
        bucket = relative_position_bucket(
            relative_position,
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        bias = self.embedding(bucket)  # (q_len, k_len, n_heads)
        return bias.permute(2, 0, 1).unsqueeze(0)  # (1, n_heads, q_len, k_len)
