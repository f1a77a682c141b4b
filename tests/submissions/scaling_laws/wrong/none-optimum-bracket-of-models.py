"""Wrong: bisection between 1e3 and 1e15 parameters."""

import math


def positive(**named):
    for name, value in named.items():
        if value <= 0:
            raise ValueError(f"{name} must be positive, got {value}")


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
    low, high = math.log(1e3), math.log(1e15)
    for _ in range(200):
        u = (low + high) / 2
        d = compute / 6 / math.exp(u)
        low, high = (low, u) if beta * B / d**beta > alpha * A / math.exp(u) ** alpha else (u, high)
    return math.exp(low), compute / 6 / math.exp(low)


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
