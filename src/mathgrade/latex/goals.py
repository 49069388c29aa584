r"""Proof goals: what has to be shown for an answer to equal the gold.

Rational values are compared here. Structure decides by itself: a tuple is compared element by
element and in order, a list, set or union in any order, an interval by its ends and brackets. Pairs
of expressions are left; they are printed for the worker as LaTeX without ambiguity: a letter for
every variable, and a sign for every product.

A goal is true, false, or a list that JSON can hold:
["same", a, b], ["ratio", a, b, positive], ["all", goals], ["match", rows of goals].
"""

from collections.abc import Sequence

from mathgrade.latex.printer import Printer
from mathgrade.latex.relations import (
    as_elements,
    ascending,
    assignment,
    chain_of_equals,
    common_form,
)
from mathgrade.latex.tokens import Rejected
from mathgrade.latex.tree import (
    NOT_ARITHMETIC,
    STRUCTURES,
    Tree,
    nodes,
    normal_form,
    variables,
)
from mathgrade.latex.units import agree, is_plausible, unit
from mathgrade.latex.values import check_size, rational_value

Goal = bool | list[object]
MAX_ELEMENTS = 32
MAX_MATCHED = 8  # elements that the worker has to try against each other


def proof_goal(answer: Tree, gold: Tree) -> Goal:
    r"""Compare two answers as far as possible, and return the goal that is left.

    >>> from mathgrade.latex.parser import parse
    >>> from mathgrade.latex.tokens import tokenize
    >>> read = lambda text: parse(tokenize(text))
    >>> proof_goal(read("0.5"), read(r"\frac12")), proof_goal(read("[0,1]"), read("(0,1)"))
    (True, False)
    >>> proof_goal(read(r"\frac{1}{\sqrt2}"), read(r"\frac{\sqrt2}{2}"))
    ['same', '\\frac{1}{\\sqrt{2}}', '\\frac{\\sqrt{2}}{2}']

    Raises:
        Rejected: one of them is too large, or undefined.
    """
    for tree in (answer, gold):
        check_size(tree)
        if len(tree.parts) > MAX_ELEMENTS:
            raise Rejected("refused")
    sides = chain_of_equals(answer, gold)
    if sides:
        return _all([*_equal_sides(sides), proof_goal(_result(sides, gold), gold)])
    gold_sides = chain_of_equals(gold, answer)
    if gold_sides:
        return proof_goal(answer, _result(gold_sides, answer))

    answer, gold = common_form(as_elements(answer), as_elements(gold))
    if answer.kind == "list" and gold.kind == "list":
        return _any_order(answer.parts, gold.parts)
    return _element(answer, gold)


def _equal_sides(sides: Sequence[Tree]) -> list[Goal]:
    """Return the goals that sides of a chain are equal if they have the last one's variables.

    The others say what a name stands for, such as `A`, or cannot be compared, such as `\\pi r^2`.
    """
    last = sides[-1]
    known = variables(last)
    return [_element(side, last) for side in sides[:-1] if variables(side) == known]


def _result(sides: Sequence[Tree], like: Tree) -> Tree:
    """Return what a chain says: its last side, or `x = 5` of `x = 2+3 = 5` if `like` is such."""
    if like.kind == "relation" and variables(sides[0]):
        return Tree("relation", (sides[0], sides[-1]), "=")
    return sides[-1]


def _element(answer: Tree, gold: Tree) -> Goal:
    """Compare two elements of lists, or two answers that are not lists."""
    if "unit" in (answer.kind, gold.kind):
        return _with_units(answer, gold)
    if "numeral" in (answer.kind, gold.kind):
        return _numerals(answer, gold)
    if answer.kind == "relation" and gold.kind == "relation":
        return _relations(answer, gold)
    if _is_structure(answer) or _is_structure(gold):
        return _structures(answer, gold)
    return _scalars(answer, gold)


def _is_structure(tree: Tree) -> bool:
    return tree.kind in (*STRUCTURES, "row")


