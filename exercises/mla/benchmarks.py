"""What multi-head latent attention should cost.  The names injected here are listed in CONTRIBUTING.md."""


@cost("largest tensor of an absorbed decode step")
def largest_decode_tensor(submission, reference, rng):
    batch, past, d_model, n_heads, d_head, d_latent, d_rope = 2, 96, 64, 8, 16, 32, 8
    sizes = (d_model, n_heads, d_head, d_latent, d_rope)
    mine, ref = pair(submission.MultiHeadLatentAttention, reference.MultiHeadLatentAttention, *sizes)
    x = rng.normal(batch, past + 1, d_model)
    with torch.no_grad():
        _, cache = ref(x[:, :past], use_cache=True)
    spent, _ = both(mine.decode, ref.decode, x[:, past:], cache)
    return spent.largest_numel / (batch * past * n_heads * min(d_head, d_latent))


@speed("training forward")
def training_forward(module):
    layer = module.MultiHeadLatentAttention(192, 8, 24, 48, 16)
    return layer, lambda rng: arguments(rng.normal(2, 160, 192))


@speed("absorbed decode step")
def absorbed_decode(module):
    layer = module.MultiHeadLatentAttention(256, 8, 32, 64, 16)
    return layer.decode, lambda rng: arguments(rng.normal(2, 1, 256), (rng.normal(2, 400, 64), rng.normal(2, 400, 16)))
