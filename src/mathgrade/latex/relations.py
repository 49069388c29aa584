"""A common form for answers that say the same: `x = 5` and 5, `1 < x < 2` and (1, 2)."""

from mathgrade.latex.symbols import AND, OR
from mathgrade.latex.tokens import Rejected
from mathgrade.latex.tree import INFINITY, Tree, split_plus_minus, variables
from mathgrade.latex.values import rational_value

MAX_LETTERS = 4  # of a name before `=`, as in `\\angle ABC` or `f(x)`
REVERSED = {">": "<", r"\geq": r"\leq"}
BRACKETS = {"<": "()", r"\leq": "[]"}
MINUS_INFINITY = Tree("negative", (Tree("constant", text=INFINITY),))
PLUS_INFINITY = Tree("constant", text=INFINITY)
REALS = Tree("tuple", (MINUS_INFINITY, PLUS_INFINITY), "()")


def as_elements(tree: Tree) -> Tree:
    """Return a set in braces as a list, and a plus-minus as two of its elements."""
    parts = tree.parts if tree.kind in ("list", "set") else (tree,)
    flat = split_plus_minus(parts)
    if len(flat) == 1:
        return REALS if flat[0].text == r"\mathbb{R}" else flat[0]
    return Tree("list", flat, tree.text)


def common_form(answer: Tree, gold: Tree) -> tuple[Tree, Tree]:
    """Rewrite relations as intervals or points, and leave out a name that only one answer gives.

    Raises:
        Rejected: one of them says `and` where the other says `or`, between relations.
    """
    mixed = len({tree.kind for tree in (answer, gold)} & {"list", "relation"}) == 2
    if mixed or gold.kind in ("tuple", "union"):
        answer_set, gold_set = _intervals(answer, gold), _intervals(gold, answer)
        if mixed and answer_set is not None and gold_set is not None:
            like = answer_set if answer.kind == "relation" else gold_set
            answer_set, gold_set = _intervals(answer, like), _intervals(gold, like)
            return answer_set or answer, gold_set or gold
        answer = answer_set or answer
    elif answer.kind in ("tuple", "union"):
        gold = _intervals(gold, answer) or gold
    opposed = {answer.text, gold.text} == {AND, OR} and answer.kind == gold.kind == "list"
    if opposed and _has_relation(answer):  # x < 1 and x > 2 is not x < 1 or x > 2
        raise Rejected("wrong")
    answer, gold = _as_point(answer, gold), _as_point(gold, answer)
    if _has_relation(answer) and not _has_relation(gold):
        return _without_name(answer), gold
    if _has_relation(gold) and not _has_relation(answer):
        return answer, _without_name(gold)
    return answer, gold


def chain_of_equals(tree: Tree, like: Tree) -> tuple[Tree, ...]:
    r"""Return the sides of `A = \pi r^2 = 9\pi`, or of `2+3 = 5`; nothing if it is no such chain.

    Two sides are one only if no side has a variable; otherwise they are an equation. Nor is it one
    if the other answer, `like`, has as many sides.
    """
    if tree.kind != "relation" or set(tree.text.split()) != {"="}:
        return ()
    is_equation = len(tree.parts) == 2 and bool(variables(tree))
    if is_equation or (like.kind == "relation" and len(like.parts) == len(tree.parts)):
        return ()
    return tree.parts


def assignment(tree: Tree) -> tuple[str | None, Tree]:
    r"""Return name and value of `x = 5`, `5 = x` or `x \in S`; else no name and the tree."""
    if tree.kind != "relation" or tree.text not in ("=", r"\in"):
        return None, tree
    left, right = tree.parts
    for side, other in ((left, right), (right, left)):
        name = _name(side)
        if name is not None and (side.kind == "product" or not variables(side) & variables(other)):
            return name, other
        if tree.text == r"\in":
            break
    return None, tree


def ascending(tree: Tree) -> tuple[tuple[str, ...], tuple[Tree, ...]]:
    """Return the signs and sides of a chain of relations, the smaller side first."""
    signs, parts = tuple(tree.text.split()), tree.parts
    if signs[0] in REVERSED:
        return tuple(REVERSED.get(sign, sign) for sign in reversed(signs)), parts[::-1]
    return signs, parts


