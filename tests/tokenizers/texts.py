"""Texts that tell tokenizers apart: many scripts, code, emoji, marks, garbage. All follow from a seed."""
import pathlib
import random

WORDS = """
the of and to in is that was he for it with as his on be at by had not are but from or have an they which one you
were all her she there would their we him been has when who will no more if out so said what up its about than into
der die und das nicht größer Straße Äpfel über für möglich façade garçon déjà où élève naïve coeur œuvre señor niño
için değil İstanbul ışık ñandú żółć łódź příliš žluťoučký kůň õun ülö şi în să đường người Việt Nam không được
это не что как всё ещё быть человек время Москва объект подъезд το και είναι ἀρχή λόγος ἦν άνθρωπος ΣΊΣΥΦΟΣ
שלום עולם בְּרֵאשִׁית אֱלֹהִים مرحبا بالعالم اللُّغَةُ کتاب می‌روم یک है और के में नमस्ते क्षत्रिय कि्या বাংলা ভাষা আমি தமிழ் மொழி
తెలుగు ಕನ್ನಡ മലയാളം ശ്രീ සිංහල ภาษาไทย ที่นี่ น้ำ ພາສາລາວ မြန်မာ ភាសាខ្មែរ ქართული ენა հայերեն լեզու አማርኛ ቋንቋ
中文 分词 模型 训练 数据 的 是 在 我们 漢字 機械学習 日本語 カタカナ ひらがな ガギグゲゴ ﾊﾝｶｸ 한국어 문장 ᄒ ᅡ ᆫ 각 ｆｕｌｌ ｗｉｄｔｈ
ﬁne ﬂow ½ ⅓ ① Ⅷ ² ₂ № ™ ℃ Å Å ǆ Ǆ ſ ẞ ß İ ı K ϐ ﷺ ㍿ ㌔ 𝔘𝔫𝔦 𝟘𝟙 ᴬᴮ
""".split()

MARKS = [chr(c) for c in range(0x300, 0x370)] + ["\u0591", "\u05bf", "\u064b", "\u0651", "\u093c", "\u094d", "\u0e31",
         "\u3099", "\u309a", "\u20dd", "\ufe0f", "\u200d", "\u1abf", "\u0898", "\U0001e130", "\u0345", "\u0334"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🇩🇪", "🇩", "1️⃣", "❤️", "🏳️‍🌈", "🫠", "🪿", "☎", "✈️", "\u200d", "\U000e0067"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\u0085", "\u2028",
          "\x0b", "\x0c", "\u1680", "\u180e", "\u202f", "\ufeff", " \n", "\n ", "    ", "\x1c", "\x1f"]
BITS = ["'s", "'S", "'ll", "'LL", "'re", "'ve", "'m", "'d", "'t", "'ſ", "’s", "'", "\"", "''", "--", "...", "…", "://", "<|", "|>",
        "<s>", "</s>", "<unk>", "<0x41>", "<|endoftext|>", "▁", "▁▁", "Ġ", "Ċ", "[INST]", "0", "12", "345", "6789",
        "3.14", "1,000", "٣٤", "१२", "²", "a", "B", "é", "e\u0301", "_", "$", "^", "+", "=", "@", "#", "%", "&", "*",
        "\\", "/", "。", "，", "！", "、", "।", "؟", "!", "?", ".", ",", ";", ":", "(", ")", "[", "]", "{", "}", "~", "`"]


def code_files(root):
    found = []
    for folder in ("src", "scripts", "tests", "docs"):
        for path in sorted(pathlib.Path(root, folder).rglob("*")):
            if path.suffix in (".cpp", ".h", ".sh", ".md", ".py", ".cu"):
                found.append(path.read_text(encoding="utf-8"))
    return found


def code_point(rng):
    """Any code point, most often one of the planes in use."""
    top = rng.choice((0x80, 0x100, 0x400, 0x3000, 0xffff, 0x1ffff, 0x32fff, 0x10ffff))
    while True:
        code = rng.randrange(0, top + 1)
        if not 0xd800 <= code < 0xe000:
            return chr(code)


class Texts:
    def __init__(self, root, seed):
        self.rng = random.Random(seed)
        self.code = code_files(root)

    def sentence(self):
        rng = self.rng
        at = rng.randrange(len(WORDS))
        words = []
        for _ in range(rng.randrange(3, 30)):
            near = min(len(WORDS) - 1, max(0, at + int(rng.gauss(0, 12))))
            words.append(WORDS[near])
        text = " ".join(words)
        return text[:1].upper() + text[1:] + rng.choice((".", "!", "?", "。", "", "…", ",", "\n"))

    def paragraph(self):
        return self.rng.choice((" ", "\n", "  ", "")).join(self.sentence() for _ in range(self.rng.randrange(1, 8)))

    def some_code(self):
        text = self.rng.choice(self.code)
        begin = self.rng.randrange(len(text))
        return text[begin:begin + self.rng.randrange(20, 2000)]

    def nasty(self):
        """A string over a small random alphabet, so that rare neighbours meet often."""
        rng = self.rng
        pools = (BITS, SPACES, EMOJI, MARKS, WORDS, list("abcXYZ012 \n.'-"), None)
        alphabet = []
        for _ in range(rng.randrange(2, 14)):
            pool = rng.choice(pools)
            alphabet.append(code_point(rng) if pool is None else rng.choice(pool))
        return "".join(rng.choice(alphabet) for _ in range(rng.randrange(0, 60)))

    def garbage(self):
        """Bytes of no text at all, as Latin-1 and as code points from everywhere."""
        rng = self.rng
        if rng.random() < 0.5:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 200))).decode("latin-1")
        return "".join(code_point(rng) for _ in range(rng.randrange(1, 120)))

    def runs(self):
        """Long repeats of one thing."""
        rng = self.rng
        unit = rng.choice((" ", "\n", "a", "ab", "\t", "=", "中", "😀", "▁", "0", "e\u0301", " a", "\r\n"))
        return unit * rng.randrange(1, 300)

    def any(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.30:
            return self.nasty()
        if kind < 0.60:
            return self.paragraph()
        if kind < 0.75:
            return self.some_code()
        if kind < 0.85:
            return self.garbage()
        if kind < 0.90:
            return self.runs()
        return "".join(rng.choice((self.nasty, self.sentence, self.garbage))() for _ in range(3))

    def many(self, num_bytes):
        texts = []
        while num_bytes > 0:
            texts.append(self.any())
            num_bytes -= len(texts[-1].encode())
        return texts
