"""The READMEs say what is there: packages, links, and the loop's own lines."""

import re

import pytest
from compose import ROOT

READMES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {part for part in path.relative_to(ROOT).parts if part.startswith(".")} - {".ci"}
    and "runs" not in path.relative_to(ROOT).parts[:1]
)


def test_the_tree_in_the_readme_is_the_tree_on_disk():
    text = (ROOT / "README.md").read_text()
    [tree] = re.findall(r"```\n(src/run\.py.*?)```", text, re.S)
    named = {line.split()[0] for line in tree.splitlines() if line.startswith("  ")}
    packages = {f"{init.parent.name}/" for init in (ROOT / "src/pods").glob("*/__init__.py")}
    assert named == packages
    top = {line.split()[0] for line in tree.splitlines() if not line.startswith(" ")}
    assert top == {"src/run.py", "src/pods/", "src/mathgrade/"}
    assert {path.name for path in (ROOT / "src/pods").glob("*.py")} == {
        "__init__.py", "types.py", "seeding.py",
    }  # fmt: skip


def test_the_readme_is_short_and_its_reading_order_as_long_as_it_says():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    [order, said] = re.search(
        r"read, in this order, (.*?) \(about ([\d,]+) lines\)", text, re.S
    ).groups()
    files = re.findall(r"`([\w/]+\.py)`", order)
    lines = sum(len((ROOT / "src/pods" / name).read_text().splitlines()) for name in files)
    assert len(files) == 12 and abs(lines - int(said.replace(",", ""))) <= 100


def test_the_method_in_the_readme_is_code_that_runs():
    """Statement by statement, and `test_minimal.py` runs the page that has them."""
    text = (ROOT / "README.md").read_text()
    [code] = re.findall(r"```python\n(request.*?)```", text, re.S)
    page = {
        line.strip() for line in (ROOT / "experiments/minimal/train.py").read_text().split("\n")
    }
    assert [line for line in code.splitlines() if line.strip() not in page] == []


def anchors(path):
    """The anchors that a forge makes of a file's headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", one) for one in headings)
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in plain}


@pytest.mark.parametrize("readme", READMES, ids=lambda path: str(path.relative_to(ROOT)))
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