def _name(tree: Tree) -> str | None:
    """Return the name that a side of a relation is, such as `x`, `AB` or `f(x)`; else None."""
    if tree.kind == "variable":
        return tree.text
    if tree.kind != "product":
        return None
    parts = [_name(part) for part in tree.parts]
    known = [part for part in parts if part is not None]
    name = " ".join(known)
    return name if len(known) == len(parts) and len(name.split()) <= MAX_LETTERS else None


def _intervals(tree: Tree, like: Tree) -> Tree | None:
    """Return `1 < x <= 2` as an interval, and a list of such as their union or intersection.

    `or` makes a union and `and` an intersection. Commas may mean either: an intersection if the
    other answer, `like`, is an interval.
    """
    if tree.kind == "list" and all(part.kind == "relation" for part in tree.parts):
        named = [_interval(part) for part in tree.parts]
        spans = tuple(span for _, span in named if span is not None)
        if len(spans) < len(named) or len({name for name, _ in named}) > 1:
            return None
        if tree.text == AND or (not tree.text and like.kind == "tuple"):
            return _intersection(*spans)
        return Tree("union", spans) if tree.text in ("", OR) else None
    return _interval(tree)[1] if tree.kind == "relation" else None


def _intersection(*spans: Tree) -> Tree | None:
    """Intersect two half-lines, if one of them is bounded below and the other above."""
    spans = tuple(sorted(spans, key=lambda span: span.parts[0] == MINUS_INFINITY))
    unbounded = [
        end == infinity
        for span in spans
        for end, infinity in zip(span.parts, (MINUS_INFINITY, PLUS_INFINITY), strict=True)
    ]
    if unbounded != [False, True, True, False]:
        return None
    low, high = spans[0].parts[0], spans[1].parts[1]
    low_value, high_value = rational_value(low), rational_value(high)
    if low_value is not None and high_value is not None and low_value >= high_value:
        return None
    return Tree("tuple", (low, high), spans[0].text[0] + spans[1].text[1])


def _interval(tree: Tree) -> tuple[str | None, Tree | None]:
    """Return the name that lies in an interval, and the interval."""
    signs, parts = ascending(tree)
    if not set(signs) <= set(BRACKETS):
        return None, None
    if len(parts) == 2 and _name(parts[0]) is not None:
        signs, parts = ("<", *signs), (MINUS_INFINITY, *parts)
    elif len(parts) == 2:
        signs, parts = (*signs, "<"), (*parts, PLUS_INFINITY)
    if len(parts) != 3 or _name(parts[1]) is None:
        return None, None
    brackets = BRACKETS[signs[0]][0] + BRACKETS[signs[1]][1]
    return _name(parts[1]), Tree("tuple", (parts[0], parts[2]), brackets)


def _has_relation(tree: Tree) -> bool:
    return any(part.kind == "relation" for part in (tree, *tree.parts))


def _as_point(tree: Tree, like: Tree) -> Tree:
    """Return `x = 1, y = 2` as a point if `like` is one and the names are in alphabetical order."""
    is_point = like.kind == "tuple" and like.text == "()" and len(tree.parts) == len(like.parts)
    if tree.kind != "list" or not is_point:
        return tree
    pairs = [assignment(part) for part in tree.parts]
    names = [name for name, _ in pairs if name is not None]
    if len(names) < len(pairs) or names != sorted(set(names)):
        return tree
    return Tree("tuple", tuple(value for _, value in pairs), like.text)


def _named(tree: Tree) -> tuple[str | None, Tree]:
    """Return name and value of `x = 5`, of `(x, y) = (1, 2)` and of `m + n = 23`."""
    name, value = assignment(tree)
    if name is not None or tree.kind != "relation" or tree.text != "=":
        return name, value
    left, right = tree.parts
    several = left.kind in ("tuple", "sum") and all(p.kind == "variable" for p in left.parts)
    solved = several and not variables(right) and (left.kind == "sum" or right.kind == "tuple")
    return (" ".join(part.text for part in left.parts), right) if solved else (None, tree)


def _without_name(tree: Tree) -> Tree:
    """Remove `x =`, also before the elements of a list, if there is exactly one name."""
    parts = tree.parts if tree.kind == "list" else (tree,)
    pairs = [_named(part) for part in parts]
    if len({name for name, _ in pairs if name is not None}) != 1:
        return tree
    values = as_elements(Tree("list", tuple(value for _, value in pairs)))
    return values if tree.kind == "list" else as_elements(pairs[0][1])
