#!/usr/bin/env bash
# Checks that every file or folder of this project that a document names in `backticks` or links to exists.
# `name.h .cpp` stands for two files; a * stands for any name, and one match is enough.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t documents < <(ls README.md ARCHITECTURE.md CONTRIBUTING.md 2>/dev/null; git ls-files 'docs/*.md')
python3 - "${documents[@]}" <<'PY'
import glob, os, re, sys

FOLDERS = ("src", "tests", "tools", "scripts", "configs", "docs", "cmake", ".ci")
bad = 0


def complain(document, line, what):
    global bad
    bad = 1
    print(f"docs: {document}:{line}: {what}")


def exists(path, base):
    # A path is from the root, from src/, or from the folder of the document.
    places = (path, os.path.join("src", path), os.path.join(base, path))
    return any(glob.glob(place) for place in places)


for document in sys.argv[1:]:
    base = os.path.dirname(document)
    fenced = False
    for number, line in enumerate(open(document, encoding="utf-8"), 1):
        if line.startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            continue
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
            if not re.match(r"[a-z]+:", target) and not exists(target, base):
                complain(document, number, f"links to {target}, which does not exist")
        rooms = set(os.listdir("src")) if os.path.isdir("src") else set()
        for text in re.findall(r"`([^`]+)`", line):
            match = re.fullmatch(r"([\w.*-]+(?:/[\w.*-]+)*/?)((?: \.\w+)*)", text)
            if not match:
                continue
            path, more = match.group(1), match.group(2).split()
            first = path.split("/")[0]
            if "/" not in path or not (first in FOLDERS or first in rooms):
                continue
            paths = [path] + [os.path.splitext(path)[0] + ending for ending in more]
            for one in paths:
                if not exists(one, base):
                    complain(document, number, f"names {one}, which does not exist")
sys.exit(bad)
PY
echo "docs: every file that ${documents[*]} name exists"
