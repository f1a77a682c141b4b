"""Right: one engine; Chinchilla and Kaplan are special cases of the optimum under two power laws; results are NamedTuples."""

import math
from typing import NamedTuple


class Allocation(NamedTuple):
    N: float
    D: float


class Law(NamedTuple):
    a: float
    b: float


def positive(*values):
    bad = [v for v in values if v <= 0]
    if bad:
        raise ValueError("not positive: " + ", ".join(map(str, bad)))


def engine(compute, log_g, share):
    half = math.log(compute) - math.log(6)
    return Allocation(math.exp(log_g + share * half), math.exp(-log_g + (1 - share) * half))


def training_flops(n_params, n_tokens):
    positive(n_params, n_tokens)
    return sum((n_params * n_tokens * ops for ops in (2, 2, 2)))


def tokens_for(n_params, tokens_per_param=20.0):
    positive(n_params, tokens_per_param)
    return tokens_per_param * n_params


def chinchilla_allocation(compute, tokens_per_param=20.0):
    positive(compute, tokens_per_param)
    return engine(compute, -math.log(tokens_per_param) / 2, 0.5)


def kaplan_allocation(compute, n_ref, compute_ref):
    positive(compute, n_ref, compute_ref)
    return engine(compute, math.log(n_ref) - 0.73 * (math.log(compute_ref) - math.log(6)), 0.73)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    positive(n_params, n_tokens, E, A, B, alpha, beta)
    return math.fsum(
        (E, math.exp(math.log(A) - alpha * math.log(n_params)), math.exp(math.log(B) - beta * math.log(n_tokens)))
    )


def optimal_allocation(compute, A, B, alpha, beta):
    positive(compute, A, B, alpha, beta)
    s = alpha + beta
    return engine(compute, (math.log(alpha) + math.log(A) - math.log(beta) - math.log(B)) / s, beta / s)


def fit_power_law(x, y):
    positive(*x, *y)
    if len({*x}) < 2:
        raise ValueError(f"two distinct x are needed, x = {x}")
    # slope as the pair-weighted mean of pairwise slopes
    pts = [(math.log(p), math.log(q)) for p, q in zip(x, y)]
    top = math.fsum((p - r) * (q - s) for p, q in pts for r, s in pts)
    bottom = math.fsum((p - r) ** 2 for p, _ in pts for r, _ in pts)
    b = top / bottom
    return Law(math.exp(math.fsum(q - b * p for p, q in pts) / len(pts)), b)
