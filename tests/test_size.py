"""What the house may weigh. A ceiling only goes down: who needs room deletes as much elsewhere."""

import ast
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from compose import ROOT, tracked

from pods.cli.main import VERBS
from pods.config.schema import Config

LINES = {
    "src/pods/analysis": 3029,
    "src/pods/cli": 1033,
    "src/pods/config": 1155,
    "src/pods/engines": 821,
    "src/pods/integrations": 221,
    "src/pods/launch": 1637,
    "src/pods/memory": 178,
    "src/pods/method": 1109,
    "src/pods/policy": 1990,
    "src/pods/runs": 1918,
    "src/pods/system": 612,
    "src/pods/tasks": 1199,
    "src/pods/training": 1841,
    "src/pods": 16991,
    "src/pods_lab": 3500,
    "src/mathgrade": 2540,
    "tests": 18003,
    "experiments": 2640,
}
KEYS, VERBS_OF_PODS, VERBS_OF_THE_LAB = 95, 12, 5
WORDS = 22_118


def lines(path: Path) -> int:
    return len(path.read_text().splitlines())


@pytest.mark.parametrize("folder", LINES)
def test_lines_of_python(folder):
    files = [path for path in tracked(".py") if path.is_relative_to(ROOT / folder)]
    assert files and sum(map(lines, files)) <= LINES[folder]


def test_words_of_markdown():
    assert sum(len(path.read_text().split()) for path in tracked(".md")) <= WORDS


def test_keys_of_the_config():
    def count(section: type) -> int:
        types = [field.type for field in fields(section)]
        return sum(count(each) if is_dataclass(each) else 1 for each in types)

    assert count(Config) <= KEYS


def test_verbs():
    lab = [verb for verb, module in VERBS.items() if module.startswith("pods_lab")]
    assert len(lab) <= VERBS_OF_THE_LAB and len(VERBS) - len(lab) <= VERBS_OF_PODS


def test_functions_and_files_fit_on_a_page():
    sources = [path for path in tracked(".py") if path.is_relative_to(ROOT / "src")]
    functions = [
        f"{path}:{node.name}"
        for path in sources
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 40
    ]
    assert not functions
    assert not [path for path in sources if lines(path) > 250]
