"""Where to spend a training budget: parameters N against tokens D, under C = 6 N D floating-point operations.

    C = 6 N D                                   two for the forward pass (a multiply and an add per weight and token),
                                                four for the backward pass (gradients to activations and to weights)
    Kaplan et al. 2020, arXiv:2001.08361        N proportional to C^0.73: mostly a bigger model
    Hoffmann et al. 2022, arXiv:2203.15556      N and D both proportional to C^0.5, about 20 tokens per parameter
      approach 3, equation 2                    L(N, D) = E + A / N^alpha + B / D^beta
      equation 4                                N = G (C/6)^a, D = G^-1 (C/6)^b,
                                                G = (alpha A / (beta B))^(1 / (alpha + beta)),
                                                a = beta / (alpha + beta), b = alpha / (alpha + beta)

Kaplan's 0.73 is partly an artefact: N counted without embeddings at small scale, and one learning-rate schedule for
all lengths of run (arXiv:2406.12907 reconciles the two).  Say which N you mean, here it is one number and the caller's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def _refuse_non_positive(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value > 0:  # written so that NaN is refused too
            raise ValueError(f"{name} must be positive, got {value}")


def training_flops(n_params: float, n_tokens: float) -> float:
    """Floating-point operations to train a dense model once over the tokens, forward and backward.

    A multiply and an add count as two operations; attention's own products are left out.

    Args:
        n_params: parameters that every token uses.
        n_tokens: training tokens.

    Raises:
        ValueError: if an argument is not positive.
    """
    _refuse_non_positive(n_params=n_params, n_tokens=n_tokens)
    flops_per_weight_and_token = 6.0  # 2 forward + 4 backward
    return flops_per_weight_and_token * n_params * n_tokens


def tokens_for(n_params: float, tokens_per_param: float = 20.0) -> float:
    """Training tokens that go with a model of this size at a given ratio (20: Chinchilla's rule of thumb).

    Args:
        n_params: parameters.
        tokens_per_param: tokens for each parameter.

    Raises:
        ValueError: if an argument is not positive.
    """
    _refuse_non_positive(n_params=n_params, tokens_per_param=tokens_per_param)
    return float(tokens_per_param * n_params)


def chinchilla_allocation(compute: float, tokens_per_param: float = 20.0) -> tuple[float, float]:
    """Parameters N and tokens D that spend exactly the compute at a fixed ratio D / N.

    Args:
        compute: training FLOPs, C = 6 N D.
        tokens_per_param: the ratio D / N.

    Returns:
        (N, D), in this order.

    Raises:
        ValueError: if an argument is not positive.
    """
    _refuse_non_positive(compute=compute, tokens_per_param=tokens_per_param)
    # D = r N in C = 6 N D leaves C = 6 r N^2: both grow with the square root of the compute.
    n_squared = compute / (6.0 * tokens_per_param)
    n_params = n_squared**0.5
    n_tokens = tokens_per_param * n_params
    return n_params, n_tokens


def kaplan_allocation(compute: float, n_ref: float, compute_ref: float) -> tuple[float, float]:
    """Parameters N and tokens D by the rule of Kaplan et al., scaled from a reference run.

    Args:
        compute: training FLOPs to spend, C = 6 N D.
        n_ref: parameters that were right for the reference run.
        compute_ref: training FLOPs of the reference run.

    Returns:
        (N, D), in this order: N grows as compute to the power 0.73, D is what the compute then leaves.

    Raises:
        ValueError: if an argument is not positive.
    """
    _refuse_non_positive(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    growth = compute / compute_ref
    kaplan_n = n_ref * growth**0.73
    kaplan_d = compute / (6.0 * kaplan_n)  # grows as C^0.27, without a second constant
    return kaplan_n, kaplan_d


def parametric_loss(n_params: float, n_tokens: float, E: float, A: float, B: float, alpha: float, beta: float) -> float:
    """The fitted loss of Hoffmann et al., approach 3: L(N, D) = E + A / N^alpha + B / D^beta, in nats per token.

    Args:
        n_params: N.
        n_tokens: D.
        E: the loss no model can go below.
        A: coefficient of the model-size term.
        B: coefficient of the data term.
        alpha: exponent of N.
        beta: exponent of D.

    Raises:
        ValueError: if an argument is not positive.
    """
    _refuse_non_positive(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    size_term = A / n_params**alpha  # what a finite model cannot express
    data_term = B / n_tokens**beta  # what finite data did not teach
    return E + size_term + data_term


def optimal_allocation(compute: float, A: float, B: float, alpha: float, beta: float) -> tuple[float, float]:
    """The N and D that minimise E + A / N^alpha + B / D^beta under 6 N D = compute, in closed form.

    Args:
        compute: training FLOPs.
        A: coefficient of the model-size term.
        B: coefficient of the data term.
        alpha: exponent of N.
        beta: exponent of D.

    Returns:
        (N, D), in this order.

    Raises:
        ValueError: if an argument is not positive.
    """
    _refuse_non_positive(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    # Put D = (C/6) / N into the loss and set the derivative by N to 0:
    #   alpha A N^-alpha = beta B D^-beta   (both terms fall equally fast at the optimum)
    #   N^(alpha + beta) = (alpha A / (beta B)) (C/6)^beta
    product = compute / 6.0  # N D
    total = alpha + beta
    balance = (alpha * A) / (beta * B)
    G = balance ** (1.0 / total)
    optimal_n = G * product ** (beta / total)
    optimal_d = product ** (alpha / total) / G
    return optimal_n, optimal_d


def fit_power_law(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The power law y = a x^b that is nearest to the points: ordinary least squares between log x and log y.

    Args:
        x: positive numbers, ints of any size or floats, at least two distinct ones.
        y: positive numbers, as many.

    Returns:
        (a, b), in this order.

    Raises:
        ValueError: if a number is not positive, nothing is given, or x has one distinct value.
    """
    xs, ys = list(x), list(y)
    if len(xs) != len(ys):
        raise ValueError(f"x has {len(xs)} numbers and y has {len(ys)}")
    if not xs:
        raise ValueError("no points to fit: x and y have 0 numbers")
    for name, values in (("x", xs), ("y", ys)):
        for value in values:
            if not value > 0:
                raise ValueError(f"every {name} must be positive for a logarithm, got {value}")
    if len(set(xs)) < 2:
        raise ValueError(f"a slope needs two distinct x, got {len(xs)} times {xs[0]}")
    # math.log takes an int of any size; an array or tensor of ints would overflow at 2^63, and a budget is 10^24.
    log_x = [math.log(value) for value in xs]
    log_y = [math.log(value) for value in ys]
    mean_x = math.fsum(log_x) / len(log_x)
    mean_y = math.fsum(log_y) / len(log_y)
    covariance = math.fsum((u - mean_x) * (v - mean_y) for u, v in zip(log_x, log_y, strict=True))
    variance = math.fsum((u - mean_x) ** 2 for u in log_x)
    slope = covariance / variance
    intercept = mean_y - slope * mean_x
    return math.exp(intercept), slope
