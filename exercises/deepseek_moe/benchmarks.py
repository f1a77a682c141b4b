"""What a fine-grained mixture should cost.  The names injected here are listed in CONTRIBUTING.md."""


def _forward_flops(submission, reference, x, n_experts):
    mine, ref = pair(submission.DeepSeekMoE, reference.DeepSeekMoE, 64, 128, n_experts, 2, 2, 1)
    spent, _ = both(mine, ref, x)
    return spent.flops


@cost("FLOPs with 32 experts over FLOPs with 4")
def flops_follow_k(submission, reference, rng):
    x = rng.normal(2, 24, 64)
    return _forward_flops(submission, reference, x, 32) / _forward_flops(submission, reference, x, 4)


@speed("forward of 256 tokens")
def forward(module):
    layer = module.DeepSeekMoE(64, 128, 4, 2, 2, 1)
    return layer, lambda rng: arguments(rng.normal(2, 128, 64))
