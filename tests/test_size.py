"""A function fits on a screen, and a file holds one idea."""

import ast

from compose import ROOT, tracked

LINES_OF_A_FUNCTION = 50
LINES_OF_A_FILE = 300


def test_functions_and_files_fit_on_a_screen():
    sources = [path for path in tracked(".py") if path.is_relative_to(ROOT / "src")]
    assert sources

    too_long = []
    for path in sources:
        text = path.read_text()
        if len(text.splitlines()) > LINES_OF_A_FILE:
            too_long.append(str(path))

        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                if length > LINES_OF_A_FUNCTION:
                    too_long.append(f"{path}:{node.name}")

    assert not too_long
