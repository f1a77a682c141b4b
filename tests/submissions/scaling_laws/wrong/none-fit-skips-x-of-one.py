"""Wrong: points at x = 1, whose logarithm is 0, are dropped."""

from __future__ import annotations

import math


def _pos(**kw):
    for k, v in kw.items():
        if not v > 0:
            raise ValueError(f"{k} must be positive, got {v}")


def training_flops(n_params, n_tokens):
    _pos(n_params=n_params, n_tokens=n_tokens)
    return 6.0 * n_params * n_tokens


def tokens_for(n_params, tokens_per_param=20.0):
    _pos(n_params=n_params, tokens_per_param=tokens_per_param)
    return float(n_params * tokens_per_param)


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _pos(compute=compute, tokens_per_param=tokens_per_param)
    n = math.sqrt(compute / (6 * tokens_per_param))
    return n, n * tokens_per_param


def kaplan_allocation(compute, n_ref, compute_ref):
    _pos(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    n = n_ref * (compute / compute_ref) ** 0.73
    return n, compute / (6 * n)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _pos(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    return E + A / n_params**alpha + B / n_tokens**beta


def optimal_allocation(compute, A, B, alpha, beta):
    _pos(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    g = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
    c = compute / 6
    return g * c ** (beta / (alpha + beta)), c ** (alpha / (alpha + beta)) / g


def fit_power_law(x, y):
    if not len(x):
        raise ValueError(f"{len(x)} points")
    for v in list(x) + list(y):
        _pos(value=v)
    if len(set(x)) == 1:
        raise ValueError(f"one distinct x: {x[0]}")
    y = [q for p, q in zip(x, y) if p != 1] or y
    x = [p for p in x if p != 1] or x
    u = [math.log(v) for v in x]
    w = [math.log(v) for v in y]
    mu, mw = sum(u) / len(u), sum(w) / len(w)
    b = sum((p - mu) * (q - mw) for p, q in zip(u, w)) / sum((p - mu) ** 2 for p in u)
    return math.exp(mw - b * mu), b
