"""The tiny model: weights, tokenizer and the recipe that made them."""
