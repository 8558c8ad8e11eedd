"""Tokenizers with the settings of the models that people train, on a small vocabulary of their own."""
import json
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
NEMO = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}"
        r"\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex=False, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def template(begin, end=None):
    ids = [(t, 0) for t in (begin, end) if t]
    return begin, end, ids


def trained(texts, pre_tokenizer, normalizer=None, special=("<|endoftext|>",), size=1500):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def with_model(tokenizer, **settings):
    """The same tokenizer with other settings of its model."""
    file = json.loads(tokenizer.to_str())
    file["model"].update(settings)
    return Tokenizer.from_str(json.dumps(file))


def sentencepiece_like(texts, size=1200, **settings):
    """LLaMA-2's vocabulary: unknown, begin, end, 256 bytes, then pieces with a mark for the blank."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, limit_alphabet=300)
    tokenizer.train_from_iterator(texts, trainer)
    file = json.loads(tokenizer.to_str())
    first = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % byte for byte in range(256)]
    vocab = {text: i for i, text in enumerate(first)}
    merges = [m if isinstance(m, list) else m.split(" ") for m in file["model"]["merges"]]
    # Runs of blanks, as LLaMA's vocabulary has them; merges of them reach over words.
    merges = [["▁", "▁"], ["▁▁", "▁▁"], ["▁▁▁▁", "▁▁▁▁"], ["▁▁", "▁"]] + merges
    for text in sorted(file["model"]["vocab"], key=file["model"]["vocab"].get):
        vocab.setdefault(text, len(vocab))
    for left, right in merges:
        for text in (left, right, left + right):
            vocab.setdefault(text, len(vocab))
    file["model"].update(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    file["model"].update(settings)
    file["pre_tokenizer"] = None
    result = Tokenizer.from_str(json.dumps(file))
    result.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                        decoders.Strip(" ", 1, 0)])
    result.add_special_tokens(["<unk>", "<s>", "</s>"])
    return result


def all_kinds(texts):
    """Pairs of a name and a tokenizer."""
    sequence = pre_tokenizers.Sequence
    kinds = {}
    kinds["gpt2"] = trained(texts, byte_level(use_regex=True))
    kinds["gpt2-prefix"] = trained(texts, byte_level(use_regex=True, add_prefix_space=True))
    llama3 = trained(texts, sequence([split(LLAMA3), byte_level()]),
                     special=["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair=None,
                                      special_tokens=[("<|begin_of_text|>", 0)])])
    kinds["llama3"] = with_model(llama3, ignore_merges=True)
    kinds["llama3-removed"] = trained(texts, sequence([split(LLAMA3, "removed", True), byte_level()]))
    kinds["qwen2"] = trained(texts, sequence([split(QWEN2), byte_level()]), normalizers.NFC(),
                             ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    kinds["bloom"] = trained(texts, sequence([split(BLOOM), byte_level()]), None, ["<unk>", "<s>", "</s>", "<pad>"])
    kinds["nemo"] = trained(texts, sequence([split(NEMO), byte_level()]), None, ["<unk>", "<s>", "</s>", "[INST]"])
    kinds["deepseek"] = trained(texts, sequence([
        split("[\r\n]"), split("\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ]+"),
        split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"), split("\\s+$"), split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True), byte_level()]), normalizers.Sequence([]),
        ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    kinds["deepseek3"] = trained(texts, sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3),
                                                  byte_level()]))
    kinds["starcoder"] = trained(texts, sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]))
    kinds["digits"] = trained(texts, sequence([pre_tokenizers.Digits(individual_digits=False), byte_level(True)]),
                              normalizers.NFKC())
    kinds["punctuation"] = trained(texts, sequence([pre_tokenizers.Punctuation("merged_with_previous"), byte_level()]),
                                   normalizers.Lowercase())
    neox = trained(texts, byte_level(use_regex=True), normalizers.NFC())
    neox.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    kinds["neox"] = neox
    prepend = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    kinds["llama2"] = sentencepiece_like(texts)
    kinds["llama2"].normalizer = prepend
    kinds["llama2"].post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=None, special_tokens=[("<s>", 1), ("</s>", 2)])
    for scheme in ("always", "first", "never"):
        for cuts in (False, True):
            tokenizer = sentencepiece_like(texts, fuse_unk=cuts)
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cuts)
            tokenizer.add_tokens([AddedToken("[INST]", normalized=False), AddedToken("\n\n", normalized=True)])
            kinds["mistral-%s-%s" % (scheme, "cut" if cuts else "whole")] = tokenizer
    kinds["no-bytes"] = sentencepiece_like(texts, byte_fallback=False, fuse_unk=False)
    kinds["no-bytes-fused"] = sentencepiece_like(texts, byte_fallback=False)
    kinds["no-bytes-fused"].normalizer = prepend
    kinds["no-unknown"] = sentencepiece_like(texts, byte_fallback=False, unk_token=None)
    return kinds


def random_normalizer(rng):
    one = (normalizers.NFC, normalizers.NFD, normalizers.NFKC, normalizers.NFKD, normalizers.Lowercase,
           lambda: normalizers.Strip(rng.random() < 0.5, rng.random() < 0.5), lambda: normalizers.Prepend("▁"),
           lambda: normalizers.Replace(" ", "▁"), lambda: normalizers.Replace(Regex(rng.choice((" +", "[0-9]+", "\\s"))), "x"))
    count = rng.randrange(0, 4)
    return None if count == 0 else normalizers.Sequence([rng.choice(one)() for _ in range(count)])


def random_pre_tokenizer(rng, schemes):
    behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    patterns = (r"\s+", r"\s+$", r"^.", "'", r"\p{L}+", r"(?=\p{Lu})", r"[^\s\p{L}]+|a*", r"\d{1,3}", r"\w+|[^\w\s]+", GPT2, LLAMA3,
                QWEN2, BLOOM, r"\p{M}+", r"[\p{Han}\p{S}]", r"(?i:'s|ab)|.", r"x*", r"$", r"(?<=a)b|(?<!a)c")
    steps = []
    for _ in range(rng.randrange(0, 4)):
        kind = rng.randrange(5)
        if kind < 2:
            steps.append(split(rng.choice(patterns), rng.choice(behaviors), rng.random() < 0.3))
        elif kind == 2:
            steps.append(pre_tokenizers.Split(rng.choice((" ", "'", "▁", "\n", "ab")), rng.choice(behaviors), rng.random() < 0.3))
        elif kind == 3:
            steps.append(pre_tokenizers.Digits(individual_digits=rng.random() < 0.5))
        else:
            steps.append(pre_tokenizers.Punctuation(rng.choice(behaviors)))
    if rng.random() < 0.3:
        steps.append(pre_tokenizers.Metaspace(prepend_scheme=rng.choice(schemes), split=rng.random() < 0.5))
    return steps


def random_added(rng, words):
    tokens = []
    for content in rng.sample(words, rng.randrange(0, 8)):
        special = rng.random() < 0.5
        tokens.append(AddedToken(content, single_word=rng.random() < 0.3, lstrip=rng.random() < 0.3, rstrip=rng.random() < 0.3,
                                 normalized=rng.random() < 0.5, special=special))
    return tokens


def random_kind(seed, bases):
    """A random mixture of every setting on one of the trained models."""
    rng = random.Random(seed)
    base = rng.choice([name for name in ("gpt2", "llama3", "llama2", "no-bytes", "no-unknown")])
    tokenizer = Tokenizer.from_str(bases[base].to_str())
    normalizer = random_normalizer(rng)
    tokenizer.normalizer = normalizer if normalizer is not None else normalizers.Sequence([])
    # What "first" is behind a normalizer depends on which characters were made of which.
    steps = random_pre_tokenizer(rng, ("always", "never") if normalizer is not None else ("always", "first", "never"))
    if base in ("gpt2", "llama3"):
        steps.append(byte_level(rng.random() < 0.5, rng.random() < 0.3))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    words = ["<a>", "<ab", "a", "ab", "the", " ", "  ", "\n", "é", "e\u0301", "'s", "[X]", "X", "x", "ﬁ", "fi", "中", "12", "▁", "▁▁",
             "<s>", "of the", " a ", "😀", "ß", "İ", "_", "\u0301"]
    # Theirs crashes on a token that its normalizer makes empty, and takes by chance one of several of the same text.
    added, taken = [], {""}
    for token in random_added(rng, words):
        text = tokenizer.normalizer.normalize_str(token.content) if token.normalized else None
        if text not in taken:
            added.append(token)
            taken.add(text if token.normalized else "")
    tokenizer.add_special_tokens([t for t in added if t.special])
    tokenizer.add_tokens([t for t in added if not t.special])
    return base, tokenizer
