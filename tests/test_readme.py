"""READMEs say what is there: packages, files, links, numbers; and examples in docstrings hold."""

import doctest
import importlib.util
import math
import re
from collections import defaultdict
from functools import cache
from importlib import import_module

import pandas as pd
import pytest
from compose import ROOT, tracked

GUIDES = ("README.md", "CONTRIBUTING.md", "src/pods/README.md")


def test_the_packages_in_the_readme_are_those_on_disk():
    text = (ROOT / "src/pods/README.md").read_text()
    [tree] = re.findall(r"```\n(cli/.*?)```", text, re.S)
    packages = {f"{init.parent.name}/" for init in (ROOT / "src/pods").glob("*/__init__.py")}
    modules = {path.name for path in (ROOT / "src/pods").glob("*.py")} - {"__init__.py"}
    assert {line.split()[0] for line in tree.splitlines()} == packages | modules


@pytest.mark.parametrize(("name", "most"), zip(GUIDES, (900, 900, 300), strict=True))
def test_the_first_pages_are_short_and_name_files_that_are_there(name, most):
    text = (ROOT / name).read_text()
    prose = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.S)
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert len(text.split()) <= most
    assert prose.count("; ") < 0.003 * len(prose.split())
    assert [line for line in lines if len(line) > 110] == []
    named = re.findall(r"`([\w/]+/[\w.]+\.(?:py|yaml|txt))`", text)
    roots = (ROOT, ROOT / "src/pods")
    missing = [n for n in named if not any((root / n).is_file() for root in roots)]
    assert [n for n in missing if "NAME" not in n] == []


def anchors(path):
    """The anchors that a forge makes of a file's headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in headings)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in plain}


@pytest.mark.parametrize("readme", tracked(".md"), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(readme):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", readme.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = readme if not name else readme.parent / name
        if target.is_dir():
            target = target / "README.md" if anchor else target
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


spec = importlib.util.spec_from_file_location("tables", ROOT / "experiments/tables.py")
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)

DECIMAL = re.compile(r"(?<![\w.])(?<![A-Za-z]-)\d+\.\d+(?![\w.]*\.\d|\d)")
SETTINGS = (
    *(r"```.*?```", r"<!--.*?-->", r"`[^`]*`", r"\]\([^)]*\)", r"arXiv:\S+"),
    r"(?:Python|Def\.|Definition) 3\.\d+",
)
"""Commands, links and comments, whose numbers were not measured."""


@pytest.mark.parametrize("readme", tables.readmes(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_decimal_of_a_readme_is_that_of_a_csv_file(readme):
    """Of a table, of a text that repeats one, or of a line of experiments/decimals.txt."""
    text, listed = readme.read_text(), listing()[str(readme.relative_to(ROOT))]
    assert tables.filled(readme) == text, "run python experiments/tables.py"
    written = [block[3] for block in tables.BLOCK.finditer(text)]
    assert all(rows.splitlines()[1].startswith("|---") for rows in written)  # under the header
    shown = {n for rows in written for n in DECIMAL.findall(rows)}
    said = decimals(text)
    assert [number for number in said if number not in shown | listed.keys()] == []
    assert [number for number in listed if number not in said] == []
    files = {n: source for n, source in listed.items() if source.endswith(".csv")}
    assert [n for n, source in files.items() if n not in values(readme.parent / source)] == []


@cache
def listing():
    """The sources of numbers by README, of lines `README: number, number (source)`."""
    found = defaultdict(dict)
    for line in (ROOT / "experiments/decimals.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, numbers, source = re.fullmatch(r"(\S+): ([\d., ]+) \((.+)\)", line).groups()
            found[name] |= dict.fromkeys(numbers.split(", "), source)
    return found


def decimals(text):
    for pattern in (tables.BLOCK.pattern, *SETTINGS):
        text = re.sub(pattern, " ", text, flags=re.S)
    return DECIMAL.findall(text)


@cache
def values(file):
    """The numbers of a file as a text may say them: as they are, in percent or in thousandths."""
    numbers = pd.read_csv(file, comment="#").select_dtypes("number").to_numpy().ravel()
    scaled = {abs(n) * scale for n in numbers if math.isfinite(n) for scale in (1, 100, 1000)}
    return {f"{number:.{digits}f}" for number in scaled for digits in (1, 2, 3, 4)}


CONTRASTS = [path for path in tracked(".csv") if path.name.startswith("contrasts.")]


@pytest.mark.parametrize("path", CONTRASTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_committed_contrasts_are_those_of_the_committed_runs(path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    contrasts = import_module("experiments.contrasts").contrasts
    folders = [path.parent]
    if ".together." in path.name:
        folders.append(path.parent / "second")
    runs = [pd.read_csv(folder / "runs.csv").assign(folder=folder.name) for folder in folders]
    committed = pd.read_csv(path)
    arm, *others = dict.fromkeys(committed.series)
    assert {*committed.arm} == {arm}
    made = contrasts(pd.concat(runs), arm, others)
    pd.testing.assert_frame_equal(made, committed, rtol=1e-5)


MODULES = [".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("src.")
           for folder in ("src", "experiments") for path in sorted((ROOT / folder).rglob("*.py"))
           if ">>>" in path.read_text()]  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    assert (found := doctest.testmod(import_module(name))).attempted and not found.failed
