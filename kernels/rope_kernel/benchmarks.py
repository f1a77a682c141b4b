"""What full-size work should take on a GPU.  The names injected here are listed in CONTRIBUTING.md."""


@speed("4096 tokens, 32 and 8 heads")
def full_size(module):
    def draw(rng):
        q, k = (rng.normal(4096, heads, 128, dtype=torch.bfloat16) for heads in (32, 8))
        angles = rng.uniform(0.0, 6.0, 4096, 64)
        return arguments(q, k, angles.cos(), angles.sin())

    return module.rope_, draw
