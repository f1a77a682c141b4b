"""Wrong: np.log of an int array of y"""

import math

import numpy as np


class Budget:
    """6 N D = C."""

    def __init__(self, compute):
        if compute <= 0:
            raise ValueError(f"compute {compute}")
        self.nd = compute / 6

    def with_params(self, n):
        return float(n), float(self.nd / n)


def _check(*values):
    bad = [v for v in values if v <= 0]
    if bad:
        raise ValueError(f"not positive: {bad}")


def training_flops(n_params, n_tokens):
    _check(n_params, n_tokens)
    return 6.0 * n_params * n_tokens


def tokens_for(n_params, tokens_per_param=20.0):
    _check(n_params, tokens_per_param)
    return n_params * float(tokens_per_param)


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _check(tokens_per_param)
    budget = Budget(compute)
    return budget.with_params(math.sqrt(budget.nd / tokens_per_param))


def kaplan_allocation(compute, n_ref, compute_ref):
    _check(n_ref, compute_ref)
    return Budget(compute).with_params(n_ref * math.pow(compute / compute_ref, 0.73))


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _check(n_params, n_tokens, E, A, B, alpha, beta)
    return E + A * float(n_params) ** -alpha + B * float(n_tokens) ** -beta


def optimal_allocation(compute, A, B, alpha, beta):
    _check(A, B, alpha, beta)
    budget = Budget(compute)
    n = (alpha * A / (beta * B) * budget.nd**beta) ** (1 / (alpha + beta))
    return budget.with_params(n)


def fit_power_law(x, y):
    if not x:
        raise ValueError("nothing to fit: 0 points")
    _check(*x, *y)
    u = np.array([math.log(v) for v in x])
    v = np.log(np.array(y))
    if u.min() == u.max():
        raise ValueError(f"a single x: {x[0]}")
    (b, c), *_ = np.linalg.lstsq(np.stack([u - u.mean(), np.ones_like(u)], 1), v, rcond=None)
    return float(np.exp(c - b * u.mean())), float(b)
