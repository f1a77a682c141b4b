"""What a selective scan should cost.  The names injected here are listed in CONTRIBUTING.md."""

CHUNK = 32


def _inputs(rng, batch, steps, channels, states):
    x = rng.normal(batch, steps, channels)
    delta = rng.uniform(0.01, 0.2, batch, steps, channels)
    A = -rng.uniform(0.5, 2.0, channels, states)
    B, C = rng.normal(batch, steps, states), rng.normal(batch, steps, states)
    return x, delta, A, B, C, rng.normal(channels)


@cost("tensor operations of a chunked scan")
def chunked_operations(submission, reference, rng):
    # A loop across the chunks and a loop inside them are both fine: at these sizes either is far from T operations.
    lengths, chunk, operations = (4096, 4000), 128, 0  # one that the chunk divides, and one that it does not
    for steps in lengths:
        inputs = _inputs(rng, 1, steps, 3, 2)
        scan, ref = submission.chunked_selective_scan, reference.chunked_selective_scan
        # The reference scans by doubling, which is more FLOPs than a loop over chunks.
        spent, _ = both(scan, ref, *inputs, chunk, plausible=0.05)
        operations += spent.operations
    return operations / sum(lengths)


@speed("scan")
def scan(module):
    return module.selective_scan, lambda rng: arguments(*_inputs(rng, 2, 96, 8, 8))


@speed("chunked scan against the kit's loop")
def chunked(module, side):
    if side == "reference":
        loop = module.selective_scan
        return loop, lambda rng: arguments(*_inputs(rng, 2, 512, 4, 4))
    return module.chunked_selective_scan, lambda rng: arguments(*_inputs(rng, 2, 512, 4, 4), CHUNK)


@growth("growth of a chunked scan", sizes=(128, 256, 512, 1024))
def chunked_growth(module, size, side):
    if side == "reference":  # the loop is linear; the kit's own chunked scan is still below its linear part here
        return module.selective_scan, lambda rng: arguments(*_inputs(rng, 1, size, 4, 4))
    return module.chunked_selective_scan, lambda rng: arguments(*_inputs(rng, 1, size, 4, 4), CHUNK)
