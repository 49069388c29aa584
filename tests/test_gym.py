"""Tasks of reasoning-gym: their questions, golds and scores are the library's own."""

import importlib
import json
import string

import needs
import numpy as np
import pytest
import torch
from compose import ROOT, composed
from rewarding import rewarded
from running import ONE_STEP, run_here
from transformers import LlamaConfig, LlamaForCausalLM

from pods.cli.main import main
from pods.launch.sweep import check_data
from pods.policy.policy import load_tokenizer
from pods.runs.identity import identity
from pods.tasks.answers import closed_answer
from pods.tasks.load import load
from pods.types import Grade, Parts

TEXT = ("model=smollm2_135m", "task.few_shot=0", "task=gym", "task.answer_format=whole")
CHAINS = (*TEXT, "task.gym=chain_sum")
COINS = "task.gym_parameters={max_trials: 40}"  # of 15 there are too few questions
SHORT = {"base_conversion", "bf", "calendar_arithmetic", "chain_sum", "coin_flip", "count_bits",
         "count_primes", "gcd", "lcm", "letter_counting", "number_sequence", "products",
         "simple_equations", "syllogism", "time_intervals"}  # fmt: skip


@pytest.fixture(autouse=True)
def library():
    needs.module("reasoning_gym")


def task(*overrides):
    return composed(*overrides).task


def entries(name, seed, size, **parameters):
    from reasoning_gym import create_dataset

    return list(create_dataset(name, seed=seed, size=size, **parameters))


def test_questions_and_golds_are_the_library_s_and_parameters_reach_it():
    loaded = load(task(*CHAINS, "task.gym_parameters={max_terms: 2, allow_negation: true}"))
    theirs = {}
    for entry in entries("chain_sum", 500_000, 300, max_terms=2, allow_negation=True):
        theirs.setdefault(entry["question"], entry["answer"])
    asked = [(problem.question, problem.gold) for problem in loaded.test]
    assert asked == list(theirs.items())[:256]
    assert (len(loaded.train), len(loaded.test)) == (512, 256)


def test_no_question_comes_twice_or_in_both_sets_though_the_library_repeats_itself():
    questions = [entry["question"] for entry in entries("coin_flip", 1_000_000, 512, max_trials=40)]
    assert len(set(questions)) < 480
    words = (*TEXT, "task.gym=coin_flip", COINS)
    loaded = load(task(*words))
    train, test = ({problem.question for problem in part} for part in (loaded.train, loaded.test))
    assert (len(train), len(test), train & test) == (512, 256, set())
    assert load(task(*words, "task.train_size=64")).test == loaded.test


def test_of_a_small_task_half_of_the_questions_are_the_test_set():
    """Of two digits with a sign between them there are fewer than 256."""
    words = (*CHAINS, "task.gym_parameters={max_terms: 2, max_digits: 1}", "task.train_size=90")
    everything = {e["question"] for e in entries("chain_sum", 9, 5000, max_terms=2, max_digits=1)}
    loaded = load(task(*words))
    asked = {problem.question for problem in (*loaded.train, *loaded.test)}
    assert len(loaded.test) == len(everything) // 2 and len(asked) == 90 + len(loaded.test)
    assert asked <= everything


def test_a_task_with_too_few_questions_is_refused_in_one_line():
    why = r"^task.train_size=512: must be at most \d\d?, .* rows in coin_flip$"
    with pytest.raises(ValueError, match=why):
        load(task(*TEXT, "task.gym=coin_flip"))
    with pytest.raises(ValueError, match=r"^task.gym=graph_color: .* no usable row .*not null"):
        load(task(*TEXT, "task.gym=graph_color"))


@pytest.mark.parametrize("name", ["chain_sum", "dice", "spell_backward", "word_sorting"])
def test_the_reward_is_the_library_s_score_and_accuracy_is_exact(name):
    """The default scorer pays for a gold among other words; others score in their own ways."""
    from reasoning_gym import get_score_answer_fn

    loaded = load(task(*TEXT, f"task.gym={name}", "task.train_size=8"))
    score = get_score_answer_fn(name)
    theirs = {entry["question"]: entry for entry in entries(name, 1_000_000, 80)}
    for problem in loaded.train:
        entry = theirs[problem.question]
        for text in (problem.gold, f"It is {problem.gold}", "foo", problem.gold[:-1] or "x"):
            grade = loaded.train_grader.grade(text, problem.gold)
            graded = rewarded(loaded.own_reward, grade, problem, text)
            assert graded.reward == score(text, entry)
            number = name == "chain_sum" and text.startswith("It")  # it is read as a number
            assert graded.correct == (text == problem.gold or number)


def test_only_the_closed_answer_is_scored_and_none_scores_nothing():
    loaded = load(task("model=smollm2_135m", "task=gym", "task.gym=chain_sum"))
    problem = loaded.train[0]
    assert len(problem.messages) == 6  # a system message, two solved examples, and the question
    grade = Grade("none", False, Parts(0.0))
    for text, reward in (
        (f"<think>{problem.gold}</think>", 0),
        (f"<think>x</think><answer> {problem.gold}\n</answer>", 1),
        (problem.gold, 0),
    ):
        assert rewarded(loaded.own_reward, grade, problem, text).reward == reward


