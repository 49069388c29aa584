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

try:
    from pods.cli import main as cli
except ModuleNotFoundError as error:
    if error.name != "pods":
        raise
    sys.exit("error: the pages show the help of the installed package: pip install -e '.[site]'")

ROOT = Path(__file__).parent.parent
SHOWN = {".md", ".png", ".csv", ".py", ".yaml", ".ipynb", ".cff"}
FINDINGS = "experiments/README.md"
CONFIGURATION = "conf/README.md"
KEYS = "## Keys\n"
"""The section of the configuration's README that is a page of its own."""
HYDRA = (
    "Options of Hydra: `-m` sweeps over several values of a key or group, `--cfg job --resolve` "
    "shows the config instead of running it, and `--config-dir DIR` adds options of yours, such as "
    "`DIR/arm/mine.yaml`."
)


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
    [section] = [entry for entry in config.nav if "Method and findings" in entry]
    section["Method and findings"] = [FINDINGS] + [{title(page): page} for page in sorted(pages)]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add what is tracked, and the pages that are made of the code."""
    for name in tracked():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    made = {"keys.md": keys(), "verbs.md": verbs(), "columns.md": columns()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Leave the keys to their page, and point a link to a folder at its README, as a forge does.

    A folder without a README has no page.
    """
    if page.file.src_uri == CONFIGURATION:
        before, heading, _ = markdown.partition(KEYS)
        markdown = f"{before}{heading}\n[All keys](../keys.md), with what is allowed."
    folder = ROOT / Path(page.file.src_uri).parent

    def readme(link: re.Match[str]) -> str:
        text, name, anchor = link.groups()
        if not name or not (folder / name).is_dir():
            return link[0]
        page = folder / name / "README.md"
        return f"[{text}]({name.rstrip('/')}/README.md{anchor})" if page.is_file() else text

    return re.sub(r"\[([^\]]*)\]\(([^):#\s]*)((?:#[^)\s]*)?)\)", readme, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Let each figure lead to its file, where a phone can enlarge it."""
    return re.sub(r'<img [^>]*src="([^"]+)"[^>]*>', r'<a href="\1">\g<0></a>', html)


def keys() -> str:
    """Show the section on keys as a page."""
    _, _, section = (ROOT / CONFIGURATION).read_text().partition(KEYS)
    return f"# Keys\n{section}"


def verbs() -> str:
    """Show the help of each verb; the config that `pods run` prints, too, is the page of keys."""
    training = shown_help("run").partition("== Config ==")[0].strip()
    parts = ["# Verbs", f"## pods run\n\n{HYDRA}\n\n```text\n{training}\n```"]
    for verb in cli.verbs():
        parts.append(f"## pods {verb}\n\n```text\n{shown_help(verb)}```")
    return "\n\n".join(parts)


def shown_help(verb: str) -> str:
    """Return what a verb prints with --help."""
    command = [sys.executable, "-m", "pods.cli.main", verb, "--help"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def columns() -> str:
    """Show the columns of metrics.jsonl."""
    with (ROOT / "src/pods/runs/columns.csv").open() as file:
        header, *rows = csv.reader(file)
    lines = [header, ["---"] * len(header), *rows]
    return "# Logged columns\n\n" + "\n".join(f"|{'|'.join(line)}|" for line in lines)
