"""T5's relative position bias

Raffel et al. 2020, T5, arXiv:1910.10683, section 2.1

Part 1 (6 points)  The bucket of a distance: relative_position_bucket
Part 2 (4 points)  The bias module: RelativePositionBias

Target: part 1 in 15 minutes, from memory.

    kit show t5_bias     the statement
    kit grade t5_bias    the verdict (--part 1 for one part)
    kit hint t5_bias     a nudge
"""

from __future__ import annotations

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
    raise NotImplementedError("part 1: write relative_position_bucket")


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
        raise NotImplementedError("part 2: write RelativePositionBias.__init__")

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
        raise NotImplementedError("part 2: write RelativePositionBias.forward")
