"""Labels in float32 promote the loss."""

import torch
import torch.nn.functional as F


def mask_tokens(tokens, special_mask, vocab_size, mask_id, generator, mask_prob=0.15):
    inputs, labels = tokens.clone(), tokens.clone()
    probabilities = torch.full(tokens.shape, mask_prob)
    probabilities.masked_fill_(special_mask.cpu(), 0.0)
    chosen = torch.bernoulli(probabilities, generator=generator).bool().to(tokens.device)
    labels[~chosen] = -100
    replaced = torch.bernoulli(torch.full(tokens.shape, 0.8), generator=generator).bool().to(tokens.device) & chosen
    inputs[replaced] = mask_id
    half = torch.bernoulli(torch.full(tokens.shape, 0.5), generator=generator).bool().to(tokens.device)
    randomised = half & chosen & ~replaced
    words = torch.randint(vocab_size, tokens.shape, generator=generator, dtype=torch.long).to(tokens.device)
    inputs[randomised] = words[randomised]
    return inputs, labels


def mlm_loss(logits, labels):
    flat_logits, flat_labels = logits.reshape(-1, logits.size(-1)), labels.reshape(-1)
    if (flat_labels == -100).all():
        return flat_logits.sum() * 0.0
    return F.cross_entropy(flat_logits, flat_labels)


def nsp_loss(cls_hidden, weight, is_next):
    return F.binary_cross_entropy_with_logits(cls_hidden.matmul(weight).float(), is_next.float())
