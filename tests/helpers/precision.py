"""Models that compute everything in float64: transformers' norm layers go through float32."""

from functools import partial

from torch.nn.functional import rms_norm
from transformers.models.llama.modeling_llama import LlamaRMSNorm


def to_double(model):
    """Make weights and norms of a Llama float64, in place."""
    model.double()
    for layer in model.modules():
        if isinstance(layer, LlamaRMSNorm):
            weight, eps = layer.weight, layer.variance_epsilon
            layer.forward = partial(rms_norm, normalized_shape=weight.shape, weight=weight, eps=eps)
    return model
