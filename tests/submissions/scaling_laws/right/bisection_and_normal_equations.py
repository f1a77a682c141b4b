"""Style: the optimum found by bisection on the derivative in log N, the fit by the normal equations."""

import math


def _check(args):
    for position, value in enumerate(args):
        if not value > 0:
            raise ValueError(f"argument {position} must be > 0 (got {value!r})")


def training_flops(n_params, n_tokens):
    _check((n_params, n_tokens))
    return float(n_params) * float(n_tokens) * 6.0


def tokens_for(n_params, tokens_per_param=20.0):
    _check((n_params, tokens_per_param))
    return float(n_params) * float(tokens_per_param)


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _check((compute, tokens_per_param))
    n = math.exp(0.5 * math.log(compute / (6 * tokens_per_param)))
    return n, tokens_for(n, tokens_per_param)


def kaplan_allocation(compute, n_ref, compute_ref):
    _check((compute, n_ref, compute_ref))
    n = n_ref * math.pow(compute / compute_ref, 0.73)
    return n, compute / training_flops(n, 1)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _check((n_params, n_tokens, E, A, B, alpha, beta))
    return E + A * math.exp(-alpha * math.log(n_params)) + B * math.exp(-beta * math.log(n_tokens))


def optimal_allocation(compute, A, B, alpha, beta):
    _check((compute, A, B, alpha, beta))
    log_nd = math.log(compute / 6)

    def slope(log_n):
        # log of (alpha A N^-alpha) / (beta B D^-beta): falls with N, zero at the optimum
        return math.log(alpha * A) - alpha * log_n - math.log(beta * B) + beta * (log_nd - log_n)

    low, high = -500.0, 500.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return math.exp(low), math.exp(log_nd - low)


def fit_power_law(x, y):
    if not list(x) or len(x) != len(y):
        raise ValueError(f"{len(x)} x and {len(y)} y")
    _check(x)
    _check(y)
    if len(dict.fromkeys(x)) == 1:
        raise ValueError(f"only one distinct x, {x[0]}")
    n = len(x)
    lx, ly = [math.log2(v) for v in x], [math.log2(v) for v in y]
    sx, sy = sum(lx), sum(ly)
    sxx, sxy = sum(v * v for v in lx), sum(u * v for u, v in zip(lx, ly))
    b = (n * sxy - sx * sy) / (n * sxx - sx * sx)
    return 2.0 ** ((sy - b * sx) / n), b
