"""Style: numpy arrays of Python ints; sequences counted by a range."""

import numpy as np
def _p(*v):
    a=np.array(v,dtype=object)
    if (a<0).any(): raise ValueError(f"negative: {a[a<0]}")
    return a
def mha_cache_bytes(n_layers,n_heads,d_head,n_tokens,dtype_bytes=2): return int(2*_p(n_layers,n_heads,d_head,n_tokens,dtype_bytes).prod())
def gqa_cache_bytes(n_layers,n_kv_heads,d_head,n_tokens,dtype_bytes=2): return int(2*_p(n_layers,n_kv_heads,d_head,n_tokens,dtype_bytes).prod())
def mla_cache_bytes(n_layers,d_latent,d_rope,n_tokens,dtype_bytes=2):
    a=_p(n_layers,d_latent,d_rope,n_tokens,dtype_bytes); return int(a[0]*(a[1]+a[2])*a[3]*a[4])
def window_cache_bytes(n_layers,n_kv_heads,d_head,window,n_tokens,dtype_bytes=2):
    a=_p(n_layers,n_kv_heads,d_head,window,n_tokens,dtype_bytes); return int(2*a[0]*a[1]*a[2]*a[3:5].min()*a[5])
def ssm_state_bytes(n_layers,d_model,d_state,dtype_bytes=2): return int(_p(n_layers,d_model,d_state,dtype_bytes).prod())
def max_batch(hbm_bytes,weight_bytes,cache_bytes_per_sequence):
    _p(hbm_bytes,weight_bytes,cache_bytes_per_sequence)
    return len(range(cache_bytes_per_sequence, hbm_bytes-weight_bytes+1, cache_bytes_per_sequence))
def decode_tokens_per_second(weight_bytes,cache_bytes,bandwidth):
    _p(weight_bytes,cache_bytes,bandwidth)
    if weight_bytes==cache_bytes==0: raise ValueError("zero bytes: 0 and 0")
    return np.float64(bandwidth)/(np.float64(weight_bytes)+np.float64(cache_bytes))
def crossover_tokens(d_model,d_state,n_kv_heads,d_head):
    _p(d_model,d_state,n_kv_heads,d_head); w=2*n_kv_heads*d_head; return (d_model*d_state+w-1)//w
