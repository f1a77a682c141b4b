"""Wrong: slope first."""

from math import exp, log, sqrt
from statistics import linear_regression


def guarded(function):
    def call(*args, **kwargs):
        for value in (*args, *kwargs.values()):
            if value <= 0:
                raise ValueError(f"{function.__name__}{args}: {value} is not positive")
        return function(*args, **kwargs)

    return call


@guarded
def training_flops(n_params, n_tokens):
    return 6.0 * (n_params * n_tokens)


@guarded
def tokens_for(n_params, tokens_per_param=20.0):
    return n_params / (1 / tokens_per_param)


@guarded
def chinchilla_allocation(compute, tokens_per_param=20.0):
    per_param_flops = 6 * tokens_per_param
    n = sqrt(compute) / sqrt(per_param_flops)
    return (n, n * tokens_per_param)


@guarded
def kaplan_allocation(compute, n_ref, compute_ref):
    n = n_ref * compute**0.73 / compute_ref**0.73
    return (n, compute / n / 6)


@guarded
def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    return sum([E, A / n_params**alpha, B / n_tokens**beta])


@guarded
def optimal_allocation(compute, A, B, alpha, beta):
    root = 1 / (alpha + beta)
    n = (alpha * A * (compute / 6) ** beta / (beta * B)) ** root
    d = (beta * B * (compute / 6) ** alpha / (alpha * A)) ** root
    return (n, d)


def fit_power_law(x, y):
    pairs = list(zip(x, y, strict=True))
    if not pairs or any(u <= 0 or v <= 0 for u, v in pairs):
        raise ValueError(f"need positive points, got {pairs[:5]}")
    if len({u for u, _ in pairs}) == 1:
        raise ValueError(f"a single distinct x = {pairs[0][0]}")
    line = linear_regression([log(u) for u, _ in pairs], [log(v) for _, v in pairs])
    return (line.slope, exp(line.intercept))
