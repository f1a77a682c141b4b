"""What a rotation should cost.  The names injected here are listed in CONTRIBUTING.md."""


@speed("rotation")
def rotation(module):
    def draw(rng):
        start = rng.integers(0, 64)
        return arguments(rng.normal(2, 8, 192, 64), torch.arange(start, start + 192).to(rng.normal(1).device))

    return module.apply_rope, draw
