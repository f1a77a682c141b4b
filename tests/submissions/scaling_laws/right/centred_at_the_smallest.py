"""Right: incremental 2x2 information matrix with centring at the first point, ternary search by the derivative's sign for the optimum, locals() checks"""

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
    bad = {k: v for k, v in locals().items() if v <= 0}
    if bad:
        raise ValueError(f"{bad}")
    total = math.log(compute) - math.log(6)
    # alpha A N^-alpha = beta B D^-beta with log N + log D = total
    n = (math.log(alpha) + math.log(A) - math.log(beta) - math.log(B) + beta * total) / (alpha + beta)
    return math.exp(n), math.exp(total - n)


def fit_power_law(x, y):
    points = list(zip(x, y, strict=True))
    if not points or min(min(p) for p in points) <= 0:
        raise ValueError(f"points {points}")
    if min(x) == max(x):
        raise ValueError(f"only one x: {min(x)}")
    u0 = math.log(min(x))
    n = su = sv = suu = suv = 0.0
    for a, c in points:
        u, v = math.log(a) - u0, math.log(c)
        n, su, sv, suu, suv = n + 1, su + u, sv + v, suu + u * u, suv + u * v
    b = (suv - su * sv / n) / (suu - su * su / n)
    return math.exp((sv - b * su) / n - b * u0), b
