"""Words beside a number: those that change it, qualify it, or only name its unit."""


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


NUMBER_WORDS = word_set("""
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety
    hundred thousand million billion trillion hundreds thousands millions billions dozen dozens
    lakh lakhs crore crores grand gross score myriad tens mil mill mio mn bil bn tsd thou half
    halves third thirds fourths fifths sixths eighths tenth tenths hundredth hundredths thousandth
    thousandths st nd rd th ths pi squared cubed doubled tripled halved factorial percentile
""")
"""Words that turn the number beside them into another number."""
HEDGES = word_set("""
    or not no nor never neither none cannot cant isnt arent aint dont doesnt hardly without except
    but instead actually wrong incorrect false invalid rejected crossed if unless maybe perhaps
    probably possibly likely might could may can about around roughly approximately approx nearly
    almost ish estimated rounded rounds most least max maximum min minimum limit bound than minus
    plus divided multiplied mod modulo sqrt root log ln sin cos tan exp square cube reciprocal
    inverse opposite negative positive infinity infinite
""")
"""Words that retract the number beside them, bound it, or compute with it."""
LEAD_HEDGES = HEDGES | word_set(
    "twice double triple thrice half quarter over under above below between up"
)
"""Words that rule out the number that follows them."""
TAIL_HEDGES = NUMBER_WORDS | HEDGES | word_set("is are was were equals off")
"""Words that rule out the number that they follow."""
ASIDE_HEDGES = (
    NUMBER_WORDS
    | HEDGES
    | word_set("""
    less more fewer twice double triple thrice half quarter wait think thought guess believe suppose
    assume unsure uncertain correction rather sorry oops inf nan hmm mistake error scratch strike
    kidding joking hopefully otherwise unclear unknown undetermined impossible unsolvable fail
""")
)
"""Words that, behind a comma, may take back the number before it."""
DANGLING = word_set("per of to from by and the than for on at with")
"""Words that no unit ends in."""
UNIT_HEDGES = TAIL_HEDGES - {"square"} | word_set("and to from by over times negative")
"""Words that are never a unit behind a value in LaTeX."""
LINKS = word_set("""
    is are was were be equals has have had makes made costs cost takes took needs need earns earned
    spends spent pays paid sold sells gets got left bought used uses saves saved ate eats
""")
"""Verbs that may introduce the number in a sentence, as in `She makes $18`."""
CURRENCY_WORDS = word_set("""
    usd eur gbp inr cad aud chf jpy cny rmb hkd sgd nzd mxn us rs rs. dollar dollars euro euros
    pounds rupees bucks
""")
GLUED_UNITS = word_set("""
    m g s h l L C F cm mm km kg mg lb lbs oz ft in yd mi mph kph ml mL hr hrs min mins sec secs am
    pm GB MB kB TB W V kW kWh Wh cal kcal usd USD eur EUR cents c p days hours
""")
"""Units that may touch the number; 18x, 18k and 18ab are other numbers."""
UNIT_LETTERS = word_set("m g s h l L C F c p W V")
SCALES = word_set("m mm MM M k K b B bn t T")
"""Abbreviations of thousand, million and billion behind an amount of money."""


def is_negation(word: str) -> bool:
    """Return whether a word ends in a contracted `not`."""
    return word.endswith(("n't", "n`t"))
