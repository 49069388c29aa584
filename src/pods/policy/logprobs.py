"""Log-probs of completion tokens, never with a [tokens, vocabulary] array for a whole batch.

Shapes: R = sequences in a micro-batch, L = padded prompt + completion, N = completion tokens.
"""

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

CHUNK_ELEMENTS = 2**26  # logits that exist at one time: 256 MB in float32


def token_logprobs(
    model: PreTrainedModel,
    ids: Tensor,
    attention: Tensor,
    completion: Tensor,
    *,
    temperature: float,
    vocabulary: int,
) -> Tensor:
    """Score completion tokens under softmax(logits / temperature), the distribution sampled from.

    Args:
        ids: (R, L) prompt and completion, padded on either side.
        attention: (R, L) true on real tokens.
        completion: (R, L) true on completion tokens.
        temperature: of the sampling, > 0.
        vocabulary: ids from here on are padding of the output layer and have probability 0.

    Returns:
        (N,) row by row, in float32 at least; the gradient flows to the model.
    """
    positions = (attention.long().cumsum(1) - 1).clamp(min=0)
    hidden = model.get_decoder()(
        input_ids=ids, attention_mask=attention.long(), position_ids=positions, use_cache=False
    ).last_hidden_state
    rows, columns = completion.nonzero(as_tuple=True)
    states, targets = hidden[rows, columns - 1], ids[rows, columns]
    head = model.get_output_embeddings()
    chunk = max(1, CHUNK_ELEMENTS // vocabulary)
    if len(targets) <= chunk:
        return _score(states, targets, head.weight, temperature, vocabulary)
    pieces = zip(states.split(chunk), targets.split(chunk), strict=True)
    return torch.cat(
        [
            checkpoint(_score, *piece, head.weight, temperature, vocabulary, use_reentrant=False)
            for piece in pieces
        ]
    )


def _score(
    states: Tensor, targets: Tensor, weight: Tensor, temperature: float, vocabulary: int
) -> Tensor:
    logits = linear(states, weight[:vocabulary])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    return logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)
