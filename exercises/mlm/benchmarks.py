"""What the objectives should cost.  The names injected here are listed in CONTRIBUTING.md."""


@speed("masked-token loss")
def masked_loss(module):
    def draw(rng):
        labels = rng.integers(0, 400, 8, 96)
        unscored = rng.uniform(0.0, 1.0, 8, 96) > 0.3
        return arguments(rng.normal(8, 96, 400), torch.where(unscored, -100, labels))

    return module.mlm_loss, draw
