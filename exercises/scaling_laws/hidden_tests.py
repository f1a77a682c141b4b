"""Hidden tests of the scaling laws."""

import math

import pytest

TOL = 1e-5  # a count in float32 inside is fine; the mildest mistake moves a value by far more


def magnitude(rng, low, high):
    """A float between 10^low and 10^high, its logarithm uniform."""
    return 10.0 ** rng.uniform(low, high)


def pair_of(values):
    """(N, D) as two floats."""
    n_params, n_tokens = values
    return float(n_params), float(n_tokens)


@part(1)
def test_training_flops_count_forward_and_backward(submission, reference, rng):
    draws = [(magnitude(rng, 6, 12), magnitude(rng, 8, 14)) for _ in range(4)]
    mine = [float(submission.training_flops(*draw)) for draw in draws]
    close(mine, [reference.training_flops(*draw) for draw in draws], says="FLOPs of training", tol=TOL)


@part(1)
def test_published_training_budgets(submission):
    mine = [float(submission.training_flops(*run)) for run in ((70 * 10**9, 1400 * 10**9), (175 * 10**9, 300 * 10**9))]
    close(mine, [5.88e23, 3.15e23], says="Chinchilla 70B on 1.4T tokens; GPT-3 175B on 300B", tol=TOL)


@part(1)
def test_tokens_for_a_model(submission, reference, rng):
    draws = [(magnitude(rng, 6, 12), rng.uniform(30.0, 300.0)) for _ in range(3)]
    mine = [float(submission.tokens_for(*draw)) for draw in draws]
    close(mine, [reference.tokens_for(*draw) for draw in draws], says="tokens at a given ratio", tol=TOL)


@part(1)
def test_chinchilla_s_twenty_tokens_per_parameter(submission, rng):
    n_params = magnitude(rng, 7, 11)
    mine = [float(submission.tokens_for(70 * 10**9)), float(submission.tokens_for(n_params))]
    close(mine, [1.4e12, 20 * n_params], says="20 tokens for each parameter unless told otherwise", tol=TOL)
    many = rng.integers(10**18, 9 * 10**18)
    tokens = float(submission.tokens_for(many, 30))
    close(tokens, 30.0 * many, says="more tokens than fit into 64 bits, from ints", tol=TOL)


@part(1)
def test_chinchilla_allocation_at_a_given_ratio(submission, reference, rng):
    draws = [(magnitude(rng, 18, 26), rng.uniform(30.0, 300.0)) for _ in range(4)]
    draws.append((draws[0][0], 2 * draws[0][1]))  # the same budget at another ratio: nothing is left of the first call
    mine = [pair_of(submission.chinchilla_allocation(*draw)) for draw in draws]
    expected = [reference.chinchilla_allocation(*draw) for draw in draws]
    close(mine, expected, says="(N, D) that spend the compute at this ratio of D to N", tol=TOL)


@part(1)
def test_chinchilla_allocation_by_default(submission, reference, rng):
    draws = [(5.88e23,), (magnitude(rng, 18, 26),), (6 * 10**22,), (magnitude(rng, 27, 30),)]
    mine = [pair_of(submission.chinchilla_allocation(*draw)) for draw in draws]
    expected = [reference.chinchilla_allocation(*draw) for draw in draws]
    close(mine[0], (70e9, 1.4e12), says="5.88e23 FLOPs are Chinchilla: 70B on 1.4T tokens", tol=TOL)
    close(mine, expected, says="(N, D) at 20 tokens per parameter", tol=TOL)


@part(1)
def test_a_toy_budget_is_not_rounded_to_whole_parameters(submission, reference, rng):
    draws = [(rng.uniform(500.0, 900.0),), (rng.uniform(2e3, 9e3), rng.uniform(1.5, 4.0))]
    draws.append((rng.uniform(2e3, 9e3), rng.uniform(0.1, 0.9)))
    mine = [pair_of(submission.chinchilla_allocation(*draw)) for draw in draws]
    expected = [reference.chinchilla_allocation(*draw) for draw in draws]
    close(mine, expected, says="(N, D) of a small budget, which need not be whole numbers", tol=TOL)
    sizes = (rng.uniform(0.1, 0.9), rng.uniform(1.1, 1.9))
    flops = float(submission.training_flops(*sizes))
    close(flops, reference.training_flops(*sizes), says="FLOPs of sizes that are no whole numbers", tol=TOL)
    tokens = float(submission.tokens_for(*sizes))
    close(tokens, reference.tokens_for(*sizes), says="tokens for a size that is no whole number", tol=TOL)
    sizes = (rng.uniform(20.0, 90.0), rng.uniform(0.1, 0.9))
    tokens = float(submission.tokens_for(*sizes))
    close(tokens, sizes[0] * sizes[1], says="fewer tokens than parameters", tol=TOL)


