"""What a window should cost.  The names injected here are listed in CONTRIBUTING.md."""

WINDOW = 6


def _after(submission, reference, rng, n_tokens):
    """The costs of one more append, and of reading the window, after `n_tokens`."""
    mine, ref = submission.RollingKVCache(WINDOW, 2, 8), reference.RollingKVCache(WINDOW, 2, 8)
    for _ in range(n_tokens):
        k_t, v_t = rng.normal(1, 2, 1, 8), rng.normal(1, 2, 1, 8)
        mine.append(k_t, v_t)
        ref.append(k_t, v_t)
    append, _ = both(mine.append, ref.append, rng.normal(1, 2, 1, 8), rng.normal(1, 2, 1, 8))
    read, _ = both(mine.window_kv, ref.window_kv)
    return append, read


@cost("memory held after 12 windows over 3")
def held_memory(submission, reference, rng):
    late, _ = _after(submission, reference, rng, 12 * WINDOW)
    early, _ = _after(submission, reference, rng, 3 * WINDOW)
    return late.held_bytes / early.held_bytes


@cost("bytes of a decode step after 12 windows over 3")
def step_bytes(submission, reference, rng):
    late = _after(submission, reference, rng, 12 * WINDOW)
    early = _after(submission, reference, rng, 3 * WINDOW)
    return sum(part.allocated_bytes for part in late) / sum(part.allocated_bytes for part in early)


@speed("mask of 384 tokens")
def mask(module):
    return module.sliding_window_mask, lambda rng: arguments(384, rng.integers(20, 60))


@speed("masked attention")
def attention(module):
    def draw(rng):
        q, k, v = (rng.normal(2, 4, 160, 32) for _ in range(3))
        age = torch.arange(160)[:, None] - torch.arange(160)
        return arguments(q, k, v, ((age >= 0) & (age < rng.integers(20, 60))).to(q.device))

    return module.masked_attention, draw
