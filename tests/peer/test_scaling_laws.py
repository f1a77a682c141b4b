"""`scaling_laws` against scipy's bounded minimiser and its linear regression."""

import importlib.util
import math
import random
from pathlib import Path

import pytest

optimize = pytest.importorskip("scipy.optimize")
stats = pytest.importorskip("scipy.stats")
pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def solution():
    path = Path(__file__).resolve().parents[2] / "solutions" / "scaling_laws.py"
    spec = importlib.util.spec_from_file_location("peer_scaling_laws", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("fit", [(1.69, 406.4, 410.7, 0.34, 0.28), (1.8172, 482.01, 2085.43, 0.3478, 0.3658)])
@pytest.mark.parametrize("compute", [1e19, 5.88e23])
def test_the_optimum_equals_a_numeric_search(solution, fit, compute):
    def loss(log_n):
        n_params = math.exp(log_n)
        return solution.parametric_loss(n_params, compute / 6 / n_params, *fit)

    found = optimize.minimize_scalar(loss, bounds=(10, 40), method="bounded", options={"xatol": 1e-9})
    assert math.log(solution.optimal_allocation(compute, *fit[1:])[0]) == pytest.approx(found.x, abs=1e-4)


def test_the_fit_equals_linear_regression(solution):
    rng = random.Random(3)
    x = [10 ** rng.uniform(0, 6) for _ in range(20)]
    y = [3 * value**-0.4 * math.exp(rng.gauss(0, 0.5)) for value in x]
    line = stats.linregress([math.log(value) for value in x], [math.log(value) for value in y])
    assert solution.fit_power_law(x, y) == pytest.approx((math.exp(line.intercept), line.slope))
