"""Answers that are one number: every value was worked out by hand."""

from fractions import Fraction

from rows import every

from mathgrade import number

NUMBERS = {
    18: [
        "18", " 18 ", "18.", "18.00", "+18", "$18", "\\$18", "$18.00", "18$", "€18", "US$18",
        "USD 18", "$18 USD", "18 dollars", "18%", "18\\%", "18 percent", "x = 18", "x=18", "= 18",
        "Total cost = $18", "Answer: 18", "**Answer:** 18", "Answer: **18**", "Answer: x = 18",
        "The answer is 18 dollars.", "The final answer is: 18", "It is equal to 18", "**18**",
        "`18`", "$18$", "$x = 18$", "\\(x = 18\\)", "\\[18\\]", "\\boxed{18}", "$\\boxed{18}$.",
        "\\boxed{\\text{18}}", "\\text{18}", "\\mathbf{18}", "18 clips", "18 more clips",
        "18 miles per hour", "18km/h", "18 cm^2", "18 m²", "18 m2", "18 \\text{ dollars}",
        "She makes $18", "It costs $18.", "In total, there are 18 apples.", "It will be 18",
        "Therefore, the answer is 18.", "Janet\u2019s total is $18.00.", "The third number is 18",
        "Sum of the two numbers: 18", "How many more: 18", "18.00.", "18 times",
        "18 apples and pears",
        "18 apples left over", "18 eggs from the farm", "18 miles to work", "$18/week", "18 / hour",
        "18 sq. ft.", "18 kilowatt-hours", "18-year-old", "18 a day", "18 (dollars)", "18 cm^{2}",
        "18 \\text{ cm}^2", "18~km", "18pm", "#### 18", "### 18", "*18*", "***18***", "Rs.18",
        "\\boldsymbol{18}", "\\therefore x = 18", "x_1 = 18", "total_cost = 18", "18¢", "CHF 18",
        "18\u5143", "18\u3002", "18^\\circ", "18^{\\circ}", "18°C", "\uff11\uff18",
        "\U0001d7cf\U0001d7d6", "1.8e1", "018",
    ],
    -18: ["-18", "\u221218", "\uff0d18", "-$18", "$-18", "- 18", "x = -18", "-\\boxed{18}",
          "\\boxed{-18}", "USD -18", "-18 degrees", "minus 18", "negative 18", "\u201118"],
    1234: ["1,234", "1,234.0", "$1,234", "1{,}234", "1,\\!234", "1\\,234", "1\u202f234",
           "1\u00a0234", "1234"],
    1234567: ["1,234,567", "1{,}234{,}567"],
    Fraction(1, 2): [".5", "0.5", "0.50", "+.5", "$.50", "5e-1"],
    Fraction(2469, 2): ["1,234.5", "1234.50"],
    None: [
        "", " ", ".", "-", "--18", "+-18", "-$-18", "18-", "17, 18, 19", "15 16 17 18", "12 or 18",
        "18 or nineteen", "twelve or 18", "1 8", "1\n8", "1{}8", "1$8", "1**8", "1 234", "1\u200b8",
        "1,8", "12,34", "1,2345", "1,234,56", "18,", "1.2.3", "..18", "18..", "18/0", "36/2",
        "\\frac{18}{1}", "6 * 3", "6 x 3", "18 = 18", "2x = 18", "9**9**9", "18!", "18?", "18 ± 1",
        "not 18", "x is not 18", "x isn't = 18", "answer = 18? no: 7", "18 is wrong", "about 18",
        "approximately = 18", "18 approximately", "more than = 18", "half of 18", "twice = 18",
        "18 minus three", "18 thousand", "18 dozen", "18 million dollars", "$18m",
        "18k", "18x", "18i", "18 pi", "18\\pi", "18th", "18 squared", "18 and a half",
        "18 to twenty", "one hundred 18", "seventeen is 18", "18²", "182\u00b2", "18½", "①⑧",
        "\u0661\u0668", "1_8", "0x12", "18e", "1e400", "nan", "inf", "zoo", "None", "eighteen",
        "(18)", "[18]", "{18",
        "\\boxed{18", "18\x00", "\u202e81", "18\u200b", "18" * 100, "9" * 65, "0." + "9" * 65,
        "sum([9,9])", "__import__('os')", "18 " + "a" * 190 + "!", "x " * 90 + "(18",
        "18 a b c d e f g", "~18", "x = ~18", "~~18~~", "0,018", "0{,}018", "The answer is.5",
        "USD.5",
        "18m dollars", "USD 18m", "18MM dollars", "18 grand", "18 gross", "18 doubled", "18% off",
        "18a", "18ab", "18 XVII", "18 probably", "18 at least", "The answer cannot be: 18",
        "isnt: 18",
        "up to: 18", "The square of it is 18", "ln x = 18", "18\x1f", "\x0b18", "18\x85", "}18{",
        "$€18", "18 (or 19)", "18 (seventeen)", "18:30", "18 of 20", "18 times three", "18-x",
        "18 apples and seven pears", "18 infinity", "18 miles per", "5 + 13 = 18", "x_18",
    ],
}  # fmt: skip


def test_a_number_is_read_in_its_surface_forms_and_nothing_else_is_a_number():
    def check(text, value):
        assert number(text) == value
        assert number(f"\n{text}\n") == value

    every(((text, value) for value, texts in NUMBERS.items() for text in texts), check)
