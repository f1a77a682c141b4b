"""Style: exact fractions, and a slope from all pairs of points."""

from fractions import Fraction
import math, statistics
def _c(*vs):
    for v in vs:
        if v <= 0: raise ValueError("not positive: %r" % (v,))
def training_flops(n_params, n_tokens):
    _c(n_params, n_tokens); return float(6*Fraction(n_params)*Fraction(n_tokens))
def tokens_for(n_params, tokens_per_param=20.0):
    _c(n_params, tokens_per_param); return float(Fraction(n_params)*Fraction(tokens_per_param))
def chinchilla_allocation(compute, tokens_per_param=20.0):
    _c(compute, tokens_per_param)
    d2 = Fraction(compute)*Fraction(tokens_per_param)/6
    D = float(d2)**0.5
    return D/tokens_per_param, D
def kaplan_allocation(compute, n_ref, compute_ref):
    _c(compute,n_ref,compute_ref)
    k=Fraction(compute)/Fraction(compute_ref)
    N = float(n_ref)*math.exp(0.73*(math.log(k.numerator)-math.log(k.denominator)))
    return (N, float(Fraction(compute)/6/Fraction(N)))
def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    _c(n_params,n_tokens,E,A,B,alpha,beta)
    return math.fsum([E, A*math.exp(-alpha*math.log(n_params)), B*math.exp(-beta*math.log(n_tokens))])
def optimal_allocation(compute, A, B, alpha, beta):
    _c(compute,A,B,alpha,beta)
    lc=math.log(compute)-math.log(6)
    lg=(math.log(alpha)+math.log(A)-math.log(beta)-math.log(B))/(alpha+beta)
    return math.exp(lg+lc*beta/(alpha+beta)), math.exp(-lg+lc*alpha/(alpha+beta))
def fit_power_law(x, y):
    if len(x)!=len(y): raise ValueError(f"lengths {len(x)} {len(y)}")
    _c(*x); _c(*y)
    if len(set(x))<2: raise ValueError(f"need two distinct x, got {list(x)!r}")
    lx=[math.log(v) for v in x]; ly=[math.log(v) for v in y]
    n=len(x)
    num=sum((lx[i]-lx[j])*(ly[i]-ly[j]) for i in range(n) for j in range(i))
    den=sum((lx[i]-lx[j])**2 for i in range(n) for j in range(i))
    b=num/den
    return math.exp(math.fsum(q-b*p for p,q in zip(lx,ly))/n), b
