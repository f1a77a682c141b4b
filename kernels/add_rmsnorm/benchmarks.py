"""What full-size work should take on a GPU.  The names injected here are listed in CONTRIBUTING.md."""


@speed("2048 tokens of 4096")
def full_size(module):
    def draw(rng):
        x, residual = (rng.normal(2048, 4096, dtype=torch.bfloat16) for _ in range(2))
        return arguments(x, residual, rng.normal(4096, dtype=torch.bfloat16))

    return module.add_rmsnorm, draw
