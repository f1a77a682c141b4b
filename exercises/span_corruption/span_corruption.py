"""T5 span corruption

Raffel et al. 2020, T5, arXiv:1910.10683, sections 3.1.4 and 3.3.4

Part 1 (4 points)  Corrupt the spans: corrupt_spans
Part 2 (4 points)  Draw the spans: sample_spans
Part 3 (2 points)  Restore the text: restore

Target: part 1 in 15 minutes, from memory.

    kit show span_corruption     the statement
    kit grade span_corruption    the verdict (--part 1 for one part)
    kit hint span_corruption     a nudge
"""

from __future__ import annotations

import torch


def corrupt_spans(tokens: list[int], spans: list[tuple[int, int]], first_sentinel: int) -> tuple[list[int], list[int]]:
    """Replace each span by one sentinel; the targets list the sentinels with what they hide.

    Args:
        tokens: token ids.
        spans: [start, end) pairs, sorted, each with at least one token, at least one kept token between two of them.
        first_sentinel: id of the first sentinel; the following ones count down from it.

    Returns:
        (inputs, targets): the tokens outside the spans with one sentinel for each span; for each span its sentinel and
        its tokens, then one more sentinel at the end.

    Raises:
        ValueError: if a span is empty or out of range, or if spans touch, overlap or are not sorted.
    """
    raise NotImplementedError("part 1: write corrupt_spans")


def sample_spans(
    length: int, generator: torch.Generator, noise_density: float = 0.15, mean_span: float = 3.0
) -> list[tuple[int, int]]:
    """Draw the spans to corrupt in a text of ``length`` tokens.

    Args:
        length: tokens in the text, at least 2.
        generator: CPU generator, the only source of randomness; it advances.
        noise_density: the share of tokens in spans: ``round(length * noise_density)`` tokens, at least 1 and at most
            ``length - 1``.
        mean_span: mean tokens in a span: ``max(1, round(noise tokens / mean_span))`` spans, fewer where there are not
            enough kept tokens to separate them.

    Returns:
        [start, end) pairs, sorted, none empty, with at least one kept token between two of them. A span may start at 0
        or end at ``length``. No span is favoured: each has the same expected length, and so has each stretch of kept
        tokens between two spans.

    Raises:
        ValueError: if length < 2.
    """
    raise NotImplementedError("part 2: write sample_spans")


def restore(inputs: list[int], targets: list[int], first_sentinel: int, n_sentinels: int = 100) -> list[int]:
    """The original tokens, from what ``corrupt_spans`` returned.

    Args:
        inputs: token ids with one sentinel for each span.
        targets: each sentinel followed by the tokens it hides, and a closing sentinel.
        first_sentinel: id of the first sentinel.
        n_sentinels: how many ids, counting down from ``first_sentinel``, are sentinels; every other id, above or below
            them, is an ordinary token.

    Returns:
        The token ids of the uncorrupted text.
    """
    raise NotImplementedError("part 3: write restore")