@part(1)
def test_a_toy_reference_is_not_rounded_to_whole_parameters(submission, reference, rng):
    draws = [(rng.uniform(2e3, 9e3), rng.uniform(20.0, 60.0), rng.uniform(500.0, 1500.0))]
    draws.append((rng.uniform(3.0, 9.0), rng.uniform(0.1, 0.9), rng.uniform(20.0, 90.0)))
    mine = [pair_of(submission.kaplan_allocation(*draw)) for draw in draws]
    says = "(N, D) of a small budget, which need not be whole numbers"
    close(mine, [reference.kaplan_allocation(*draw) for draw in draws], says=says, tol=TOL)


@part(1)
def test_kaplan_allocation_grows_from_the_reference(submission, reference, rng):
    draws = []
    for growth in (rng.uniform(3, 30), rng.uniform(0.01, 0.3), rng.uniform(1e3, 1e5)):
        compute_ref = magnitude(rng, 18, 22)
        draws.append((compute_ref * growth, magnitude(rng, 7, 10), compute_ref))
    draws.append((compute_ref, magnitude(rng, 7, 10), compute_ref))  # the reference's own compute
    mine = [pair_of(submission.kaplan_allocation(*draw)) for draw in draws]
    close(mine, [reference.kaplan_allocation(*draw) for draw in draws], says="(N, D) by Kaplan's exponent", tol=TOL)


@part(1)
def test_ten_times_the_compute_is_5_37_times_the_model_for_kaplan(submission):
    n_params, n_tokens = pair_of(submission.kaplan_allocation(6 * 10**22, 10**9, 6 * 10**21))
    close(
        (n_params, n_tokens),
        (5.370317963702527e9, 1.862087136662867e12),
        says="C x 10 gives N x 5.37, D x 1.86",
        tol=TOL,
    )


BAD = (0, -1)  # as a factor on an argument that was fine


def refuses(call, *args):
    """Whether the call raises ValueError."""
    try:
        call(*args)
    except ValueError:
        return True
    except Exception as error:
        if getattr(error, "not_started", False):
            raise
    return False


def all_refused(call, name, good, factor, skipped=()):
    """Every argument in turn made zero or negative."""
    refused = []
    for place in range(len(good)):
        if place not in skipped:
            draw = list(good)
            draw[place] *= factor
            refused.append(refuses(call, *draw))
    what = "zero" if factor == 0 else "negative"
    same(refused, [True] * len(refused), says=f"{name} must raise ValueError when an argument is {what}: each in turn")


def every_two_refused(call, name, good):
    """Every two arguments made negative: a product or a quotient of them is positive again."""
    refused = []
    for other in range(len(good)):
        for one in range(other):
            draw = list(good)
            draw[one], draw[other] = -draw[one], -draw[other]
            refused.append(refuses(call, *draw))
    says = f"{name} must raise ValueError when two arguments are negative: every two in turn"
    same(refused, [True] * len(refused), says=says)


@part(1)
@pytest.mark.parametrize("factor", BAD)
@pytest.mark.parametrize("name", ["training_flops", "tokens_for", "chinchilla_allocation", "kaplan_allocation"])
def test_non_positive_budgets_are_refused(submission, rng, name, factor):
    count = 3 if name == "kaplan_allocation" else 2
    all_refused(getattr(submission, name), name, [rng.uniform(10.0, 1000.0) for _ in range(count)], factor)


@part(1)
def test_two_negative_arguments_do_not_cancel(submission, rng):
    counts = {"training_flops": 2, "tokens_for": 2, "chinchilla_allocation": 2, "kaplan_allocation": 3}
    for name, count in counts.items():
        every_two_refused(getattr(submission, name), name, [rng.uniform(10.0, 1000.0) for _ in range(count)])


ROUNDED = (1.69, 406.4, 410.7, 0.34, 0.28)  # Hoffmann et al., as printed
EXACT = (1.69, 406.4, 410.7, 0.3392, 0.2849)  # the exponents in their TeX source
REFIT = (1.8172, 482.01, 2085.43, 0.3478, 0.3658)  # Besiroglu et al. 2024


def constants(rng):
    """E, A, B, alpha, beta with every term visible and no two alike."""
    alpha = rng.uniform(0.2, 0.35)
    return (
        rng.uniform(0.5, 3.0),
        rng.uniform(100.0, 500.0),
        rng.uniform(900.0, 3000.0),
        alpha,
        alpha + rng.uniform(0.1, 0.3),
    )


