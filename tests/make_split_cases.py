#!/usr/bin/env python3
"""Writes data/split_cases.txt: texts, and how the regular expressions of the models' own tokenizers cut them.

Usage: python3 make_split_cases.py > data/split_cases.txt     (needs the package regex)
Format: "text HEX" lines, then for each family "family NAME" and, a line a text, the lengths of its words in bytes.
"""
import random

import regex

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def cl100k(digits, word=r"\p{L}+", signs=r"[^\s\p{L}\p{N}]+", tail=r"[\r\n]*", spaces=SPACES):
    return CONTRACTION + r"|[^\r\n\p{L}\p{N}]?" + word + r"|\p{N}" + digits + r"| ?" + signs + tail + "|" + spaces


def cased(digits, contraction, tail, upper=r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", lower=r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"):
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (lead + upper + "*" + lower + "+" + contraction + "|" + lead + upper + "+" + lower + "*" + contraction
            + r"|\p{N}" + digits + r"| ?[^\s\p{L}\p{N}]+" + tail + "|" + SPACES)


def without_han(case):
    return r"[[" + case + r"\p{Lm}\p{Lo}\p{M}]&&[^\p{Han}]]"


DEEPSEEK_V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
               r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES)
# DeepSeek LLM's letters in case and its signs; white space is no part of the sets, as the reference ids have it.
DEEPSEEK_LETTERS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943")
DEEPSEEK_SIGNS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001-\u3002"
DEEPSEEK_CJK = "[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&[^\\s]]+"
KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
EAST = ("[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
        "\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + KANA)
UNSPACED = ("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
            "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")
BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
POWERS = "|".join([CONTRACTION, r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+"]
                  + [r"\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)] + [r"\s{1,2}(?!\S)", r"\s"])
# Numbers in threes from the right, which no expression of this kind says.
THIRDS = None

FAMILIES = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "gpt-2": [GPT2],
    "llama-bpe": [cl100k("{1,3}")],
    "qwen2": [cl100k("")],
    "qwen35": [cl100k("", r"[\p{L}\p{M}]+", r"[^\s\p{L}\p{M}\p{N}]+")],
    "gpt-4o": [cased("{1,3}", CONTRACTION + "?", r"[\r\n/]*")],
    "tekken": [cased("", "", r"[\r\n/]*")],
    "kimi-k2": [r"\p{Han}+|" + cased("{1,3}", CONTRACTION + "?", r"[\r\n]*", without_han(r"\p{Lu}\p{Lt}"),
                                     without_han(r"\p{Ll}"))],
    "deepseek-v3": [r"\p{N}{1,3}", KANA, DEEPSEEK_V3],
    "deepseek-llm": [r"[\r\n]", r"\s?[" + DEEPSEEK_LETTERS + "]+", r"\s?[" + DEEPSEEK_SIGNS + "]+", r"\s+$", DEEPSEEK_CJK,
                     r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK, r"\p{N}"],
    "starcoder": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "bloom": [BLOOM],
    "viking": [BLOOM, r"\p{N}"],
    "seed-coder": [cl100k("", signs=r"[^\s\p{L}\p{N}\r\n]+", tail="")],
    "exaone-moe": [cl100k("", r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", tail=r"[\r\n/]?", spaces=r"\s*[\r\n]|\s+(?!\S)|\s+")],
    "minicpm5": [r"\p{N}{1,3}", cl100k("+")],
    "jais-2": [POWERS],
    "laguna": [r"[^\n]+|[\n]+", cl100k("")],
    "chameleon": ["<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", GPT2],
    "superbpe": [r"\p{N}+", r"(?=(?:\d{3})+(?!\d))"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", cased("{1,3}", CONTRACTION + "?", r"[\r\n/]*")],
    "afmoe": [THIRDS, UNSPACED, DEEPSEEK_V3],
    "youtu": [EAST, cased("", CONTRACTION + "?", r"[\r\n/]*")],
    "gemma4": [r"[^\n]+|[\n]+"],
}

PARTS = ["a", "b", "S", "T", "word", "camelCase", "ABCdef", "HTTP", "'", "'s", "'RE", "'ll", "don't", " ", " ", " ", "  ",
         "     ", "\t", "\n", "\r\n", "\n\n", " \n ", "1", "22", "345", "67890", "\xbd", "\u2167", "\u0663\u0664", "e",
         "\xe9", "\xc9", "\xdf", "\u0416", "\u0436\u0437", "\u01c4", "\u01c5", "\xaa", "\u02b0", "\u05d0\u05d1",
         "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0301", "\u0308", "\u4e2d\u6587", "\u3005", "\u3007", "\u3072\u3089",
         "\u30ab\u30bf", "\uac00\ub098", "\u314f", "\u3002", "\u3001", "\uff01", "\uff0c", "\u2026", "\u201c", "(", ")",
         ".", ",", "!", "?!", "/", "//", "_", "-", "|", "`", "$", "+", "<=>", "~", "^", "\u20ac", "\U0001f600",
         "\U0001f468\u200d\U0001f469", "\u200b", "\ufeff", "\xa0", "\u3000", "\u2003", "\u2028", "\x85", "\x01", "\x7f",
         "\u0378", "\U0001f1e8\U0001f1ed", "\uff46\uff21", "\u0e44\u0e17\u0e22", "\u2e80", "\U00020093", "IMGIMGABZ",
         "<sentinel:12>", "IMGIMG", "\u017f", "'\u017f", "\u212a", "\ufb01", "\u3105"]


def thirds(text):
    for m in regex.finditer(r"\p{N}+", text):
        at, end = m.span()
        while at < end:
            n = (end - at) % 3 or 3
            yield at, at + n
            at += n


def cut(expression, pieces):
    for piece in pieces:
        at = 0
        for start, end in thirds(piece) if expression is None else (m.span() for m in expression.finditer(piece)):
            if start > at:
                yield piece[at:start]
            if end > start:
                yield piece[start:end]
            at = end
        if at < len(piece):
            yield piece[at:]


def main():
    rng = random.Random(20260115)
    texts = []
    for _ in range(60):
        few = rng.sample(PARTS, 16)
        texts.append("".join(rng.choice(few) for _ in range(rng.choice([3, 8, 20, 40]))))
    texts += [" " * 700 + "x", " " * 700, "A" * 40, "A" * 40 + "b", "\u0301" + "A" * 5 + "1", "1" * 40, "\t" * 9 + "y"]
    # near misses of numbers (before a letter, a mark, a line), of contractions at the end of a text, and of Chameleon's
    # images, and these images
    texts += ["12\xbd 1\xbd2 123\xbd x9:9 12:", "1234_ 1234_5 12345\xe9 1234\u0301 12345- 12345", "it'x", "'x", "a'\xe9",
              "IMGIMGABCDEZ IMGIMG1Z IMGIMGJZ IMGIMG!Z IMGIMGZ IMGIMGABCD", "IMGIMGA", "IMGIMGAB",
              "<sentinel:> <sentinel:1x> <sentinel:x> <sentinel:1", "<sentinel:12",
              "a<sentinel:1>2<sentinel:9876543210>> <sentinel;12> <sentine1:12>", "IMGIMGAZ IMGIMGABCDZZxIMGIMGIZ IMGIMHAZ",
              "I'd we've they're I'm you'll it't 'rx 'vx 'lx 'Ve 'D 'LL x'v x'r a'lx a'rx a'vx"]
    for text in texts:
        print("text", text.encode().hex())
    for name, expressions in FAMILIES.items():
        print("family", name)
        compiled = [e if e is None else regex.compile(e, regex.V1) for e in expressions]
        for text in texts:
            pieces = [text]
            for expression in compiled:
                pieces = list(cut(expression, pieces))
            print(" ".join(str(len(p.encode())) for p in pieces))


if __name__ == "__main__":
    main()
