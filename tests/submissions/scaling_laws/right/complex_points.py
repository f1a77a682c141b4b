"""Right: a dataclass budget with properties; the fit treats points as complex numbers; inputs unpacked through iterators once."""

import cmath
import math
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True)
class Budget:
    compute: float

    def __post_init__(self):
        if self.compute <= 0:
            raise ValueError(f"compute {self.compute}")

    def with_params(self, n):
        return n, self.compute / (6.0 * n)

    @property
    def product(self):
        return self.compute / 6.0


def _check(**kwargs):
    problems = {k: v for k, v in kwargs.items() if not v > 0.0}
    if problems:
        raise ValueError(f"must be above zero: {problems}")


def training_flops(n_params, n_tokens):
    _check(n_params=n_params, n_tokens=n_tokens)
    return float(n_params) * 6.0 * float(n_tokens)


def tokens_for(n_params, tokens_per_param=20.0):
    _check(n_params=n_params, tokens_per_param=tokens_per_param)
    return float(n_params * tokens_per_param)


def chinchilla_allocation(compute, tokens_per_param=20.0):
    _check(tokens_per_param=tokens_per_param)
    d = math.sqrt(Budget(compute).product * tokens_per_param)
    return d / tokens_per_param, d


def kaplan_allocation(compute, n_ref, compute_ref):
    _check(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    return Budget(compute).with_params(n_ref * math.pow(compute, 0.73) / math.pow(compute_ref, 0.73))


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _check(**dict(locals()))
    return E + A * math.pow(1 / n_params, alpha) + B * math.pow(1 / n_tokens, beta)


def optimal_allocation(compute, A, B, alpha, beta):
    _check(**dict(locals()))
    # dL/dN = 0 with D = C/6N:  alpha A N^-(alpha+1) = beta B (C/6)^-beta N^(beta-1)
    k = Budget(compute).product
    return Budget(compute).with_params((alpha * A / (beta * B) * k**beta) ** (1 / (alpha + beta)))


def fit_power_law(x, y):
    for v in chain(x, y):
        if v <= 0:
            raise ValueError(f"non-positive number {v} in {len(x)} points")
    if len(set(x)) < 2:
        raise ValueError(f"x needs two distinct values and has {sorted(set(x))}")
    z = [complex(math.log(p), math.log(q)) for p, q in zip(x, y, strict=True)]
    m = sum(z) / len(z)
    # E[z z] - E[|z|^2] and E[z^2]: 2 sxy = Im sum w^2, 2 sxx = sum |w|^2 + Re sum w^2
    w2 = sum((p - m) ** 2 for p in z)
    b = w2.imag / (sum(abs(p - m) ** 2 for p in z) + w2.real)
    return abs(cmath.exp(complex(m.imag - b * m.real, 0.0))), b
