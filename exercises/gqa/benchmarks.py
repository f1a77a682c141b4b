"""What grouped-query attention should cost.  The names injected here are listed in CONTRIBUTING.md."""


def _decode_step(submission, reference, rng, past):
    """The costs of one decode step of each after `past` tokens, and the bytes of the cache it returns."""
    mine, ref = pair(submission.GroupedQueryAttention, reference.GroupedQueryAttention, 128, 8, 2)
    cache = (rng.normal(2, 2, past, 16), rng.normal(2, 2, past, 16))
    spent, needed = both(mine, ref, rng.normal(2, 1, 128), kv_cache=cache, use_cache=True)
    return spent, needed, 2 * 2 * 2 * (past + 1) * 16 * 4


@cost("FLOPs of a decode step")
def decode_step_flops(submission, reference, rng):
    spent, needed, _ = _decode_step(submission, reference, rng, past=160)
    return spent.flops / needed.flops


@cost("bytes a decode step allocates")
def decode_step_bytes(submission, reference, rng):
    spent, _, cache_bytes = _decode_step(submission, reference, rng, past=640)
    return spent.allocated_bytes / cache_bytes


@speed("training forward")
def training_forward(module):
    layer = module.GroupedQueryAttention(256, 8, 2)
    return layer, lambda rng: arguments(rng.normal(2, 192, 256))
