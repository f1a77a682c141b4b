"""What a bias should cost.  The names injected here are listed in CONTRIBUTING.md."""


@speed("buckets of a 192 x 192 table")
def buckets(module):
    def draw(rng):
        offset = rng.integers(0, 100)
        return arguments(torch.arange(192) - torch.arange(192)[:, None] - offset)

    return module.relative_position_bucket, draw