@part(2)
def test_parametric_loss_of_random_runs(submission, reference, rng):
    draws = [(magnitude(rng, 5, 8), magnitude(rng, 6, 9), *constants(rng)) for _ in range(4)]
    draws += [(magnitude(rng, 13, 15), magnitude(rng, 14, 16), *constants(rng))]  # both terms are still to be seen
    mine = [float(submission.parametric_loss(*draw)) for draw in draws]
    close(mine, [reference.parametric_loss(*draw) for draw in draws], says="E + A / N^alpha + B / D^beta", tol=TOL)


@part(2)
def test_published_losses_of_chinchilla(submission):
    mine = [float(submission.parametric_loss(70e9, 1.4e12, *fit)) for fit in (ROUNDED, EXACT, REFIT)]
    close(
        mine, [1.93665, 1.91744, 1.97388], says="70B on 1.4T tokens: printed exponents, exact ones, the refit", tol=1e-5
    )


@part(2)
def test_whole_numbers_are_numbers(submission, reference):
    mine = float(submission.parametric_loss(10**9, 10**24, 2, 400, 410, 1, 2))
    close(mine, reference.parametric_loss(10**9, 10**24, 2, 400, 410, 1, 2), says="ints as arguments", tol=TOL)
    mine = pair_of(submission.optimal_allocation(6 * 10**24, 400, 410, 1, 2))
    close(mine, reference.optimal_allocation(6 * 10**24, 400, 410, 1, 2), says="ints as arguments", tol=TOL)


@part(2)
def test_toy_runs_need_not_be_whole_numbers(submission, reference, rng):
    sizes = [(rng.uniform(0.1, 0.9), rng.uniform(1.1, 1.9)), (rng.uniform(1.1, 1.9), rng.uniform(0.1, 0.9))]
    draws = [(*size, rng.uniform(0.1, 0.9), *(rng.uniform(0.2, 1.8) for _ in range(4))) for size in sizes]
    mine = [float(submission.parametric_loss(*draw)) for draw in draws]
    close(mine, [reference.parametric_loss(*draw) for draw in draws], says="the loss of a toy model", tol=TOL)
    small, balanced = rng.uniform(2e2, 9e2), rng.uniform(6e3, 9e3)
    draws = [(small, 2.0, 900.0, 0.6, rng.uniform(0.5, 0.7)), (small, 900.0, 2.0, 0.6, rng.uniform(0.5, 0.7))]
    draws.append((balanced, 8.0, 8.0, rng.uniform(0.4, 0.6), rng.uniform(0.4, 0.6)))
    draws.append((balanced, rng.uniform(0.1, 0.9), rng.uniform(0.1, 0.9), *draws[-1][3:]))
    mine = [pair_of(submission.optimal_allocation(*draw)) for draw in draws]
    says = "(N, D) of a small budget: not whole numbers, and one of the two may be under 1"
    close(mine, [reference.optimal_allocation(*draw) for draw in draws], says=says, tol=TOL)


@part(2)
def test_optimal_allocation_in_closed_form(submission, reference, rng):
    draws = [(magnitude(rng, 18, 26), *constants(rng)[1:]) for _ in range(4)]
    budget, A, B, alpha, beta = draws[0]
    draws += [(budget, 3 * A, B, alpha, beta), (budget, A, B, alpha, alpha)]  # other coefficients; equal exponents
    draws += [(budget, A, B, 1 + beta, beta), (budget, A, B, alpha, 1 + beta)]  # an exponent above 1
    mine = [pair_of(submission.optimal_allocation(*draw)) for draw in draws]
    close(mine, [reference.optimal_allocation(*draw) for draw in draws], says="(N, D) of the lowest loss", tol=TOL)


@part(2)
def test_published_optimum_of_chinchilla_s_budget(submission):
    mine = [pair_of(submission.optimal_allocation(5.88e23, *fit[1:])) for fit in (ROUNDED, REFIT)]
    expected = [(3.249100903e10, 3.016219038e12), (7.301639936e10, 1.342164238e12)]
    close(
        mine, expected, says="5.88e23 FLOPs: 32B by the printed exponents, 73B (18 tokens each) by the refit", tol=1e-4
    )


