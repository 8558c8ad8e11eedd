"""Folders go both ways between Orthant and the transformers library: see scripts/transformers-test.sh.

usage: transformers_check.py BINARY CORPUS_PREFIX FOLDER
Out: a model that Orthant has initialised and trained for three steps is loaded by transformers without a missing or an
unexpected tensor, and has the same logits in both. In: a random model that transformers saves, in several files with an
index, has the same logits in both, and comes back bit for bit after convert to a checkpoint and back.
"""
import json
import os
import struct
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file

binary, corpus, root = sys.argv[1:4]
SEQUENCES, LENGTH = 4, 48
TOLERANCE = 1e-4  # of fp32 logits, which two correct programs sum in different orders

TRAINED = {
    "gpt": 'family = "gpt"\nheads = 4\nmax_positions = 64\n',
    "bloom": 'family = "bloom"\nheads = 6\n',
    "llama": 'family = "llama"\nheads = 8\nkv_heads = 2\nffn = 152\nmax_positions = 64\n',
    "llama-tied": 'family = "llama"\nheads = 8\nkv_heads = 1\nffn = 152\nmax_positions = 64\ntie_embeddings = true\n',
    "llama3": 'family = "llama"\nheads = 4\nffn = 152\nmax_positions = 64\nrope_base = 500000.0\n'
              'rope_scaling = "llama3"\nrope_factor = 8.0\nrope_original_positions = 16\n',
    "qwen2": 'family = "llama"\nheads = 4\nkv_heads = 2\nffn = 152\nmax_positions = 64\nqkv_bias = true\n',
}
LLAMA = dict(vocab_size=259, hidden_size=48, intermediate_size=120, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64)
RANDOM = {
    "gpt2": transformers.GPT2Config(vocab_size=259, n_positions=64, n_embd=48, n_layer=3, n_head=6, bos_token_id=None,
                                    eos_token_id=None),
    "bloom": transformers.BloomConfig(vocab_size=259, hidden_size=48, n_layer=3, n_head=6),
    "llama": transformers.LlamaConfig(**LLAMA),
    "llama3": transformers.LlamaConfig(**LLAMA, rope_parameters=dict(
        rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=16)),
    "qwen2": transformers.Qwen2Config(**LLAMA, tie_word_embeddings=True),
}


def run(*words):
    result = subprocess.run([binary, *words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"orthant {' '.join(words)} ended with {result.returncode}:\n{result.stdout}{result.stderr}")


def run_file(folder, model):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "run.toml")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'[model]\n{model}\n[train]\nsteps = 3\nglobal_batch = {SEQUENCES}\nseq_length = {LENGTH}\n'
                  f'[optimizer]\nlr = 1e-2\n'
                  f'[data]\ntrain = ["{corpus}"]\nvalid = ["{corpus}"]\norder = "sequential"\n'
                  f'[checkpoint]\ndir = "{folder}/ckpt"\n[log]\ndir = "{folder}/log"\n')
    return path


def first_tokens():
    """[SEQUENCES,LENGTH]: sample k is tokens [k*LENGTH, k*LENGTH + LENGTH) of the corpus."""
    with open(corpus + ".idx", "rb") as index:
        code = index.read(18)[17]
    letter = {1: "B", 8: "H", 4: "i"}[code]
    count = SEQUENCES * LENGTH
    with open(corpus + ".bin", "rb") as data:
        tokens = struct.unpack(f"<{count}{letter}", data.read(count * struct.calcsize(letter)))
    return torch.tensor(tokens, dtype=torch.long).reshape(SEQUENCES, LENGTH)


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    wrong = {key: sorted(value) for key, value in info.items() if value}
    if wrong:
        sys.exit(f"{folder}: transformers says {wrong}")
    return model.eval()


def compare(name, model, logits_file):
    with torch.no_grad():
        theirs = model(first_tokens()).logits
    ours = load_file(logits_file)["logits"].reshape(theirs.shape)
    difference = (ours - theirs).abs().max().item()
    print(f"{name}: largest difference of logits {difference:.2e}, largest logit {theirs.abs().max().item():.2f}", flush=True)
    if not difference < TOLERANCE:
        sys.exit(f"{name}: logits differ by {difference}, allowed is {TOLERANCE}")


def goes_out(name, fields):
    folder = os.path.join(root, "out-" + name)
    run_toml = run_file(folder, f"{fields}layers = 3\nhidden = 48\nvocab = 259\n")
    run("train", run_toml)
    run("eval", run_toml, "--logits", f"{folder}/logits.safetensors")
    run("convert", f"{folder}/ckpt", f"{folder}/hf")
    compare("out " + name, load(f"{folder}/hf"), f"{folder}/logits.safetensors")


def comes_in(name, config):
    folder = os.path.join(root, "in-" + name)
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(f"{folder}/hf", max_shard_size="60KB")
    if not os.path.exists(f"{folder}/hf/model.safetensors.index.json"):
        sys.exit(f"{folder}: meant to be several files with an index")
    run_toml = run_file(folder, f'weights = "{folder}/hf"\n')
    run("eval", run_toml, "--logits", f"{folder}/logits.safetensors")
    compare("in " + name, load(f"{folder}/hf"), f"{folder}/logits.safetensors")
    run("convert", f"{folder}/hf", f"{folder}/state")
    run("convert", f"{folder}/state", f"{folder}/back")
    back = load(f"{folder}/back").state_dict()
    for key, value in model.state_dict().items():
        if not torch.equal(value, back[key]):
            sys.exit(f"in {name}: {key} came back with other bits")


transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
for kind, model_fields in TRAINED.items():
    goes_out(kind, model_fields)
for kind, model_config in RANDOM.items():
    comes_in(kind, model_config)
print(json.dumps({"models": len(TRAINED) + len(RANDOM), "transformers": transformers.__version__}))
