"""What a block should cost.  The names injected here are listed in CONTRIBUTING.md."""


@cost("FLOPs of the feed-forward layer")
def feed_forward_flops(submission, reference, rng):
    mine, ref = pair(submission.SwiGLU, reference.SwiGLU, 48, 128)
    spent, needed = both(mine, ref, rng.normal(2, 17, 48))
    return spent.flops / needed.flops


@speed("forward of a block")
def block_forward(module):
    layer = module.TransformerBlock(192, 6, 2, 512)
    return layer, lambda rng: arguments(rng.normal(2, 128, 192))
