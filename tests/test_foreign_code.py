"""No code is run from data, and a process that a user's rule forks does not hold the run."""

import json
import os
import pickle
import shutil
import signal
import time
from pathlib import Path

import pytest
from compose import composed
from running import SHORT, start, wait_for

from pods.launch import job
from pods.policy.policy import load, load_tokenizer
from pods.runs.freeze import freeze
from pods.runs.lock import hold_lock, is_held
from pods.runs.paths import SHIPPED_MODELS
from pods.system.errors import FAILED
from pods.system.signals import stop_on_signals
from pods.tasks import prompts

CANARY = "open({path!r}, 'a').write('x')\n"


@pytest.fixture
def model(tmp_path):
    """A model folder whose configuration and tokenizer ask for classes of their own."""
    folder = tmp_path / "model"
    shutil.copytree(SHIPPED_MODELS / "tiny", folder, ignore=shutil.ignore_patterns("*.py"))
    (folder / "own.py").write_text(CANARY.format(path=str(tmp_path / "canary")))
    config = json.loads((folder / "config.json").read_text())
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    config |= {"model_type": "own", "architectures": ["OwnModel"], "auto_map": classes}
    (folder / "config.json").write_text(json.dumps(config))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_model_that_needs_code_of_its_own_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks on stdin"))
    config = composed(f"model.path={model}")
    refusal = f"model.path={model}: needs code of its own, which is never run"
    tokenizer = load_tokenizer(composed())
    for attempt in (lambda: load(config, tokenizer), lambda: load_tokenizer(config)):
        with pytest.raises(ValueError) as caught:
            attempt()
        assert str(caught.value) == refusal
    assert not (tmp_path / "canary").exists()
    shutil.copytree(SHIPPED_MODELS / "tiny", model, dirs_exist_ok=True)
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": print}, 2))
    with pytest.raises(ValueError, match=f"^{refusal}$"):
        load(config, tokenizer)


def damaged(name, content):
    return lambda folder: (folder / name).write_bytes(content)


DAMAGES = {
    "weights cut off": lambda folder: os.truncate(folder / "model.safetensors", 1000),
    "no weights": damaged("model.safetensors", b""),
    "no header": damaged("model.safetensors", b"\x10" + bytes(7) + b'{"a":[[[[[[[[[[[['),
    "a list": damaged("config.json", b"[1]"),
    "nested": damaged("config.json", b"[" * 100_000),
    "a text for a number": damaged("config.json", b'{"model_type":"llama","hidden_size":"two"}'),
    "tokenizer cut off": damaged("tokenizer.json", b'{"version": "1.0"'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused_in_one_line(tmp_path, damage):
    folder = shutil.copytree(SHIPPED_MODELS / "tiny", tmp_path / "model")
    DAMAGES[damage](folder)
    with pytest.raises(ValueError) as caught:
        load(composed(f"model.path={folder}"))
    message = str(caught.value)
    assert message.startswith(f"model.path={folder}: ")
    assert "\n" not in message and len(message) < len(str(folder)) + 450


LONG = "{% for i in range(99999) %}{% for j in range(99999) %}"
ENDLESS = {
    "of loops": LONG + "{% endfor %}{% endfor %}",
    "of calls": LONG + "{{ messages[0]['content'] | upper | length }}{% endfor %}{% endfor %}",
    "of lists": LONG + "{{ range(99999) | list | unique | list }}{% endfor %}{% endfor %}",
}


@pytest.mark.parametrize("template", ENDLESS)
def test_a_chat_template_that_does_not_end_is_named(template, tmp_path, monkeypatch, capsys):
    """It is the model's fault, and not the machine's, on which the same command could go on."""
    monkeypatch.setattr(prompts, "TEMPLATE_SECONDS", 0.25)
    folder = Path(shutil.copytree(SHIPPED_MODELS / "tiny", tmp_path / "model"))
    (folder / "chat_template.jinja").write_text(ENDLESS[template])
    store = freeze(composed(*SHORT, f"model.path={folder}", f"runs_dir={tmp_path}"))
    assert job.execute(store.folder) == FAILED
    [line] = capsys.readouterr().err.splitlines()
    why = "chat template fails: TimeoutError it takes longer than 0.25 s"
    assert line == f"error: {folder}: {why}"
    assert store.status()["state"] == "pending"
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    assert signal.getsignal(signal.SIGPROF) == signal.SIG_DFL


@pytest.mark.slow
@pytest.mark.parametrize("words", [("-m", "seed=0,1"), ("hardware.processes=2", "nm.groups=2")])
def test_a_file_in_the_working_folder_replaces_no_library(words, tmp_path):
    for name in ("random", "statistics", "selectors", "yaml", "numpy", "torch"):
        (tmp_path / f"{name}.py").write_text(CANARY.format(path=str(tmp_path / "canary")))
    (tmp_path / "my_rules.py").write_text("def rule(group, m, rng):\n    return range(m)\n")
    words = (*words, "sampler.rule=my_rules:rule", *SHORT, "budget.max_steps=1")
    process = start(tmp_path, *words)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert not (tmp_path / "canary").exists()


def test_a_fork_neither_holds_the_lock_nor_swallows_signals(tmp_path):
    """As a rule's `multiprocessing.Process` is forked from the process of its run."""
    path = tmp_path / ".lock"
    begun, begin = os.pipe()
    with stop_on_signals() as stop, hold_lock(path):
        child = os.fork()
        if child == 0:
            os.write(begin, b"!")  # from here on its signals are its own
            time.sleep(60)
            os._exit(0)
        assert os.read(begun, 1) == b"!"
        assert is_held(path)
    try:
        wait_for(lambda: not is_held(path), 40)
    finally:
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM and not stop.requested
