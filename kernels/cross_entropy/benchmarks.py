"""What full-size work should take on a GPU.  The names injected here are listed in CONTRIBUTING.md."""


@speed("512 tokens of 32768")
def full_size(module):
    def draw(rng):
        return arguments(rng.normal(512, 32768, dtype=torch.bfloat16), rng.integers(0, 32768, 512))

    return module.cross_entropy, draw
