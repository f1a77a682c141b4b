"""Style: torch float64, least squares by torch.linalg.lstsq, D of Kaplan by its own power law."""

import torch


def positive(**named):
    for key, value in named.items():
        if value <= 0:
            raise ValueError(f"{key}={value} is not positive")


def training_flops(n_params, n_tokens):
    positive(n_params=n_params, n_tokens=n_tokens)
    return 6 * n_params * n_tokens


def tokens_for(n_params, tokens_per_param=20.0):
    positive(n_params=n_params, tokens_per_param=tokens_per_param)
    return tokens_per_param * n_params


def chinchilla_allocation(compute, tokens_per_param=20.0):
    positive(compute=compute, tokens_per_param=tokens_per_param)
    d = (compute * tokens_per_param / 6) ** 0.5
    return d / tokens_per_param, d


def kaplan_allocation(compute, n_ref, compute_ref):
    positive(compute=compute, n_ref=n_ref, compute_ref=compute_ref)
    d_ref = compute_ref / (6 * n_ref)
    ratio = compute / compute_ref
    return n_ref * ratio**0.73, d_ref * ratio ** (1 - 0.73)


def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    positive(n_params=n_params, n_tokens=n_tokens, E=E, A=A, B=B, alpha=alpha, beta=beta)
    sizes = torch.tensor([n_params, n_tokens], dtype=torch.float64)
    terms = torch.tensor([A, B], dtype=torch.float64) * sizes ** -torch.tensor([alpha, beta], dtype=torch.float64)
    return (terms.sum() + E).item()


def optimal_allocation(compute, A, B, alpha, beta):
    positive(compute=compute, A=A, B=B, alpha=alpha, beta=beta)
    a = beta / (alpha + beta)
    g = (alpha * A / (beta * B)) ** (1 / (alpha + beta))
    n = g * (compute / 6) ** a
    d = (1 / g) * (compute / 6) ** (1 - a)
    return n, d


def fit_power_law(x, y):
    if len(x) == 0 or len(x) != len(y):
        raise ValueError(f"{len(x)} x for {len(y)} y")
    for value in [*x, *y]:
        positive(value=value)
    if min(x) == max(x):
        raise ValueError(f"all x are {x[0]}")
    u = torch.tensor([float(v) for v in x], dtype=torch.float64).log()
    v = torch.tensor([float(w) for w in y], dtype=torch.float64).log()
    design = torch.stack([torch.ones_like(u), u], dim=1)
    log_a, b = torch.linalg.lstsq(design, v[:, None]).solution[:, 0].tolist()
    return torch.tensor(log_a, dtype=torch.float64).exp().item(), b
