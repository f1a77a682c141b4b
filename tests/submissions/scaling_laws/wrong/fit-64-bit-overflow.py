"""Wrong: an object array has no logarithm."""

import numpy as np


def _positive(*values):
    if any(not (np.float64(v) > 0) for v in values):
        raise ValueError(f"all of {values} must be positive")


def training_flops(n_params, n_tokens):
    _positive(n_params, n_tokens)
    forward = 2 * n_params * n_tokens
    backward = 2 * forward
    return float(forward + backward)


def tokens_for(n_params, tokens_per_param=20.0):
    _positive(n_params, tokens_per_param)
    return n_params * tokens_per_param


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _positive(compute, tokens_per_param)
    n = np.sqrt(compute / 6 / tokens_per_param)
    d = compute / 6 / n
    return float(n), float(d)


def kaplan_allocation(compute, n_ref, compute_ref):
    _positive(compute, n_ref, compute_ref)
    n = float(np.exp(np.log(n_ref) + 0.73 * (np.log(float(compute)) - np.log(float(compute_ref)))))
    return n, compute / 6 / n


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _positive(n_params, n_tokens, E, A, B, alpha, beta)
    return float(E + A * np.power(float(n_params), -float(alpha)) + B * np.power(float(n_tokens), -float(beta)))


def optimal_allocation(compute, A, B, alpha, beta):
    _positive(compute, A, B, alpha, beta)
    log_nd = np.log(compute / 6)
    log_g = np.log(alpha * A / beta / B) / (alpha + beta)
    log_n = log_g + beta / (alpha + beta) * log_nd
    return float(np.exp(log_n)), float(np.exp(log_nd - log_n))


def fit_power_law(x, y):
    x, y = np.array(x), np.array(y)
    if x.size == 0 or x.size != y.size or np.any(x <= 0) or np.any(y <= 0):
        raise ValueError(f"need positive points, got x={x}, y={y}")
    if np.all(x == x[0]):
        raise ValueError(f"one distinct x: {x[0]}")
    b, log_a = np.polyfit(np.log(x), np.log(y), 1)
    return float(np.exp(log_a)), float(b)
