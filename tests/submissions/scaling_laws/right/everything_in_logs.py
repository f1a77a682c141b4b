"""Right: everything in logs; statistics.linear_regression"""

import math
from statistics import linear_regression


def _positive(**numbers):
    for name, value in numbers.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, not {value}")


def training_flops(n_params, n_tokens):
    _positive(n_params=n_params, n_tokens=n_tokens)
    return float(6 * n_params * n_tokens)


def tokens_for(n_params, tokens_per_param=20.0):
    _positive(n_params=n_params, tokens_per_param=tokens_per_param)
    return float(n_params) * tokens_per_param


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _positive(compute=compute, tokens_per_param=tokens_per_param)
    log_n = 0.5 * (math.log(compute) - math.log(6 * tokens_per_param))
    return math.exp(log_n), tokens_per_param * math.exp(log_n)


def kaplan_allocation(compute, n_ref, compute_ref):
    _positive(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    n = math.exp(math.log(n_ref) + 0.73 * (math.log(compute) - math.log(compute_ref)))
    return n, compute / (6 * n)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _positive(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    return E + math.exp(math.log(A) - alpha * math.log(n_params)) + math.exp(math.log(B) - beta * math.log(n_tokens))


def optimal_allocation(compute, A, B, alpha, beta):
    _positive(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    budget = math.log(compute) - math.log(6)
    log_g = (math.log(alpha) + math.log(A) - math.log(beta) - math.log(B)) / (alpha + beta)
    log_n = log_g + beta / (alpha + beta) * budget
    return math.exp(log_n), math.exp(budget - log_n)


def fit_power_law(x, y):
    if len(x) == 0:
        raise ValueError("0 points")
    if len(x) != len(y):
        raise ValueError(f"{len(x)} and {len(y)} points")
    for value in (*x, *y):
        _positive(value=value)
    if len(set(x)) == 1:
        raise ValueError(f"one distinct x: {x[0]}")
    slope, intercept = linear_regression([math.log(v) for v in x], [math.log(v) for v in y])
    return math.exp(intercept), slope
