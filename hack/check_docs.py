#!/usr/bin/env python3
"""The documents against the code: condition reasons, event reasons, metrics, alerts, what is quoted of the examples, links between documents, and from
code to them."""

import pathlib
import re
import sys

PROBLEMS = []
TYPES = {"Ready", "Reconciling", "Stalled", "Accepted", "ShardsCovered", "TablesDeclared", "Durable", "StorageAsSpecified"}
# CamelCase words in the places looked at that are no reasons: kinds.
NO_REASONS = {"ShardCluster", "ShardRange", "MySQLPair", "ConfigMap"}
ROOMS = ["core", "observe", "act", "report", "controllers"]
# Where a word is a reason: as an argument, in a constant, in a match of a `fn reason`.
CONTEXT = re.compile(
    r'reason: "(?P<a>[A-Z][A-Za-z]+)"'
    r'|Note::(?:normal|warning)\(\s*"(?P<b>[A-Z][A-Za-z]+)"'
    r'|(?:Said|Condition)::(?:yes|no)\(\s*[\w:]+,\s*"(?P<c>[A-Z][A-Za-z]+)"'
    r'|pub const [A-Z_]+: &str = "(?P<d>[A-Z][A-Za-z]+)"'
    r'|Self::\w+(?: \{ \.\. \})? => "(?P<e>[A-Z][A-Za-z]+)"'
)


def expect(true, what):
    if not true:
        PROBLEMS.append(what)


def code(path):
    """A source file without its tests and comments."""
    text = path.read_text().split("#[cfg(test)]\nmod tests {")[0]
    return re.sub(r"^\s*//.*$", "", text, flags=re.M)


def sources():
    for room in ROOMS:
        for path in sorted(pathlib.Path("src", room).rglob("*.rs")):
            if "tests" not in path.stem and "tests" not in path.parts:
                yield path


def reasons():
    found = {}
    for path in sources():
        text = code(path)
        if path.name != "reasons.rs" and "reason" not in text.lower():
            continue
        words = {w for m in CONTEXT.finditer(text) for w in m.groups() if w}
        for word in words - NO_REASONS - (TYPES - {"Accepted"}):
            found.setdefault(word, path)
    return found


def documented(path):
    """The first cell of each table row, when it is one word in back-quotes."""
    return set(re.findall(r"^\| `(\w+)` \|", path.read_text(), flags=re.M))


def stalled(page):
    """Reasons in the tables below the headings "Stalled: what to do"."""
    for section in re.split(r"^#+ ", page.read_text(), flags=re.M):
        if section.startswith("Stalled: what to do"):
            yield from re.findall(r"^\| `(\w+)` \|", section, flags=re.M)


def anchors(path):
    for line in path.read_text().splitlines():
        if m := re.match(r"#+ (.*)", line):
            yield re.sub(r"[^\w\- ]", "", m[1].strip().lower()).replace(" ", "-")


def links(path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        expect(to.exists(), f"{path}: link to {target}: no such file")
        if anchor and to.suffix == ".md" and to.exists():
            expect(anchor in anchors(to), f"{path}: link to {target}: no such heading")


def lines(text):
    """Without indentation, and with a mark at the end of each line."""
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


def quotes(path):
    """Rust in the README is a part of an example, so that it compiles."""
    examples = [lines(p.read_text()) for p in pathlib.Path("examples").rglob("*.rs")]
    for block in re.findall(r"```rust\n(.*?)```", path.read_text(), flags=re.S):
        expect(any(lines(block) in e for e in examples), f"{path}: in no example: {block.splitlines()[0]}")


def main():
    page = pathlib.Path("docs/conditions-and-events.md")
    said, known = reasons(), documented(page)
    for word, path in sorted(said.items()):
        expect(word in known, f"{page}: {word} (of {path}) is missing")
    for word in sorted(known - said.keys() - TYPES):
        expect(False, f"{page}: {word} is not in the code")

    book = pathlib.Path("docs/runbook.md")
    entries = set(re.findall(r"^### ([A-Z][A-Za-z]+)$", book.read_text(), flags=re.M))
    stalls = set(stalled(page))
    for word in sorted(stalls - entries):
        expect(False, f"{book}: {word}, a reason of Stalled, is missing")
    for word in sorted(entries - stalls):
        expect(False, f"{book}: {word} is no reason of Stalled")

    page = pathlib.Path("docs/metrics.md")
    counted = "".join(p.read_text() for p in pathlib.Path("src").glob("metrics*/**/*.rs")) + pathlib.Path("src/metrics.rs").read_text()
    names = set(re.findall(r'register(?:_with_unit)?\(\s*"(\w+)"', counted))
    for name in sorted(names):
        expect(f"shardwright_{name}" in page.read_text(), f"{page}: shardwright_{name} is missing")

    for name in re.findall(r"- alert: (\w+)", pathlib.Path("config/prometheus/rules.yaml").read_text()):
        expect(f"| `{name}` |" in page.read_text(), f"{page}: {name} is missing")

    quotes(pathlib.Path("README.md"))
    pages = [p for p in pathlib.Path().rglob("*.md") if not {"target", "node_modules"} & set(p.parts)]
    for p in pages:
        links(p)

    # Pages that are named without a link, in documents and in code.
    for path in [*pages, *pathlib.Path("src").rglob("*.rs"), *pathlib.Path("e2e/src").rglob("*.rs")]:
        for page in set(re.findall(r"docs/[a-z-]+\.(?:md|lua|tsv)", path.read_text())):
            expect(pathlib.Path(page).exists(), f"{path}: names {page}: no such file")

    for problem in PROBLEMS:
        print(f"error: {problem}", file=sys.stderr)
    print(f"{len(said)} reasons, {len(names)} metrics, {len(pages)} pages, {len(PROBLEMS)} problems")
    return 1 if PROBLEMS else 0


if __name__ == "__main__":
    sys.exit(main())
