"""Runs clang-tidy on files in parallel, within a time, and remembers which passed. See tools/tidy.sh."""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time

tidy, seconds, is_deep, names = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "deep", sys.argv[4:]
root = os.getcwd()
passed_folder = os.path.join(root, "build", "tidy")
os.makedirs(passed_folder, exist_ok=True)
with open("build/compile_commands.json", encoding="utf-8") as commands:
    database = json.load(commands)
for entry in database:  # g++'s precompiled headers and warnings mean nothing to clang
    entry["command"] = re.sub(r" -fpch-preprocess| -Winvalid-pch| -Wno-restrict| -Wno-maybe-uninitialized| -Wno-stringop-overflow| -include \S*cmake_pch\.hxx", "", entry["command"])
with open(os.path.join(passed_folder, "compile_commands.json"), "w", encoding="utf-8") as commands:
    json.dump(database, commands)
command_of = {os.path.relpath(c["file"], root): c for c in database}
start = time.monotonic()
# Requests of MPI live longer than the function that starts them, and that is all that its checker knows.
DEEP_CHECKS = "--checks=clang-analyzer-*,-clang-analyzer-optin.mpi.MPI-Checker"


def extra_checks(name):
    """Walking every path through a test takes most of the time and has found nothing."""
    return [DEEP_CHECKS] if is_deep and name.startswith("src/") else []


def fingerprint(name):
    """Of everything of this project that decides the result."""
    entry = command_of[name]
    words = shlex.split(entry["command"])
    flags = [w for w in words if w.startswith(("-I", "-D", "-std", "-march"))]
    found = subprocess.run(["g++", *flags, "-fopenmp", "-MM", os.path.join(root, name)],
                           cwd=entry["directory"], capture_output=True, text=True)
    if found.returncode != 0:
        return None
    files = sorted({os.path.normpath(os.path.join(entry["directory"], f))
                    for f in re.split(r"[\s\\]+", found.stdout.split(":", 1)[1]) if f})
    digest = hashlib.sha256(" ".join([*flags, *extra_checks(name)]).encode())
    folders = [".", *(os.path.join(*name.split("/")[:i]) for i in range(1, name.count("/") + 1))]
    settings = [os.path.join(root, folder, ".clang-tidy") for folder in folders]
    for file in [*(s for s in settings if os.path.exists(s)), *files]:
        with open(file, "rb") as content:
            digest.update(content.read())
    return digest.hexdigest()


def check(name):
    if seconds and time.monotonic() - start > seconds:
        return name, "late", ""
    mark = fingerprint(name)
    if mark and os.path.exists(os.path.join(passed_folder, mark)):
        return name, "known", ""
    result = subprocess.run([tidy, "-p", passed_folder, "--quiet", *extra_checks(name), name], capture_output=True, text=True)
    if result.returncode != 0:
        return name, "bad", result.stdout + result.stderr
    if mark:
        open(os.path.join(passed_folder, mark), "w", encoding="utf-8").close()
    return name, "good", ""


work = [n for n in names if n in command_of]
count = {"good": 0, "known": 0, "late": 0, "bad": 0}
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for name, outcome, text in pool.map(check, work):
        count[outcome] += 1
        if outcome == "bad":
            lines = [l for l in text.splitlines() if not re.match(r"\d+ warnings? ", l)]
            print("\n".join(lines), flush=True)
print(f"tidy: {count['good']} files checked, {count['known']} unchanged since they passed, {count['bad']} with faults", end="")
print(f", {count['late']} not reached in time (scripts/tidy-all.sh checks all)" if count["late"] else "")
sys.exit(1 if count["bad"] else 0)
