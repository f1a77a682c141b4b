"""All chosen places become [MASK]."""

import torch


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    ordinary = (~special_mask).reshape(-1).nonzero().squeeze(1).cpu()
    count = round(mask_prob * ordinary.numel())
    chosen = ordinary[torch.randperm(ordinary.numel(), generator=generator)[:count]].to(tokens.device)
    masked, randomised = count, 0
    flat = tokens.reshape(-1)
    labels = torch.full_like(flat, -100)
    labels[chosen] = flat[chosen]
    inputs = flat.clone()
    inputs[chosen[:masked]] = mask_id
    ids = torch.randint(0, vocab_size, (randomised,), generator=generator)
    inputs[chosen[masked : masked + randomised]] = ids.to(tokens.device)
    return inputs.view(tokens.shape), labels.view(tokens.shape)


def mlm_loss(logits, labels):
    chosen = labels != -100
    scores, targets = logits[chosen], labels[chosen]
    losses = torch.logsumexp(scores, -1) - scores.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return losses.sum() / max(1, targets.numel())


def nsp_loss(cls_hidden, weight, is_next):
    z = (cls_hidden * weight).sum(dim=1)
    sign = is_next.to(z.dtype) * 2 - 1
    return torch.nn.functional.softplus(-sign * z).mean()