@part(2)
def test_no_neighbour_on_the_budget_is_better(submission, reference, rng):
    budget, (E, A, B, alpha, beta) = magnitude(rng, 20, 24), constants(rng)
    n_params, n_tokens = pair_of(submission.optimal_allocation(budget, A, B, alpha, beta))
    close(6.0 * n_params * n_tokens, budget, says="6 N D must be the compute", tol=TOL)

    def loss(factor):
        return reference.parametric_loss(n_params * factor, n_tokens / factor, E, A, B, alpha, beta)

    best = min(loss(0.9), loss(1.1)) > loss(1.0)
    check(best, "moving a tenth between N and D must raise the loss", seen=(n_params, n_tokens))


@part(2)
@pytest.mark.parametrize("factor", BAD)
def test_non_positive_losses_are_refused(submission, rng, factor):
    good = [magnitude(rng, 5, 8), magnitude(rng, 6, 9), *constants(rng)]
    skipped = (2,) if factor == 0 else ()  # a floor of 0 is a borderline nobody needs to fail on
    all_refused(submission.parametric_loss, "parametric_loss", good, factor, skipped)


@part(2)
@pytest.mark.parametrize("factor", BAD)
def test_non_positive_optima_are_refused(submission, rng, factor):
    good = [magnitude(rng, 18, 22), *constants(rng)[1:]]
    all_refused(submission.optimal_allocation, "optimal_allocation", good, factor)


@part(2)
def test_two_negative_arguments_of_a_loss_do_not_cancel(submission, rng):
    E, A, B, alpha, beta = constants(rng)
    good = [magnitude(rng, 5, 8), magnitude(rng, 6, 9), E, A, B, alpha, beta]
    every_two_refused(submission.parametric_loss, "parametric_loss", good)
    every_two_refused(submission.optimal_allocation, "optimal_allocation", [magnitude(rng, 18, 22), A, B, alpha, beta])


def law(rng, count, noise, sign=None, low=1):
    """Points around a power law, in no order; x from 10^low up."""
    a, b = magnitude(rng, -1, 2), rng.uniform(0.2, 0.9) * (sign or rng.choice([-1, 1]))
    x = [magnitude(rng, low, low + 4) for _ in range(count)]
    y = [a * value**b * math.exp(noise * rng.uniform(-1.0, 1.0)) for value in x]
    return a, b, x, y


@part(3)
def test_a_clean_law_is_recovered(submission, rng):
    a, b, x, y = law(rng, rng.integers(5, 12), 0.0)
    close(pair_of(submission.fit_power_law(x, y)), (a, b), says="points that lie on y = a x^b", tol=TOL)


@part(3)
def test_noisy_points_are_fitted_by_least_squares_of_the_logs(submission, reference, rng):
    for sign in (1, -1):
        _, _, x, y = law(rng, rng.integers(6, 12), 0.8, sign)
        says = "least squares of log y on log x, every point with the same weight"
        close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)
    y = y[1:] + y[:1]
    says = "the same x with other y: nothing is left of the fit before"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)


@part(3)
def test_many_points_all_count(submission, reference, rng):
    _, _, x, y = law(rng, rng.integers(150, 250), 0.8)
    says = f"{len(x)} points, every one with the same weight"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)
    y[x.index(max(x))] *= 1e4
    says = "a point far away from all others has the same weight as they"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)


@part(3)
def test_a_repeated_point_counts_twice(submission, reference, rng):
    _, _, x, y = law(rng, 5, 0.8)
    x, y = [x[0], x[0], *x, x[0]], [y[0], 3 * y[0], *y, 7 * y[0]]
    says = "points with the same x all count"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)


@part(3)
def test_two_points_are_enough(submission, rng):
    low, high = rng.uniform(2.0, 9.0), rng.uniform(20.0, 90.0)
    a, b = rng.uniform(2.0, 9.0), rng.uniform(0.3, 0.9)
    mine = pair_of(submission.fit_power_law([high, low], [a * high**b, a * low**b]))
    close(mine, (a, b), says="the line through two points", tol=TOL)
    for b in (rng.uniform(0.01, 0.04), -rng.uniform(1.5, 3.0)):
        mine = pair_of(submission.fit_power_law([low, high], [a * low**b, a * high**b]))
        close(mine, (a, b), says="the line through two points, nearly flat or steep", tol=1e-4)


@part(3)
def test_two_x_close_together_are_two(submission, rng):
    low = rng.uniform(50.0, 200.0)
    a, b = rng.uniform(2.0, 9.0), rng.uniform(0.5, 0.9)
    x = [low, low * 1.0005, low]
    mine = pair_of(submission.fit_power_law(x, [a * value**b for value in x]))
    close(mine, (a, b), says="two distinct x, a two-thousandth apart", tol=2e-2)


