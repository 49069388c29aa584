"""A model that really computes in float64: transformers' norm layers go through float32."""

from functools import partial

from torch.nn.functional import rms_norm
from transformers.models.llama.modeling_llama import LlamaRMSNorm


def to_double(model):
    """Make weights and norms of a Llama float64, in place."""
    model.double()
    for part in model.modules():
        if isinstance(part, LlamaRMSNorm):
            part.forward = partial(
                rms_norm, normalized_shape=part.weight.shape, weight=part.weight,
                eps=part.variance_epsilon,
            )  # fmt: skip
    return model
