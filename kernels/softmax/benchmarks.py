"""What full-size work should take on a GPU.  The names injected here are listed in CONTRIBUTING.md."""


@speed("4096 rows of 4096")
def full_size(module):
    return module.softmax, lambda rng: arguments(rng.normal(4096, 4096, dtype=torch.bfloat16))
