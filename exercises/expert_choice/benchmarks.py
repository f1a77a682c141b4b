"""What expert choice should cost.  The names injected here are listed in CONTRIBUTING.md."""


def _forward_flops(submission, reference, x, n_experts):
    mine, ref = pair(submission.ExpertChoiceMoE, reference.ExpertChoiceMoE, 64, 128, n_experts, 2.0)
    spent, _ = both(mine, ref, x)
    return spent.flops


@cost("FLOPs with 32 experts over FLOPs with 4")
def flops_follow_capacity(submission, reference, rng):
    x = rng.normal(2, 64, 64)
    return _forward_flops(submission, reference, x, 32) / _forward_flops(submission, reference, x, 4)


@speed("forward of 256 tokens")
def forward(module):
    layer = module.ExpertChoiceMoE(64, 128, 8, 2.0)
    return layer, lambda rng: arguments(rng.normal(2, 128, 64))
