"""Right: everything in Decimal at 60 digits, floats taken exactly, converted at the end."""

from decimal import Decimal, localcontext
from functools import wraps


def decimal_arithmetic(function):
    @wraps(function)
    def call(*args, **kw):
        with localcontext() as context:
            context.prec = 60
            return function(*args, **kw)

    return call


def dec(**named):
    out = []
    for name, value in named.items():
        if not value > 0:
            raise ValueError(f"{name}={value!r} is not positive")
        out.append(Decimal(value))
    return out


def power(base, exponent):
    return (base.ln() * exponent).exp()


@decimal_arithmetic
def training_flops(n_params, n_tokens):
    n, d = dec(n_params=n_params, n_tokens=n_tokens)
    return float(6 * n * d)


@decimal_arithmetic
def tokens_for(n_params, tokens_per_param=20.0):
    n, r = dec(n_params=n_params, tokens_per_param=tokens_per_param)
    return float(n * r)


@decimal_arithmetic
def chinchilla_allocation(compute, tokens_per_param=20.0):
    c, r = dec(compute=compute, tokens_per_param=tokens_per_param)
    n = (c / (6 * r)).sqrt()
    return float(n), float(c / 6 / n)


@decimal_arithmetic
def kaplan_allocation(compute, n_ref, compute_ref):
    c, n0, c0 = dec(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    n = n0 * power(c / c0, Decimal("0.73"))
    return float(n), float(c / 6 / n)


@decimal_arithmetic
def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    n, d, e, a, b, al, be = dec(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    return float(e + a / power(n, al) + b / power(d, be))


@decimal_arithmetic
def optimal_allocation(compute, A, B, alpha, beta):
    c, a, b, al, be = dec(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    g = power(al * a / (be * b), 1 / (al + be))
    n = g * power(c / 6, be / (al + be))
    return float(n), float(c / 6 / n)


@decimal_arithmetic
def fit_power_law(x, y):
    if not x:
        raise ValueError(f"nothing to fit: {x!r}")
    u = [dec(x=v)[0].ln() for v in x]
    v = [dec(y=w)[0].ln() for w in y]
    if len(set(x)) == 1:
        raise ValueError(f"one distinct x: {x[0]}")
    mu, mv = sum(u) / len(u), sum(v) / len(v)
    b = sum((p - mu) * (q - mv) for p, q in zip(u, v)) / sum((p - mu) ** 2 for p in u)
    return float((mv - b * mu).exp()), float(b)
