"""Tables of the symbols, commands and words that answers are written in."""

from mathgrade.number_words import word_set


def _pairs(text: str) -> dict[str, str]:
    items = text.split()
    return dict(zip(items[::2], items[1::2], strict=True))


AND, OR = r"\wedge", r"\vee"
"""Separators of list elements, like a comma."""
FUNCTIONS = word_set(r"""
    \sin \cos \tan \cot \sec \csc \arcsin \arccos \arctan \sinh \cosh \tanh \ln \log \exp
""")
GREEK = word_set(r"""
    \alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \iota \kappa \lambda \mu \nu
    \xi \rho \sigma \tau \phi \varphi \chi \psi \omega
    \Gamma \Delta \Theta \Lambda \Sigma \Phi \Psi \Omega
""")
COMMANDS = {
    symbol: f"{command} "
    for symbol, command in _pairs(r"""
        <= \leq   >= \geq   != \neq   ≤ \leq   ≥ \geq   ≠ \neq   ∈ \in   ∪ \cup   ∅ \emptyset
        × \times   · \cdot   ⋅ \cdot   ÷ \div   ± \pm   ∞ \infty
        π \pi   θ \theta   α \alpha   β \beta   γ \gamma   λ \lambda   φ \phi   ω \omega
    """).items()
} | {"√": r"\sqrt", "°": r"^{\circ}", "’": "'"}
"""Symbols outside LaTeX, and how LaTeX writes them."""
SYNONYMS = _pairs(r"""
    \dfrac \frac   \tfrac \frac   \cfrac \frac   \dbinom \binom   \tbinom \binom
    \le \leq   \leqslant \leq   \ge \geq   \geqslant \geq   \ne \neq   \lt <   \gt >
    \times \cdot   * \cdot   \ast \cdot   \lbrace \{   \rbrace \}   \lbrack [   \rbrack ]
    \lvert |   \rvert |   \vert |   \varnothing \emptyset   \% %   ; ,   \imath i
    \lor \vee   \land \wedge   \& \wedge
""")
SPACING = word_set(r"""
    \left \right \big \Big \bigg \Bigg \bigl \bigr \Bigl \Bigr \biggl \biggr \Biggl \Biggr
    \displaystyle \textstyle \limits \quad \qquad \, \; \: \! ~ $ \( \) \[ \] \thinspace \allowbreak
    \bf \rm \it \boldmath
""") | {r"\ "}
"""Tokens without a meaning of their own: sizes, spaces, fonts and the marks of a formula."""
WORDS = _pairs(r"""
        pi \pi   sqrt \sqrt   infinity \infty   infty \infty   oo \infty   inf \infty   theta \theta
        and \wedge   or \vee
    """) | {name[1:]: name for name in FUNCTIONS}
"""Words outside LaTeX that stand for a symbol."""
SHORT_UNITS = word_set("cm mm km kg ft mph lbs lb oz ml yd hr hrs")
UNIT_LETTERS = frozenset("msghlLFC")
"""Single upright letters that are units behind a value; any other letter is a variable."""
SET_LETTERS = frozenset(rf"\mathbb{{{letter}}}" for letter in "NZQRC")
