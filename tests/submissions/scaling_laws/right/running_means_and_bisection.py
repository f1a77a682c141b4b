"""Style: one pass with running means; the optimum by bisection of its slope."""

from __future__ import annotations
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple
import math, operator
class Allocation(NamedTuple):
    N: float
    D: float
@dataclass(frozen=True, slots=True)
class Positive:
    name: str
    value: float
    def __post_init__(self):
        if isinstance(self.value, complex) or not (0 < self.value): raise ValueError(f"{self.name}={self.value} <= 0")
def positive(**k): 
    for n,v in k.items(): Positive(n,v)
def training_flops(n_params, n_tokens):
    positive(**locals()); return 6*n_params*n_tokens/1
def tokens_for(n_params, tokens_per_param=20.0):
    positive(**locals()); return tokens_per_param*n_params
def chinchilla_allocation(compute, tokens_per_param=20.0):
    positive(**locals()); d=(compute*tokens_per_param/6)**.5; return tuple(Allocation(d/tokens_per_param,d))
def kaplan_allocation(compute, n_ref, compute_ref):
    positive(**locals()); d_ref=compute_ref/6/n_ref; g=compute/compute_ref; return n_ref*g**.73, d_ref*g**(1-.73)
def parametric_loss(n_params, n_tokens, E, A, B, alpha, beta):
    positive(**locals()); return reduce(operator.add,(c*float(v)**-e for c,v,e in((E,1,1),(A,n_params,alpha),(B,n_tokens,beta))))
def optimal_allocation(compute, A, B, alpha, beta):
    positive(**locals())
    lo,hi=-200.,400.
    # derivative is monotone in log N
    for _ in range(300):
        m=(lo+hi)/2
        v=math.log(alpha*A)-alpha*m - math.log(beta*B)+beta*(math.log(compute/6)-m)
        lo,hi=(m,hi) if v>0 else (lo,m)
    N=math.exp(lo); return N, compute/6/N
def fit_power_law(x, y):
    xs,ys=tuple(x),tuple(y)
    if not xs or len(xs)!=len(ys): raise ValueError(f"bad lengths {len(xs)}, {len(ys)}")
    [Positive("x",v) for v in xs]; [Positive("y",v) for v in ys]
    if len({*xs})==1: raise ValueError(f"only one x: {xs[0]}")
    # Welford
    n=0; mx=my=sxx=sxy=0.
    for p,q in zip(map(math.log,xs),map(math.log,ys)):
        n+=1; dx=p-mx; mx+=dx/n; my+=(q-my)/n; sxx+=dx*(p-mx); sxy+=dx*(q-my)
    return math.exp(my-sxy/sxx*mx), sxy/sxx
