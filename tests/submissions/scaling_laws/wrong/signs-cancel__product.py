"""Wrong: the sign of the product of the arguments is checked, so two negative ones pass."""

import math


def positive(**named):
    if math.prod(named.values()) <= 0:
        raise ValueError(f"positive numbers only, got {named}")


def training_flops(n_params, n_tokens):
    positive(n_params=n_params, n_tokens=n_tokens)
    return 6.0 * n_params * n_tokens


def tokens_for(n_params, tokens_per_param=20.0):
    positive(n_params=n_params, tokens_per_param=tokens_per_param)
    return tokens_per_param * n_params


def chinchilla_allocation(compute, tokens_per_param=20.0):
    positive(compute=compute, tokens_per_param=tokens_per_param)
    n = math.sqrt(compute / (6 * tokens_per_param))
    return n, n * tokens_per_param


def kaplan_allocation(compute, n_ref, compute_ref):
    positive(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    n = n_ref * (compute / compute_ref) ** 0.73
    return n, compute / (6 * n)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    positive(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    return E + A / n_params**alpha + B / n_tokens**beta


def optimal_allocation(compute, A, B, alpha, beta):
    positive(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    s = alpha + beta
    g = (alpha * A / (beta * B)) ** (1 / s)
    return g * (compute / 6) ** (beta / s), (compute / 6) ** (alpha / s) / g


def fit_power_law(x, y):
    if not x:
        raise ValueError("no points: 0")
    for p in [*x, *y]:
        positive(number=p)
    if len(set(x)) < 2:
        raise ValueError(f"one distinct x: {x[0]}")
    u, v = [math.log(p) for p in x], [math.log(q) for q in y]
    mu, mv = sum(u) / len(u), sum(v) / len(v)
    b = sum((p - mu) * (q - mv) for p, q in zip(u, v)) / sum((p - mu) ** 2 for p in u)
    return math.exp(mv - b * mu), b
