"""The front of each row."""

import torch
from torch import Tensor


def mask_tokens(
    tokens: Tensor, special_mask: Tensor, vocab_size: int, mask_id: int, generator: torch.Generator, mask_prob: float = 0.15
) -> tuple[Tensor, Tensor]:
    u = torch.empty(tokens.shape, dtype=torch.float64).uniform_(generator=generator).to(tokens.device)
    u = torch.linspace(0, 1, tokens.shape[-1] + 1, dtype=torch.float64)[:-1].to(tokens.device).expand(tokens.shape)
    u = u.masked_fill(special_mask, 2.0)
    ids = torch.empty(tokens.shape, dtype=torch.int64).random_(vocab_size, generator=generator).to(tokens.device)
    v = torch.rand(tokens.shape, generator=generator).to(tokens.device) * mask_prob
    v = torch.where(u < mask_prob, v, 2.0)
    shown = torch.where(v < 0.8 * mask_prob, torch.full_like(tokens, mask_id), torch.where(v < 0.9 * mask_prob, ids, tokens))
    return shown, tokens.masked_fill(u >= mask_prob, -100)


def mlm_loss(logits: Tensor, labels: Tensor) -> Tensor:
    chosen = labels.ge(0)
    log_probs = torch.log_softmax(logits, dim=-1)
    picked = log_probs.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return -(picked * chosen).sum() / chosen.sum().clamp(min=1)


def nsp_loss(cls_hidden: Tensor, weight: Tensor, is_next: Tensor) -> Tensor:
    z = torch.einsum("bd,d->b", cls_hidden, weight)
    return -torch.where(is_next.bool(), torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)).mean()
