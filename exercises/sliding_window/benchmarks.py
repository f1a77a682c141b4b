"""What a window should cost.  The names injected here are listed in CONTRIBUTING.md."""

WINDOW = 6


def _after(submission, reference, rng, n_tokens):
    """What one more append and reading the window cost after `n_tokens`, of the submission and of the reference."""
    mine, ref = submission.RollingKVCache(WINDOW, 2, 8), reference.RollingKVCache(WINDOW, 2, 8)
    for _ in range(n_tokens):
        k_t, v_t = rng.normal(1, 2, 1, 8), rng.normal(1, 2, 1, 8)
        mine.append(k_t, v_t)
        ref.append(k_t, v_t)
    appends = both(mine.append, ref.append, rng.normal(1, 2, 1, 8), rng.normal(1, 2, 1, 8))
    reads = both(mine.window_kv, ref.window_kv)
    return appends, reads


@cost("memory held after 12 windows")
def held_memory(submission, reference, rng):
    (append, ref_append), _ = _after(submission, reference, rng, 12 * WINDOW)
    return append.held_bytes / ref_append.held_bytes


@cost("bytes of a decode step after 12 windows over 3")
def step_bytes(submission, reference, rng):
    late = _after(submission, reference, rng, 12 * WINDOW)
    early = _after(submission, reference, rng, 3 * WINDOW)
    late_bytes, early_bytes = (sum(mine.allocated_bytes for mine, _ in step) for step in (late, early))
    return late_bytes / early_bytes


@speed("mask of 512 tokens")
def mask(module):
    return module.sliding_window_mask, lambda rng: arguments(512, rng.integers(20, 60))


@speed("masked attention")
def attention(module):
    def draw(rng):
        q, k, v = (rng.normal(2, 4, 160, 32) for _ in range(3))
        age = torch.arange(160)[:, None] - torch.arange(160)
        return arguments(q, k, v, ((age >= 0) & (age < rng.integers(20, 60))).to(q.device))

    return module.masked_attention, draw


@growth("growth of reading the window", sizes=(128, 256, 512, 1024))
def reading(module, n_tokens):
    # Full attention's cache would hand over 4 MB of 1024 tokens; a ring's window is 32 kB, however many went by.
    cache = module.RollingKVCache(8, 8, 64)
    numbers = torch.arange(512.0).view(1, 8, 1, 64)
    for t in range(n_tokens):
        cache.append(numbers + t, numbers - t)
    return cache.window_kv, lambda rng: arguments()
