"""What full-size work should take on a GPU.  The names injected here are listed in CONTRIBUTING.md."""


@speed("65536 tokens, 8 of 64 experts")
def full_size(module):
    return module.topk_route, lambda rng: arguments(rng.normal(65536, 64), 8)
