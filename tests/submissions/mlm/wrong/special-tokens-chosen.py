"""special_mask unused."""

import numpy as np
import torch


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    seed = int(torch.randint(2**62, (1,), generator=generator))
    draw = np.random.default_rng(seed)
    original = tokens.cpu().numpy()
    chosen = (draw.random(original.shape) < mask_prob)
    role = draw.choice(3, size=original.shape, p=[0.8, 0.1, 0.1])
    shown = np.select([chosen & (role == 0), chosen & (role == 1)], [mask_id, draw.integers(vocab_size, size=original.shape)], original)
    labels = np.where(chosen, original, -100)
    return torch.from_numpy(shown.astype(np.int64)).to(tokens.device), torch.from_numpy(labels).to(tokens.device)


def mlm_loss(logits, labels):
    n_classes = logits.shape[-1]
    losses = torch.nn.functional.cross_entropy(
        logits.reshape(-1, n_classes).float() if logits.dtype in (torch.float16, torch.bfloat16) else logits.reshape(-1, n_classes),
        labels.flatten(),
        reduction="none",
    )
    weights = (labels.flatten() != -100).to(losses.dtype)
    return (torch.dot(losses, weights) / torch.maximum(weights.sum(), torch.ones_like(weights[0]))).to(logits.dtype)


def nsp_loss(cls_hidden, weight, is_next):
    two = torch.stack([torch.zeros_like(cls_hidden[:, 0]), cls_hidden @ weight], dim=1)
    return torch.nn.functional.cross_entropy(two, is_next.long())
