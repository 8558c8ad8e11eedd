"""Compares token ids and decoded texts of the orthant binary with Hugging Face's tokenizers.

compare.py BINARY FOLDER [--bytes N] [--random N] [--seed N] [--file TOKENIZER.json]...

Every kind of kinds.py gets N bytes of texts.py's; --random makes N mixtures of settings. Files are compared as they are.
Ends with status 1 and the smallest text that differs, shortened, when something does.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import time

from tokenizers import Tokenizer

import kinds
from texts import Texts

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Ours:
    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = folder

    def run(self, *arguments, text=b""):
        done = subprocess.run([self.binary, "data", *arguments], input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise RuntimeError("orthant data %s: %s" % (" ".join(arguments), done.stderr.decode()))
        return done.stdout

    def ids_of_all(self, file, texts):
        """One list of ids for each text, by packing them as documents."""
        lines = os.path.join(self.folder, "texts.jsonl")
        prefix = os.path.join(self.folder, "packed")
        with open(lines, "w", encoding="utf-8") as out:
            for text in texts:
                out.write(json.dumps({"text": text}) + "\n")
        self.run("pack", lines, "--tokenizer", file, "--output", prefix)
        with open(prefix + ".idx", "rb") as index:
            data = index.read()
        kind = {8: ("H", 2), 4: ("i", 4)}[data[17]]
        sequences, boundaries = struct.unpack_from("<QQ", data, 18)
        lengths = struct.unpack_from("<%di" % sequences, data, 34)
        firsts = struct.unpack_from("<%dq" % boundaries, data, 34 + 12 * sequences)
        with open(prefix + ".bin", "rb") as tokens:
            raw = tokens.read()
        stream = struct.unpack("<%d%s" % (len(raw) // kind[1], kind[0]), raw)
        ids, at = [], 0
        for document in range(boundaries - 1):
            length = sum(lengths[firsts[document]:firsts[document + 1]])
            ids.append(list(stream[at:at + length]))
            at += length
        return ids

    def ids(self, file, text):
        return [int(word) for word in self.run("tokens", "--tokenizer", file, text=text.encode()).split()]

    def text(self, file, ids):
        return self.run("tokens", "--tokenizer", file, "--decode", text=" ".join(map(str, ids)).encode()).decode("utf-8", "replace")


def differs(ours, file, theirs, text):
    return ours.ids(file, text) != theirs.encode(text, add_special_tokens=False).ids


def crashes(theirs, text):
    try:
        theirs.encode(text, add_special_tokens=False)
        return False
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return True


def shortened(text, is_bad):
    """Cuts parts out of `text` while it stays bad."""
    size = len(text) // 2
    while size > 0:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size:]
            if shorter and is_bad(shorter):
                text = shorter
            else:
                at += size
        size //= 2
    return text


def compare(ours, name, theirs, file, texts, num_bytes):
    """Some megabytes at a time: lists of ids are large."""
    while num_bytes > 0:
        part = min(num_bytes, 2000000)
        if not compare_part(ours, name, theirs, file, texts.many(part)):
            return False
        num_bytes -= part
    return True


def compare_part(ours, name, theirs, file, texts):
    theirs.no_truncation()
    theirs.no_padding()
    begin = time.monotonic()
    try:
        expected = [e.ids for e in theirs.encode_batch_fast(texts, add_special_tokens=False)]
    except BaseException as error:  # a panic is one
        if isinstance(error, KeyboardInterrupt):
            raise
        texts = [text for text in texts if not crashes(theirs, text)]
        expected = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    middle = time.monotonic()
    found = ours.ids_of_all(file, texts)
    for text, right, ids in zip(texts, expected, found):
        if ids != right:
            text = shortened(text, lambda t: differs(ours, file, theirs, t))
            print("%s: %s differs on %r:\n  expected %s\n  found    %s" %
                  (name, file, text, theirs.encode(text, add_special_tokens=False).ids, ours.ids(file, text)))
            print("  pieces %s" % theirs.encode(text, add_special_tokens=False).tokens)
            return False
    num_bytes = sum(len(text.encode()) for text in texts)
    print("%s: %d texts, %.1f MB, %d tokens: equal (%.1f s theirs, %.1f s ours)" %
          (name, len(texts), num_bytes / 1e6, sum(map(len, found)), middle - begin, time.monotonic() - middle), flush=True)
    return compare_decoding(ours, name, theirs, file, texts, expected)


def compare_decoding(ours, name, theirs, file, texts, ids):
    """All texts as one list of ids, and some alone: bytes that are no text are the reader's own affair."""
    some = [i for i in range(len(texts)) if ids[i] and "\ufffd" not in theirs.decode(ids[i], skip_special_tokens=False)]
    joined = [number for i in some for number in ids[i]]
    for chosen in [joined] + [ids[i] for i in some[:3]]:
        right = theirs.decode(chosen, skip_special_tokens=False)
        text = ours.text(file, chosen)
        if text != right and "\ufffd" not in right:
            at = next((i for i, (a, b) in enumerate(zip(text, right)) if a != b), min(len(text), len(right)))
            print("%s: %s decodes otherwise at %d: expected %r, found %r" %
                  (name, file, at, right[max(0, at - 10):at + 20], text[max(0, at - 10):at + 20]))
            return False
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, default=200000)
    parser.add_argument("--random", type=int, default=30)
    parser.add_argument("--random-bytes", type=int, default=30000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="append", default=[])
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    ours = Ours(arguments.binary, arguments.folder)
    texts = Texts(ROOT, arguments.seed)
    right = True
    bases = kinds.all_kinds(texts.many(400000))
    for name, tokenizer in bases.items():
        file = os.path.join(arguments.folder, name + ".json")
        tokenizer.save(file)
        right = compare(ours, name, Tokenizer.from_file(file), file, texts, arguments.bytes) and right
    for i in range(arguments.random):
        base, tokenizer = kinds.random_kind(arguments.seed * 1000003 + i, bases)
        file = os.path.join(arguments.folder, "random-%d.json" % i)
        tokenizer.save(file)
        # As a file: the order in which tokens were added is not what it was.
        right = compare(ours, "random %d on %s" % (i, base), Tokenizer.from_file(file), file, texts, arguments.random_bytes) and right
    for file in arguments.file:
        right = compare(ours, file, Tokenizer.from_file(file), file, texts, arguments.bytes) and right
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
