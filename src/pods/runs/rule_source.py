"""The source of a rule of one's own, as far as it can change what the rule does."""

import ast
import hashlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pods.system.imports import import_function

Node = ast.stmt
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def rule_source(name: str) -> str:
    """Return the SHA-256 of a rule's function and of what it uses in its own module.

    That is the syntax tree, without comments and docstrings, of the function, of all that it names
    there, directly or not, and of statements that define nothing (such as `rule.enough = ...`). So
    an edit elsewhere in the module keeps its runs. Other modules do not count.

    Args:
        name: `module:function`.

    Raises:
        ValueError: there is no such function.
    """
    function: Any = inspect.unwrap(import_function(name))
    module = sys.modules[getattr(function, "__module__", None) or name.partition(":")[0]]
    body = ast.parse(inspect.getsource(module)).body
    named = getattr(function, "__name__", name.partition(":")[2])
    defined = {binding: node for node in body for binding in _bindings(node)}
    used = _used(named, defined) if named in defined else {id(node) for node in body}
    dumps = [_dump(node) for node in body if id(node) in used or not [*_bindings(node)]]
    return hashlib.sha256("\n".join(filter(None, dumps)).encode()).hexdigest()


def _bindings(node: Node) -> Iterator[str]:
    """Yield the names that a statement of a module defines."""
    if isinstance(node, DEFINITIONS):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if not isinstance(target, ast.Attribute | ast.Subscript):  # these change, not define
                yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _used(name: str, defined: Mapping[str, Node]) -> set[int]:
    """Return the ids of the statements that define a name and what these use in turn."""
    used, waiting = set[int](), [name]
    while waiting:
        node = defined.get(waiting.pop())
        if node is not None and id(node) not in used:
            used.add(id(node))
            waiting += [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    return used


def _dump(node: Node) -> str:
    """Return a statement's syntax tree without docstrings; nothing for a text that stands alone."""
    for each in (node, *ast.walk(node)):
        if isinstance(each, DEFINITIONS) and ast.get_docstring(each, clean=False) is not None:
            each.body = each.body[1:]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return ""
    return ast.dump(node)
