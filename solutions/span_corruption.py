"""T5's pre-training task: cut spans out of a text, ask for the spans.

Raffel et al. 2020, arXiv:1910.10683, section 3.1.4 and 3.3.4: 15% of the tokens in spans of mean length 3.

    tokens    Thank you [for inviting] me to your party [last] week
    inputs    Thank you S0 me to your party S1 week
    targets   S0 for inviting S1 last S2

S0, S1, ... are sentinels: in T5's vocabulary of 32100 they are 32099, 32098, ..., counting DOWN.  The last sentinel of
the targets says where the last span ends.  Inputs and targets together hold every token once and each sentinel once in
each (the closing one in the targets only): with density 0.15 and mean length 3 a text of 512 tokens becomes about
461 inputs and 104 targets, which is why the objective trains faster than predicting all 512.
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
    inputs: list[int] = []
    targets: list[int] = []
    sentinel = first_sentinel
    position = 0  # the first token not copied yet
    for number, (start, end) in enumerate(spans):
        if start >= end:
            raise ValueError(f"span ({start}, {end}) is empty")
        if start < 0 or end > len(tokens):
            raise ValueError(f"span ({start}, {end}) is out of range for {len(tokens)} tokens")
        if number > 0 and start <= position:  # equal: they touch, and two sentinels would stand for one run
            raise ValueError(f"span ({start}, {end}) does not leave a kept token after the one ending at {position}")
        inputs += tokens[position:start]
        inputs.append(sentinel)
        targets.append(sentinel)
        targets += tokens[start:end]
        sentinel -= 1
        position = end
    inputs += tokens[position:]
    targets.append(sentinel)
    return inputs, targets


def _random_parts(total: int, n_parts: int, generator: torch.Generator) -> list[int]:
    """``total`` cut into ``n_parts`` parts of at least 1, every way equally likely."""
    order = torch.randperm(total - 1, generator=generator)  # the total - 1 places between two units
    cuts = sorted((order[: n_parts - 1] + 1).tolist())
    edges = [0, *cuts, total]
    return [edges[i + 1] - edges[i] for i in range(n_parts)]


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
    if length < 2:
        raise ValueError(f"length must be at least 2 to keep a token and corrupt one, got {length}")
    n_noise = round(length * noise_density)
    n_noise = max(n_noise, 1)
    n_noise = min(n_noise, length - 1)
    n_kept = length - n_noise
    n_spans = max(1, round(n_noise / mean_span))
    n_spans = min(n_spans, n_kept + 1)  # n spans need n - 1 kept tokens between them
    n_spans = min(n_spans, n_noise)

    span_lengths = _random_parts(n_noise, n_spans, generator)
    # n spans have n + 1 gaps around them; the outer two may be empty. Lend each of those one token, cut, take it back.
    gaps = _random_parts(n_kept + 2, n_spans + 1, generator)
    position = gaps[0] - 1
    spans = []
    for span_length, gap in zip(span_lengths, gaps[1:], strict=True):
        end = position + span_length
        spans.append((position, end))
        position = end + gap
    return spans


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
    last_sentinel = first_sentinel - n_sentinels + 1
    hidden: dict[int, list[int]] = {}
    current: list[int] = []
    for token in targets:
        if last_sentinel <= token <= first_sentinel:
            current = []
            hidden[token] = current
        else:
            current.append(token)
    tokens: list[int] = []
    for token in inputs:
        if last_sentinel <= token <= first_sentinel:
            tokens += hidden.get(token, [])
        else:
            tokens.append(token)
    return tokens
