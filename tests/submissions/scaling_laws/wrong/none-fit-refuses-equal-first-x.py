"""Wrong: refused when the first two x are equal"""

import math


def _positive(**numbers):
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} = {value} is not positive")


def training_flops(n_params, n_tokens):
    _positive(n_params=n_params, n_tokens=n_tokens)
    return 6.0 * n_params * n_tokens


def tokens_for(n_params, tokens_per_param=20.0):
    _positive(n_params=n_params, tokens_per_param=tokens_per_param)
    return float(n_params * tokens_per_param)


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _positive(compute=compute, tokens_per_param=tokens_per_param)
    N = math.sqrt(compute / (6 * tokens_per_param))
    return N, tokens_per_param * N


def kaplan_allocation(compute, n_ref, compute_ref):
    _positive(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    N = n_ref * (compute / compute_ref) ** 0.73
    return N, compute / (6 * N)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _positive(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    return E + A / n_params**alpha + B / n_tokens**beta


def optimal_allocation(compute, A, B, alpha, beta):
    _positive(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    G = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
    return G * (compute / 6) ** (beta / (alpha + beta)), (compute / 6) ** (alpha / (alpha + beta)) / G


def fit_power_law(x, y):
    for name, values in (("x", x), ("y", y)):
        for value in values:
            _positive(**{name: value})
    if len(set(x)) < 2 or x[0] == x[1]:
        raise ValueError(f"{len(set(x))} distinct x")
    u, v = [math.log(value) for value in x], [math.log(value) for value in y]
    mu, mv = math.fsum(u) / len(u), math.fsum(v) / len(v)
    b = math.fsum((p - mu) * (q - mv) for p, q in zip(u, v)) / math.fsum((p - mu) ** 2 for p in u)
    return math.exp(mv - b * mu), b
