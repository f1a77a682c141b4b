"""Right: the recurrence as one lower bidiagonal solve per mode; phi by tanh; kernel by repeated squaring of companion powers; Toeplitz by as_strided"""
import torch


def discretize_zoh(A, B, delta):
    z = (A * delta).double()
    half = torch.tanh(z / 2)
    # (e^z - 1)/z = 2 tanh(z/2) / (z (1 - tanh(z/2)));  tanh(u)/u is even and smooth
    u = z / 2
    tiny = u.abs() < 1e-4
    ratio = torch.where(tiny, 1 - u * u / 3, half / torch.where(tiny, torch.ones_like(u), u))
    phi = torch.where(u > 10, torch.expm1(z) / torch.where(u > 10, z, torch.ones_like(z)), ratio / (1 - half.clamp(max=1 - 1e-15)))
    return z.exp().to(A.dtype), (phi * B.double() * delta).to(A.dtype)


def ssm_recurrent(x, A_bar, B_bar, C, D):
    T, N = len(x), len(A_bar)
    if T == 0:
        return x * D
    a = A_bar.double()
    system = torch.eye(T, dtype=torch.float64, device=x.device).expand(N, T, T) - a[:, None, None] * torch.diag_embed(
        torch.ones(T - 1, dtype=torch.float64, device=x.device), offset=-1
    )
    h = torch.linalg.solve_triangular(system, (B_bar.double()[:, None] * x.double())[..., None], upper=False, unitriangular=True)[..., 0]
    return torch.mv(h.T, C.double()).add(x.double(), alpha=D).to(x.dtype)


def ssm_kernel(A_bar, B_bar, C, L):
    if L < 0:
        raise ValueError(f"{L} taps")
    powers = torch.ones(1, len(A_bar), dtype=A_bar.dtype, device=A_bar.device)
    step = A_bar
    while len(powers) < L:
        powers = torch.cat([powers, powers * step])
        step = step * step
    return powers[:L] @ (B_bar * C)


def ssm_convolutional(x, K, D):
    T = x.shape[0]
    taps = torch.zeros(2 * T, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    m = min(T, len(K))
    taps = torch.cat([taps[:T], K[:m].to(taps.dtype), taps[: T - m]]).flip(0)  # reversed: K_{T-1} .. K_0, then zeros
    toeplitz = torch.stack([taps[T - 1 - t : 2 * T - 1 - t] for t in range(T)]) if T else taps.new_zeros(0, 0)
    return (toeplitz @ x.to(taps.dtype)).to(x.dtype) + D * x
