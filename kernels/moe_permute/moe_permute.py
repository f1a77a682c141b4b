"""Mixture-of-experts routing and permutation

Gale et al. 2022, MegaBlocks, arXiv:2211.15841, section 4; Jiang et al. 2024, Mixtral of Experts, arXiv:2401.04088,
section 2.1

Part 1 (4 points)  Choose experts and weight them: topk_route
Part 2 (3 points)  Sort slots by expert: topk_route
Part 3 (3 points)  Bytes, sectors, and real GPUs: topk_route

Target: part 1 in 30 minutes, from memory.

    kit show moe_permute     the statement
    kit grade moe_permute    the verdict (--part 1 for one part)
    kit hint moe_permute     a nudge
"""

import torch
import triton
import triton.language as tl


def topk_route(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Choose k experts for each token and sort the chosen slots by expert.

    A slot is one choice of one token: slot = token * k + choice, where choice 0 is the token's largest logit.

    Args:
        logits: (T, E) float32, finite.  The last dimension is contiguous; rows may lie any distance apart.
        k: experts a token, 1 <= k <= E.

    Returns:
        weights: (T, k) float32, the softmax over the token's k chosen logits, by falling logit.
        indices: (T, k) int32, the chosen experts, by falling logit; of equal logits the lower index comes first.
        order: (T * k,) int32, order[p] = the slot at place p when slots are sorted by expert, slots of one expert by
            rising slot number.
        offsets: (E + 1,) int32, expert e's slots are order[offsets[e] : offsets[e + 1]].

    Raises:
        ValueError: k is not between 1 and E.

    Cost: the logits are read once; the work on slots does not grow with E * T.
    """
    raise NotImplementedError("parts 1, 2, 3: write topk_route")
