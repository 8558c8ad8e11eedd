"""Compares token ids and decoded texts of the orthant binary with the sentencepiece package.

compare_sentencepiece.py BINARY FOLDER [--bytes N] [--seed N] [--file MODEL]...
"""
import argparse
import io
import os
import pathlib
import shutil
import sys

import sentencepiece

from compare import ROOT, Ours, shortened
from texts import Texts

KINDS = {
    "llama2": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                   split_digits=True, allow_whitespace_only_pieces=True),
    "gemma": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
                  add_dummy_prefix=False, allow_whitespace_only_pieces=True, user_defined_symbols=["<start>", "  ", "   ", "\n\n"]),
    "bpe": dict(model_type="bpe"),
    "bpe-suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True),
    "unigram": dict(model_type="unigram"),
    "unigram-bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity",
                          remove_extra_whitespaces=False, control_symbols=["[INST]"]),
    "unigram-symbols": dict(model_type="unigram", normalization_rule_name="nfkc", user_defined_symbols=["<sep>", "ab"]),
}


def train(path, texts, settings):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in texts for line in text.split("\n") if 0 < len(line) < 4000), model_writer=model,
        vocab_size=1500, character_coverage=0.99, hard_vocab_limit=False, minloglevel=2, num_threads=2, **settings)
    pathlib.Path(path).write_bytes(model.getvalue())


def is_tie(theirs, one, other):
    """Unigram: two ways to cut a text that score the same. Which is taken depends on how a version rounds."""
    def score(ids):
        return sum(theirs.get_score(i) for i in ids)
    same_text = theirs.decode(one) == theirs.decode(other) and len(one) == len(other)
    return same_text and sorted(one) == sorted(other) and abs(score(one) - score(other)) < 1e-3


def compare(ours, name, path, texts, num_bytes):
    while num_bytes > 0:
        part = min(num_bytes, 2000000)
        if not compare_part(ours, name, path, texts.many(part)):
            return False
        num_bytes -= part
    return True


def compare_part(ours, name, path, texts):
    theirs = sentencepiece.SentencePieceProcessor(model_file=path)
    expected = theirs.encode(texts)
    for text, right, ids in zip(texts, expected, ours.ids_of_all(path, texts)):
        if right != ids and not is_tie(theirs, right, ids):
            text = shortened(text, lambda t: ours.ids(path, t) != theirs.encode(t))
            print("%s: %s differs on %r:\n  expected %s\n  found    %s" % (name, path, text, theirs.encode(text), ours.ids(path, text)))
            return False
    for right in expected[:10]:
        if ours.text(path, right) != theirs.decode(right):
            print("%s: %s decodes %s otherwise: expected %r, found %r" % (name, path, right, theirs.decode(right), ours.text(path, right)))
            return False
    print("%s: %d texts, %.1f MB: equal" % (name, len(texts), sum(len(t.encode()) for t in texts) / 1e6), flush=True)
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, default=200000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="append", default=[])
    arguments = parser.parse_args()
    ours = Ours(arguments.binary, arguments.folder)
    texts = Texts(ROOT, arguments.seed)
    corpus = [texts.paragraph() + texts.some_code() for _ in range(250)]  # few enough characters for a small vocabulary
    right = True
    for name, settings in KINDS.items():
        path = os.path.join(arguments.folder, name + ".model")
        train(path, corpus, settings)
        right = compare(ours, name, path, texts, arguments.bytes) and right
    for i, file in enumerate(arguments.file):
        path = os.path.join(arguments.folder, "file-%d.model" % i)  # its name has more behind .model
        shutil.copy(file, path)
        right = compare(ours, os.path.basename(file), path, texts, arguments.bytes) and right
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
