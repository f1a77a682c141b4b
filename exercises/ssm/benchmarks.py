"""What a state-space model should cost, run two ways.  The names injected here are listed in CONTRIBUTING.md."""


def _system(rng, states):
    A_bar = rng.uniform(0.5, 0.99, states)
    return A_bar, rng.normal(states), rng.normal(states)


@cost("growth of the convolution's FLOPs")
def convolution_flops(submission, reference, rng):
    sizes, flops = (128, 256, 512, 1024), []
    for size in sizes:
        x, kernel = rng.normal(size), rng.normal(size) / size**0.5
        # A direct convolution is right, and its FLOPs are not the FFT's.
        spent, _ = both(submission.ssm_convolutional, reference.ssm_convolutional, x, kernel, 0.5, plausible=0.05)
        flops.append(spent.flops)
    return fit_exponent(sizes, flops)


@growth("growth of the recurrence", sizes=(64, 128, 256, 512))
def recurrence(module, size):
    return module.ssm_recurrent, lambda rng: arguments(rng.normal(size), *_system(rng, 8), 0.5)


@speed("convolution against the recurrence")
def convolution(module, side):
    if side == "reference":
        return module.ssm_recurrent, lambda rng: arguments(rng.normal(768), *_system(rng, 8), 0.5)
    return module.ssm_convolutional, lambda rng: arguments(rng.normal(768), rng.normal(768) / 28, 0.5)
