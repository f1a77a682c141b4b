"""Wrong, and in no catalogue: an allocation is rounded to whole parameters."""

import math

def _pos(**kw):
    for n, v in kw.items():
        if not v > 0:
            raise ValueError(f"{n} must be positive, got {v}")

def training_flops(n_params, n_tokens):
    _pos(n_params=n_params, n_tokens=n_tokens)
    return 6.0 * n_params * n_tokens

def tokens_for(n_params, tokens_per_param=20.0):
    _pos(n=n_params, r=tokens_per_param)
    return float(n_params * tokens_per_param)

def chinchilla_allocation(compute, tokens_per_param=20.0):
    _pos(c=compute, r=tokens_per_param)
    n = math.sqrt(compute / (6.0 * tokens_per_param))
    return round(n), tokens_per_param * round(n)

def kaplan_allocation(compute, n_ref, compute_ref):
    _pos(c=compute, nr=n_ref, cr=compute_ref)
    n = n_ref * (compute / compute_ref) ** 0.73
    return n, compute / (6.0 * n)

def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _pos(n=n_params, d=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    return E + A / n_params ** alpha + B / n_tokens ** beta

def optimal_allocation(compute, A, B, alpha, beta):
    _pos(c=compute, A=A, B=B, alpha=alpha, beta=beta)
    s = alpha + beta
    G = (alpha * A / (beta * B)) ** (1 / s)
    return G * (compute / 6) ** (beta / s), (compute / 6) ** (alpha / s) / G

def fit_power_law(x, y):
    if len(x) != len(y):
        raise ValueError(f"{len(x)} x but {len(y)} y")
    if not x:
        raise ValueError("empty")
    for v in x:
        _pos(x=v)
    for v in y:
        _pos(y=v)
    if len(set(x)) < 2:
        raise ValueError(f"one distinct x: {x[0]}")
    lx = [math.log(v) for v in x]
    ly = [math.log(v) for v in y]
    mx = sum(lx) / len(lx)
    my = sum(ly) / len(ly)
    b = sum((p - mx) * (q - my) for p, q in zip(lx, ly)) / sum((p - mx) ** 2 for p in lx)
    return math.exp(my - b * mx), b
