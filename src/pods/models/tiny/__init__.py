"""The tiny model: its weights, its tokenizer, and the recipe that trained it (`recipe.py`)."""
