"""Scaling laws: spending a training budget

Hoffmann et al. 2022, arXiv:2203.15556, section 3.3 and equation 4; Kaplan et al. 2020, arXiv:2001.08361

Part 1 (4 points)  6ND, Chinchilla and Kaplan: training_flops, tokens_for, chinchilla_allocation, kaplan_allocation
Part 2 (3 points)  The parametric loss and its optimum: parametric_loss, optimal_allocation
Part 3 (3 points)  Fitting a power law: fit_power_law

Target: part 1 in 15 minutes, from memory.

    kit show scaling_laws     the statement
    kit grade scaling_laws    the verdict (--part 1 for one part)
    kit hint scaling_laws     a nudge
"""

from __future__ import annotations

from collections.abc import Sequence


def training_flops(n_params: float, n_tokens: float) -> float:
    """Floating-point operations to train a dense model once over the tokens, forward and backward.

    A multiply and an add count as two operations; attention's own products are left out.

    Args:
        n_params: parameters that every token uses.
        n_tokens: training tokens.

    Raises:
        ValueError: if an argument is not positive.
    """
    raise NotImplementedError("part 1: write training_flops")


def tokens_for(n_params: float, tokens_per_param: float = 20.0) -> float:
    """Training tokens that go with a model of this size at a given ratio (20: Chinchilla's rule of thumb).

    Args:
        n_params: parameters.
        tokens_per_param: tokens for each parameter.

    Raises:
        ValueError: if an argument is not positive.
    """
    raise NotImplementedError("part 1: write tokens_for")


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
    raise NotImplementedError("part 1: write chinchilla_allocation")


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
    raise NotImplementedError("part 1: write kaplan_allocation")


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
    raise NotImplementedError("part 2: write parametric_loss")


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
    raise NotImplementedError("part 2: write optimal_allocation")


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
    raise NotImplementedError("part 3: write fit_power_law")
