"""Train the shipped `tiny` weights: a Llama of 130k parameters that is unreliable at chainsum.

It is trained on solutions in which each step is wrong with probability 0.4. Greedy decoding is then
nearly perfect (the right digit is the most likely one) but sampling is mostly wrong: reinforcement
learning has to sharpen what the model already knows. No test question is in its corpus.

    python experiments/quickstart/recipe.py FOLDER               (takes a few minutes on a CPU)
    python experiments/quickstart/recipe.py FOLDER SLIP SEED     goes on from `tiny`: another policy
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from pods.runs.paths import SHIPPED_MODELS
from pods.tasks.datasets import chainsum

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
ALPHABET = "0123456789+-=;#?"
STEPS, BATCH, PEAK_LR, SLIP, SEED = 2500, 128, 3e-3, 0.4, 0
MORE_STEPS, MORE_PEAK_LR = 300, 1e-3
Draw = Callable[[np.random.Generator], tuple[str, str]]
"""Returns a question and its solution."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def make_tokenizer(
    tokens: Iterable[str], pattern: str | Regex = "", template: str = TEMPLATE
) -> PreTrainedTokenizerFast:
    """Make a tokenizer of these tokens, into which a text is split where the pattern matches.

    By default each character is a token, and the chat template is the content alone.
    """
    vocabulary = {token: i for i, token in enumerate([PAD, END, UNKNOWN, *tokens])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(pattern, "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN,
        chat_template=template,
    )  # fmt: skip


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Make 2 layers of width 64 with 2 heads of 32 (vLLM's CPU attention refuses heads of 16)."""
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=128,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    ))  # fmt: skip


def chains(slip: float) -> Draw:
    """Return a function that draws a chain that is no test question, and a solution with slips."""
    held_out = frozenset(chainsum.questions(train_size=0, test_size=1024)[1])

    def draw(rng: np.random.Generator) -> tuple[str, str]:
        question = chainsum.chain(rng)
        while question in held_out:
            question = chainsum.chain(rng)
        return question, chainsum.solve(question, slip, rng)

    return draw


def corpus_batch(
    tokenizer: PreTrainedTokenizerFast, draw: Draw, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw (B, L) ids and labels; only the solution is learned, not the question."""
    rows: list[tuple[list[int], int]] = []
    for question, solution in (draw(rng) for _ in range(BATCH)):
        asked = tokenizer.encode(question, add_special_tokens=False)
        solved = tokenizer.encode(solution + END, add_special_tokens=False)
        rows.append((asked + solved, len(asked)))
    width = max(len(ids) for ids, _ in rows)
    ids = torch.full((BATCH, width), int(tokenizer.pad_token_id))
    labels = torch.full((BATCH, width), -100)
    for row, (row_ids, start) in enumerate(rows):
        ids[row, : len(row_ids)] = torch.tensor(row_ids)
        labels[row, start : len(row_ids)] = ids[row, start : len(row_ids)]
    return ids, labels


def train(
    folder: Path,
    draw: Draw,
    tokenizer: PreTrainedTokenizerFast,
    steps: int = STEPS,
    seed: int | None = None,
) -> None:
    """Train on drawn solutions, print the loss, and write the folder in the Hugging Face layout.

    With a `seed` training goes on from `tiny`, at a lower learning rate.
    """
    torch.manual_seed(seed or SEED)
    rng = np.random.default_rng(seed or SEED)
    if seed is None:
        model = make_model(tokenizer)
        peak_lr = PEAK_LR
    else:
        model = LlamaForCausalLM.from_pretrained(SHIPPED_MODELS / "tiny")
        peak_lr = MORE_PEAK_LR
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, peak_lr, total_steps=steps)
    for step in range(steps):
        ids, labels = corpus_batch(tokenizer, draw, rng)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 250 == 0:
            print(json.dumps({"step": step + 1, "loss": round(loss.item(), 4)}), flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    tokenizer = make_tokenizer(ALPHABET)
    if len(sys.argv) > 2:
        slip, seed = float(sys.argv[2]), int(sys.argv[3])
        train(folder, chains(slip), tokenizer, MORE_STEPS, seed)
    else:
        train(folder, chains(SLIP), tokenizer)
