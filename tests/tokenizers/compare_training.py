"""Compares `orthant data train-tokenizer` with the trainer of Hugging Face's tokenizers.

compare_training.py BINARY FOLDER [--bytes N]
"""
import argparse
import json
import os
import subprocess
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import kinds
from compare import ROOT
from texts import Texts


def theirs(texts, pre_tokenizer, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=2, special_tokens=["<|endoftext|>", "<pad>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, default=200000)
    arguments = parser.parse_args()
    texts = Texts(ROOT, 1).many(arguments.bytes)
    lines = os.path.join(arguments.folder, "train.jsonl")
    with open(lines, "w", encoding="utf-8") as out:
        for text in texts:
            out.write(json.dumps({"text": text}) + "\n")
    right = True
    sequence = pre_tokenizers.Sequence
    for name, pre_tokenizer in (("gpt2", kinds.byte_level(use_regex=True)), ("llama3", sequence([kinds.split(kinds.LLAMA3), kinds.byte_level()])),
                                ("qwen2", sequence([kinds.split(kinds.QWEN2), kinds.byte_level()]))):
        for size in (300, 3000, 100000):
            path = os.path.join(arguments.folder, "trained.json")
            subprocess.run([arguments.binary, "data", "train-tokenizer", lines, "--vocab", str(size), "--pattern", name, "--output", path,
                            "--special", "<|endoftext|>", "<pad>"], check=True, stdout=subprocess.DEVNULL)
            expected = theirs(texts, pre_tokenizer, size)
            with open(path, encoding="utf-8") as file:
                found = json.load(file)["model"]
            Tokenizer.from_file(path)
            if found["vocab"] != expected["vocab"] or found["merges"] != expected["merges"]:
                at = next((i for i, (a, b) in enumerate(zip(found["merges"], expected["merges"])) if a != b), None)
                print("%s, %d tokens: the vocabularies differ, merges from %s on" % (name, size, at))
                right = False
            else:
                print("%s, %d tokens asked, %d trained: equal" % (name, size, len(found["vocab"])))
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
