"""Right: base-2 logs and Givens rotations folded over the points with functools.reduce; ternary search for the optimum."""

from functools import reduce
from math import exp2, hypot, log2


def _refuse(value):
    raise ValueError(f"positive numbers only: {value}")


def _all(*values):
    return [v if v > 0 else _refuse(v) for v in values]


def training_flops(n_params, n_tokens):
    return reduce(lambda p, q: p * q, _all(n_params, n_tokens), 6)


def tokens_for(n_params, tokens_per_param=20.0):
    return reduce(lambda p, q: p * q, _all(n_params, tokens_per_param))


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _all(compute, tokens_per_param)
    n = exp2((log2(compute) - log2(6) - log2(tokens_per_param)) / 2)
    return n, tokens_for(n, tokens_per_param)


def kaplan_allocation(compute, n_ref, compute_ref):
    c, n, r = map(log2, _all(compute, n_ref, compute_ref))
    n += 0.73 * (c - r)
    return exp2(n), exp2(c - n) / 6


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    n, d, e, a, b, p, q = _all(n_params, n_tokens, E, A, B, alpha, beta)
    return e + a / n**p + b / d**q


def optimal_allocation(compute, A, B, alpha, beta):
    _all(compute, A, B, alpha, beta)
    t = log2(compute / 6)

    def slope(u):
        return log2(beta * B) - beta * (t - u) - log2(alpha * A) + alpha * u

    low, high = -5000.0, 5000.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    return exp2(low), exp2(t - low)


def fit_power_law(x, y):
    if not x:
        raise ValueError(f"x has {len(x)} points")
    _all(*x, *y)
    if all(p == x[0] for p in x):
        raise ValueError(f"only x = {x[0]}")

    def fold(state, row):
        r11, r12, z1, r22, z2 = state
        p, q, z = row
        h = hypot(r11, p)
        c, s = r11 / h, p / h
        r11, r12, q = h, c * r12 + s * q, c * q - s * r12
        z1, z = c * z1 + s * z, c * z - s * z1
        h = hypot(r22, q)
        if h:
            c, s = r22 / h, q / h
            r22, z2 = h, c * z2 + s * z
        return r11, r12, z1, r22, z2

    r11, r12, z1, r22, z2 = reduce(fold, ((1.0, log2(p), log2(q)) for p, q in zip(x, y)), (0.0,) * 5)
    b = z2 / r22
    return exp2((z1 - r12 * b) / r11), b
