"""The tiny model: its weights and its tokenizer."""
