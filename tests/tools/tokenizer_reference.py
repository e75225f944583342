#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tokens of texts by a second, slow road: what client/text is compared with.

    tokenizer_reference.py ids DIR             ids of each line of standard input, as `gpclient tokens` prints them
    tokenizer_reference.py make DIR < TEXT     trains a small byte pair vocabulary and a small WordPiece one on the text
    tokenizer_reference.py tricky              texts that are easy to get wrong, one a line

Written from the papers and from the description of the tokenizers of Hugging Face's transformers (byte pair encoding without a
prefix space; BERT's basic tokenizer, then WordPiece), with nothing but Python's own Unicode tables: no regular expression,
no heap. The special token names in a text are text, as in client/text/tokenizer.h.
"""
import json
import os
import sys
import unicodedata

SPACES = {0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000, *range(9, 14), *range(0x2000, 0x200B)}


# --- byte pair encoding -----------------------------------------------------------------------------------------------

def written_bytes():
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in own]
    return {**{b: chr(b) for b in own}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def kind(c):
    if ord(c) in SPACES:
        return "space"
    category = unicodedata.category(c)
    return {"L": "letter", "N": "digit"}.get(category[0], "other")


def words(text):
    """GPT-2's words: 's 't 're 've 'm 'll 'd, or runs of one kind with a space before, or spaces."""
    at, out = 0, []
    while at < len(text):
        end = next((at + len(s) for s in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d") if text.startswith(s, at)), None)
        if end is None:
            begin = at + (text[at] == " " and at + 1 < len(text) and kind(text[at + 1]) != "space")
            run = kind(text[begin])
            end = begin
            while end < len(text) and kind(text[end]) == run:
                end += 1
            if run == "space" and end < len(text) and end - at > 1:
                end -= 1  # the last space belongs to the next word
        out.append(text[at:end])
        at = end
    return out


class Bpe:
    def __init__(self, folder):
        with open(os.path.join(folder, "vocab.json"), encoding="utf-8") as f:
            self.vocab = json.load(f)
        with open(os.path.join(folder, "merges.txt"), encoding="utf-8") as f:
            lines = [line for line in f.read().split("\n") if line and not line.startswith("#version")]
        self.rank = {tuple(line.split(" ")): i for i, line in enumerate(lines)}
        self.byte = written_bytes()
        self.known = {}

    def word(self, word):
        if word in self.known:
            return self.known[word]
        part = [self.byte[b] for b in word.encode()]
        while len(part) > 1:
            best = min(zip(part, part[1:]), key=lambda pair: self.rank.get(pair, len(self.rank)))
            if best not in self.rank:
                break
            i, joined = 0, []
            while i < len(part):
                double = tuple(part[i:i + 2]) == best
                joined.append("".join(part[i:i + 1 + double]))
                i += 1 + double
            part = joined
        self.known[word] = [self.vocab[p] for p in part]
        return self.known[word]

    def ids(self, text):
        return [self.vocab["<s>"], *(i for w in words(text) for i in self.word(w)), self.vocab["</s>"]]


# --- WordPiece --------------------------------------------------------------------------------------------------------

def chinese(c):
    blocks = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
              (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
    return any(low <= ord(c) <= high for low, high in blocks)


def punctuation(c):
    return (ord(c) < 128 and c.isprintable() and not c.isalnum() and c != " ") or unicodedata.category(c)[0] == "P"


class WordPiece:
    def __init__(self, folder):
        with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as f:
            self.vocab = {line: i for i, line in enumerate(f.read().rstrip("\n").split("\n"))}
        config = {}
        if os.path.exists(os.path.join(folder, "tokenizer_config.json")):
            with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as f:
                config = json.load(f)
        self.lower = config.get("do_lower_case", True)

    def basic(self, text):
        clean = ""
        for c in text:
            if c in "\t\n\r" or unicodedata.category(c) == "Zs" or ord(c) in (0x2028, 0x2029):
                clean += " "
            elif c != "\ufffd" and unicodedata.category(c)[0] != "C":
                clean += f" {c} " if chinese(c) else c
        for word in clean.split(" "):
            if self.lower:
                word = "".join(c.lower() if c != "\u0130" else "i" for c in word)
                word = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
            piece = ""
            for c in word:
                if punctuation(c):
                    yield piece
                    yield c
                    piece = ""
                else:
                    piece += c
            yield piece

    def word(self, word):
        at, out = 0, []
        while at < len(word):
            for end in range(len(word), at, -1):
                token = ("##" if at else "") + word[at:end]
                if token in self.vocab:
                    out.append(self.vocab[token])
                    at = end
                    break
            else:
                return [self.vocab["[UNK]"]]
        return out if len(word) <= 100 else [self.vocab["[UNK]"]]

    def ids(self, text):
        return [self.vocab["[CLS]"], *(i for w in self.basic(text) for i in self.word(w)), self.vocab["[SEP]"]]


# --- commands ---------------------------------------------------------------------------------------------------------

def make_bpe(text, folder, merges):
    byte, counts = written_bytes(), {}
    for word in words(text):
        key = tuple(byte[b] for b in word.encode())
        counts[key] = counts.get(key, 0) + 1
    vocab = ["<s>", "<pad>", "</s>", "<unk>", *(byte[b] for b in range(256))]
    rank = []
    while len(rank) < merges:
        pairs = {}
        for word, n in counts.items():
            for pair in zip(word, word[1:]):
                pairs[pair] = pairs.get(pair, 0) + n
        best = max(pairs, key=lambda p: (pairs[p], p))
        rank.append(best)
        vocab.append(best[0] + best[1])
        joined = {}
        for word, n in counts.items():
            i, new = 0, []
            while i < len(word):
                double = word[i:i + 2] == best
                new.append("".join(word[i:i + 1 + double]))
                i += 1 + double
            joined[tuple(new)] = joined.get(tuple(new), 0) + n
        counts = joined
    vocab.append("<mask>")
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump({t: i for i, t in enumerate(vocab)}, f, ensure_ascii=False, indent=0)
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in rank))


def make_wordpiece(text, folder, most):
    counts = {}
    for word in text.lower().split():
        for end in range(1, len(word) + 1):
            counts[word[:end]] = counts.get(word[:end], 0) + 1
            counts["##" + word[end - 1:]] = counts.get("##" + word[end - 1:], 0) + 1
    frequent = sorted(counts, key=lambda t: (-counts[t], t))[:most]
    letters = [p + c for c in "abcdefghijklmnopqrstuvwxyz0123456789" for p in ("", "##")]
    others = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["中", "ß", "σ", "##σ", "##ς", "ω", "…", "а", "##а", "б"]
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys([*letters, *others, *frequent])]
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(vocab) + "\n")


TRICKY = [
    "Tokens cross the link.", "", " ", "   two  spaces   inside and behind   ", "\ttab\tand space \t mixed\t",
    "it's they'll we've I'M 'twas 'd 's'sss don't", "1234567890 3rd 2.5 1,000,000 ½ ² Ⅷ ٣ 三", "café cafe\u0301 ÀÉÎÕÜ ñ İstanbul ŁÓDŹ ǅ",
    "Straße STRASSE ẞ", "ΟΔΟΣ οδός σς", "Привет, мир! АБ аб", "中文字符 and 日本語テキスト 한국어 漢字かな", "\U00020000\U0002A6DF\uF900\uFA0E\U0002F800",
    "🙂 👩‍👩‍👧‍👦 🇩🇪 ☎️ 1️⃣", "a\u00a0b\u2003c\u2028d\u2029e\u3000f\u1680g\u180eh\u200bi\ufeffj\u00adk\u0085l", "\x01\x02control\x7fcharacters\x1b[31m here\x0b\x0c",
    "<s> </s> <mask> [CLS] [SEP] [MASK] [UNK]", "a" * 99 + " " + "b" * 100 + " " + "c" * 101, "......!!!???---___***", "e\u0301\u0302\u0303\u0304 \u0301alone Z̷̡a̴l̶g̸o̶",
    "ｆｕｌｌｗｉｄｔｈ １２３", "مرحبا بالعالم", "שלום עולם", "हिन्दी में पाठ", "ไทยไม่มีช่องว่าง", "x²+y³≠∞ €5 £3 ¥7 ¢ § ¶ © ®", "“quotes” ‘single’ «guillemets» – — …",
    "http://example.org/a?b=c&d=%20#e", "snake_case camelCase kebab-case", "ﬁ ﬂ ligatures Å Å", "\u2126 \u212a \u212b", "\ue000private \ufffdreplacement \uffff",
]


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if command == "ids":
        folder = sys.argv[2]
        tokenizer = Bpe(folder) if os.path.exists(os.path.join(folder, "vocab.json")) else WordPiece(folder)
        for line in sys.stdin.buffer.read().split(b"\n")[:-1]:
            line = line[:-1] if line.endswith(b"\r") else line
            print(*tokenizer.ids(line.decode("utf-8", errors="replace")))
    elif command == "make":
        text = sys.stdin.read()
        for name, maker, size in (("bpe", make_bpe, 400), ("wordpiece", make_wordpiece, 400)):
            os.makedirs(os.path.join(sys.argv[2], name), exist_ok=True)
            maker(text, os.path.join(sys.argv[2], name), size)
    elif command == "tricky":
        sys.stdout.buffer.write("".join(t + "\n" for t in TRICKY).encode())
        sys.stdout.buffer.write(b"broken \xff\xc3 \xe2\x82 \xed\xa0\x80 \xf0\x9f\x99 \xc0\xaf \xf5\x80 end\n")
    else:
        print(__doc__)


main()
