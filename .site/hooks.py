"""Make the site's pages of what git tracks: each README stays where it is, and stands once.

pip install -e '.[site]' && mkdocs build --strict -f .site/mkdocs.yml
"""

import csv
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pods.cli import main as cli

ROOT = Path(__file__).parent.parent
SHOWN = {".md", ".png", ".csv", ".py", ".yaml", ".ipynb", ".cff"}
FINDINGS = "experiments/README.md"


def tracked() -> list[str]:
    """List the files that pages show or link to."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True)
    return [name for name in listed.stdout.decode().splitlines() if Path(name).suffix in SHOWN]


def title(page: str) -> str:
    """Return the heading of a page."""
    return (ROOT / page).read_text().partition("\n")[0].removeprefix("# ")


def on_config(config: MkDocsConfig) -> None:
    """Add the experiments to the navigation."""
    pages = [name for name in tracked() if re.fullmatch(r"experiments/\w+/README\.md", name)]
    [section] = [each for each in config.nav if "Method and findings" in each]
    section["Method and findings"] = [FINDINGS, *({title(page): page} for page in sorted(pages))]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what is tracked, and the pages that are made of the code."""
    for name in tracked():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for name, content in (("verbs.md", verbs()), ("columns.md", columns())):
        files.append(File.generated(config, name, content=content))


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Point a link to a folder at its README, as a forge shows it; others have no page."""
    folder = ROOT / Path(page.file.src_uri).parent

    def readme(link: re.Match[str]) -> str:
        text, name, anchor = link.groups()
        if not name or not (folder / name).is_dir():
            return link[0]
        page = folder / name / "README.md"
        return f"[{text}]({name.rstrip('/')}/README.md{anchor})" if page.is_file() else text

    return re.sub(r"\[([^\]]*)\]\(([^):#\s]*)((?:#[^)\s]*)?)\)", readme, markdown)


def verbs() -> str:
    """Show the help of each verb."""
    parts = ["# Verbs"]
    for verb in cli.verbs():
        command = [sys.executable, "-m", "pods.cli.main", verb, "--help"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True)
        parts.append(f"## pods {verb}\n\n```text\n{shown.stdout}```")
    return "\n\n".join(parts)


def columns() -> str:
    """Show the columns of metrics.jsonl."""
    with (ROOT / "src/pods/runs/columns.csv").open() as file:
        header, *rows = csv.reader(file)
    lines = [header, ["---"] * len(header), *rows]
    return "# Logged columns\n\n" + "\n".join(f"|{'|'.join(line)}|" for line in lines)