def _structures(answer: Tree, gold: Tree) -> Goal:
    if answer.kind != gold.kind or answer.text != gold.text:
        return False
    if len(answer.parts) != len(gold.parts) or answer.kind in ("relation", "text"):
        return False
    if answer.kind in ("set", "list", "union"):
        return _any_order(answer.parts, gold.parts)
    return _all([_element(*pair) for pair in zip(answer.parts, gold.parts, strict=True)])


def _with_units(answer: Tree, gold: Tree) -> Goal:
    """Compare values whose units agree; 50% is a half, and also 50 where percents are asked for."""
    answer_unit, gold_unit = (unit(t.text) if t.kind == "unit" else "" for t in (answer, gold))
    plain, gold_plain = (t.parts[0] if t.kind == "unit" else t for t in (answer, gold))
    extra_unit = answer_unit and not gold_unit
    if not agree(answer_unit, gold_unit) or (extra_unit and not is_plausible(answer.text)):
        return False
    percents = [answer_unit, gold_unit].count("percent")
    if percents == 1 and not _is_structure(plain):
        value, gold_value = rational_value(plain), rational_value(gold_plain)
        if value is not None and gold_value is not None:
            if gold_unit:
                return value in (gold_value, gold_value / 100)
            return value == (gold_value if abs(gold_value) >= 1 else gold_value * 100)
    return _element(plain, gold_plain)


def _numerals(answer: Tree, gold: Tree) -> Goal:
    """Compare the digits of numerals in a base; the answer may leave out the base."""
    if gold.kind != "numeral" or answer.kind not in ("numeral", "number"):
        return False
    bases = {rational_value(tree.parts[0]) for tree in (answer, gold) if tree.parts}
    return len(bases) == 1 and answer.text == gold.text


def _scalars(answer: Tree, gold: Tree) -> Goal:
    """Compare rational values, normal forms and variables; else leave the pair to the worker."""
    trees = (answer, gold)
    if answer == gold or any(node.text in NOT_ARITHMETIC for t in trees for node in nodes(t)):
        return answer == gold
    value, gold_value = rational_value(answer), rational_value(gold)
    if value is not None and gold_value is not None:
        return value == gold_value
    if normal_form(answer) == normal_form(gold):
        return True
    if variables(answer) != variables(gold):
        return False
    latex = Printer(variables(gold))
    return ["same", latex(answer), latex(gold)]


def _relations(answer: Tree, gold: Tree) -> Goal:
    """Compare relations, which may be reversed or multiplied by a constant, or equal chains."""
    (signs, parts), (gold_signs, gold_parts) = ascending(answer), ascending(gold)
    if signs != gold_signs:
        return False
    sides = _all([_element(*pair) for pair in zip(parts, gold_parts, strict=True)])
    if sides is True or len(signs) > 1 or signs[0] == r"\in":
        return sides
    gold_name, gold_value = assignment(gold)
    if gold_name is not None and not variables(gold_value) and signs[0] == "=":
        name, value = assignment(answer)
        return name == gold_name and _element(value, gold_value)
    if variables(answer) != variables(gold) or any(map(_is_structure, (*parts, *gold_parts))):
        return False
    latex = Printer(variables(gold))
    one, other = (
        Tree("sum", (left, Tree("negative", (right,)))) for left, right in (parts, gold_parts)
    )
    return ["ratio", latex(one), latex(other), signs[0] not in ("=", r"\neq")]


def _all(goals: Sequence[Goal]) -> Goal:
    """Return the goal that all of these hold."""
    if False in goals:
        return False
    left = [goal for goal in goals if goal is not True]
    return ["all", left] if left else True


def _any_order(answers: Sequence[Tree], golds: Sequence[Tree]) -> Goal:
    """Return the goal that each answer equals a gold of its own."""
    if len(answers) != len(golds):
        return False
    free, unmatched = list(range(len(golds))), list[Tree]()
    for answer in answers:
        match = next((index for index in free if _element(answer, golds[index]) is True), None)
        if match is None:
            unmatched.append(answer)
        else:
            free.remove(match)
    table = [[_element(answer, golds[index]) for index in free] for answer in unmatched]
    if any(all(goal is False for goal in row) for row in table):
        return False
    if len(table) > MAX_MATCHED:
        raise Rejected("refused")
    return ["match", table] if table else True