@part(3)
def test_a_one_counts_like_any_number(submission, reference, rng):
    # Its logarithm is 0: nothing to skip.
    x, y = [1, 2, 4, 9], [rng.uniform(3.0, 5.0), 1, rng.uniform(6.0, 9.0), rng.uniform(2.0, 9.0)]
    says = "an x of 1 and a y of 1 are points like all others"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)


@part(3)
def test_small_numbers_are_numbers_too(submission, reference, rng):
    for low, says in ((-4, "x under 1, whose logarithms are negative"), (-14, "x of a billionth and less")):
        _, _, x, y = law(rng, rng.integers(6, 12), 0.8, low=low)
        close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=TOL)
    x, y = [value * 1e12 for value in x], [value * 1e-15 / max(y) for value in y]
    says = "y of a billionth of a billionth and less"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=1e-4)


@part(3)
def test_a_flat_law_has_exponent_zero(submission, rng):
    a, count = rng.uniform(2.0, 9.0), rng.integers(3, 9)
    mine, b = pair_of(submission.fit_power_law([magnitude(rng, 1, 5) for _ in range(count)], [a] * count))
    close((mine, 1.0 + b), (a, 1.0), says="the same y everywhere: a is this y, b is 0", tol=TOL)
    x, b = [magnitude(rng, 1, 5) for _ in range(count)], rng.uniform(0.001, 0.009)
    mine = pair_of(submission.fit_power_law(x, [a * value**b for value in x]))
    close(mine, (a, b), says="a law that is nearly flat: b is small and not 0", tol=1e-3)


@part(3)
def test_budgets_beyond_64_bits_are_numbers_too(submission, reference, rng):
    x = [rng.integers(10**power, 10 ** (power + 1)) for power in (18, 20, 21, 23, 25)]
    y = [rng.integers(10**9, 10**10) * 3**step for step in range(5)]
    says = "FLOP counts above 2^63 as ints"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=1e-4)
    x, y = [value // 10**15 for value in x], [value * 10**12 for value in y]
    says = "token counts above 2^63 as ints, in y this time"
    close(pair_of(submission.fit_power_law(x, y)), reference.fit_power_law(x, y), says=says, tol=1e-4)


@part(3)
def test_chinchilla_s_exponent_from_its_own_allocations(submission, reference):
    budgets = [10**power for power in range(19, 26)]
    sizes = [reference.chinchilla_allocation(budget)[0] for budget in budgets]
    close(pair_of(submission.fit_power_law(budgets, sizes)), (120**-0.5, 0.5), says="N = (C / 120)^0.5", tol=1e-4)


@part(3)
def test_nothing_and_one_x_cannot_be_fitted(submission, rng):
    with raises(ValueError, says="no points"):
        submission.fit_power_law([], [])
    x = rng.uniform(2.0, 9.0)
    with raises(ValueError, says="one point has no slope"):
        submission.fit_power_law([x], [2 * x])


@part(3)
def test_one_distinct_x_has_no_slope(submission, rng):
    for x, count in ((rng.uniform(2.0, 9.0), 2), (1.0, rng.integers(3, 7))):
        with raises(ValueError, says=f"{count} points, all at x = {x}"):
            submission.fit_power_law([x] * count, [rng.uniform(1.0, 9.0) for _ in range(count)])
    with raises(ValueError, says="two points at x = 2 and x = 2.0"):
        submission.fit_power_law([2, 2.0], [rng.uniform(1.0, 9.0) for _ in range(2)])


@part(3)
def test_one_distinct_x_has_no_slope_however_its_logarithms_are_rounded(submission, rng):
    # Of three times log 6 the mean is not log 6, in whatever way they are added up; nor of five times log 7.
    for x, count in ((6.0, 3), (7.0, 5), (rng.uniform(2.0, 9.0), 13)):
        with raises(ValueError, says=f"{count} points, all at x = {x}"):
            submission.fit_power_law([x] * count, [rng.uniform(1.0, 9.0) for _ in range(count)])


@part(3)
@pytest.mark.parametrize("factor", BAD)
@pytest.mark.parametrize("which", ["x", "y"])
def test_points_without_a_logarithm_are_refused(submission, rng, which, factor):
    points = {"x": [rng.uniform(2.0, 9.0) for _ in range(5)], "y": [rng.uniform(2.0, 9.0) for _ in range(5)]}
    place = rng.integers(0, 5)
    points[which][place] *= factor
    with raises(ValueError, says=f"a {which} of {points[which][place]}"):
        submission.fit_power_law(points["x"], points["y"])