@pytest.mark.parametrize("name", sorted(SHORT))
def test_the_short_tasks_are_short_and_their_scorers_earn_no_warning(name, capsys):
    words = (*TEXT, f"task.gym={name}", *[COINS] * (name == "coin_flip"))
    check_data([task(*words)])
    assert capsys.readouterr().out == ""
    problems = load(task(*words)).train
    assert max(len(problem.question) for problem in problems) <= 300
    assert max(len(problem.gold) for problem in problems) <= 20


def test_the_documentation_lists_them():
    text = (ROOT / "src/pods/tasks/README.md").read_text()
    [listed] = [line for line in text.splitlines() if line.startswith("`base_conversion`")]
    assert set(listed.replace("`", "").rstrip(".").split(", ")) == SHORT


@pytest.mark.parametrize(
    "name, pay",
    # of the answers foo and "I do not know": half of what game_of_life_halting and
    # fraction_simplification pay for each, which is 1 and 0.01
    [("game_of_life_halting", 1.0), ("fraction_simplification", 0.01)],
)
def test_a_scorer_that_pays_for_nonsense_is_one_line_with_the_mean_pay(name, pay, capsys):
    words = (*TEXT, f"task.gym={name}", "task.train_size=32")
    check_data([task(*words)])
    [line] = capsys.readouterr().out.splitlines()
    said = f"warning: task.gym={name}: its scorer pays {pay:.2g} on average for 'foo' and "
    assert line.startswith(said)
    check_data([task(*words, "task.reward=[correct]")])
    assert capsys.readouterr().out == ""


def test_a_scorer_that_fails_on_nonsense_is_refused_at_start():
    words = (*TEXT, "task.gym=prime_factorization", "task.train_size=32")
    why = r"^task.gym=prime_factorization: task.reward=\[correct\] does without .* answer 'foo'"
    with pytest.raises(ValueError, match=why):
        check_data([task(*words)])
    check_data([task(*words, "task.reward=[correct]")])


@pytest.mark.parametrize(
    "words, refusal",
    [("task.gym=chain_sm", "task.gym=chain_sm: must be a task of reasoning-gym: ab, acre,"),
     ("task.gym_parameters={max_trms: 2}", "task.gym_parameters={'max_trms': 2}: must fit the"),
     ("task.gym_parameters={max_terms: 0}", "must fit the task: max_terms must be >= min_terms")],
)  # fmt: skip
def test_what_the_library_refuses_is_one_line(words, refusal, capsys):
    assert main(["doctor", *CHAINS, "model.path=null", words]) != 0
    said = capsys.readouterr()
    assert refusal in said.err + said.out and "Traceback" not in said.err


def test_parameters_are_part_of_a_run_s_identity(letters):
    words = (f"model.path={letters}", "model=hub", "model.hub=a/b", *CHAINS[1:])
    one, other = (composed(*words, f"task.gym_parameters={{max_terms: {k}}}") for k in (2, 3))
    assert identity(one) != identity(other)


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """An untrained model whose tokens are characters, with the embedded one's chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("letters")
    special = ["<pad>", "<end>", "<unknown>"]
    ids = {token: i for i, token in enumerate([*special, *string.printable])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    saved = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )
    saved.chat_template = load_tokenizer(composed()).chat_template
    saved.save_pretrained(folder)
    settings = LlamaConfig(
        vocab_size=len(ids), hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None)  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(settings).save_pretrained(folder)
    return folder


def test_a_run_trains_on_a_task_and_is_evaluated_on_it(letters, tmp_path):
    words = ("model=hub", "model.hub=some/one", f"model.path={letters}", "model.dtype=float32",
             "hardware=cpu", "task=gym", "task.gym=gcd", "task.answer_format=whole",
             *ONE_STEP)  # fmt: skip
    store = run_here(*words, f"runs_dir={tmp_path}")
    [line] = map(json.loads, store.metrics_path.read_text().splitlines())
    assert store.folder.parts[-3].endswith("-gcd")
    assert line["reward"] == pytest.approx(line["reward/graded"])
    assert len(store.evaluation_path(1).read_text().splitlines()) == 16


def test_the_start_policy_of_the_league_learns_solutions_of_other_questions(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    start = importlib.import_module("experiments.gym.start")
    asked = {problem.question: problem.gold for problem in load(task(*start.TASK)).test}
    rng = np.random.default_rng(0)
    draw = start.sums()
    drawn = [draw(rng) for _ in range(300)]
    assert not asked.keys() & {question for question, _ in drawn}

    tokenizer = start.tokenizer_of_words()
    right = 0
    for question, gold in asked.items():
        assert closed_answer(start.solve(question, 0.0, rng), "hash").strip() == gold
        right += closed_answer(start.solve(question, 0.4, rng), "hash").strip() == gold
        text = question + start.solve(question, 0.4, rng)
        ids = tokenizer.encode(text)
        assert tokenizer.unk_token_id not in ids and tokenizer.decode(ids) == text
    # two steps or three without a slip, 0.6^2 and 0.6^3 each half of the time, or slips that cancel
    assert 0.25 < right / len(asked) < 0.42
