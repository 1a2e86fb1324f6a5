"""Wordings: small grammars that are expanded at random, and the split of what they can say.

A line such as "[what is|what's] the capital [city |]of {country}?" stands for every choice among the alternatives in
brackets (they nest) with the slots in braces filled in. Before the slots are filled, the text is a *wording*. Each
wording belongs, by a checksum of its letters, to the training text or to the held-out text, never to both: so the
questions of check.py are worded as nothing in training was.

A Speaker draws wordings of one split and dresses them as people type: with or without "please", capitals, a question
mark. The dress is the same for both splits.
"""

import re
from functools import cached_property, lru_cache
from itertools import product
from random import Random
from typing import NamedTuple
from zlib import crc32

HELD_OUT_PART = 10          # a wording in so many is held out


class Exchange(NamedTuple):
    """A question, its answer, and what check.py needs to judge another answer to it (see check.py)."""
    kind: str
    prompt: str
    answer: str
    judge: dict


def parse(line):
    """The line as a list of parts: a part is a text, or a tuple of alternatives, which are lists of parts."""
    parts, end = _parse_parts(line, 0, False)
    assert end == len(line), line
    return parts


def _parse_parts(line, at, nested):
    parts = []
    while at < len(line) and not (nested and line[at] in '|]'):
        if line[at] == '[':
            choices = []
            while line[at] != ']':
                choice, at = _parse_parts(line, at + 1, True)
                choices.append(choice)
            parts.append(tuple(choices))
            at += 1
        else:
            end = at
            while end < len(line) and line[end] != '[' and not (nested and line[end] in '|]'):
                end += 1
            parts.append(line[at:end])
            at = end
    return parts, at


def expand(parts, rand):
    out = []
    for part in parts:
        if part.__class__ is str:
            out.append(part)
        else:
            out.append(expand(part[int(rand() * len(part))], rand))
    return ''.join(out)


def expansions(parts):
    """Every expansion of the parts."""
    each = [[part] if part.__class__ is str else [text for choice in part for text in expansions(choice)]
            for part in parts]
    return map(''.join, product(*each))


class Grammar:
    """Lines of which one is drawn and expanded. A line that begins with "3:" is drawn three times as often."""

    def __init__(self, *lines):
        self.lines = []
        for line in lines:
            weight, colon, rest = line.partition(':')
            many = colon and weight.isdigit()
            self.lines += [parse(rest.lstrip() if many else line)] * (int(weight) if many else 1)

    def draw(self, rand):
        return expand(self.lines[int(rand() * len(self.lines))], rand)

    @cached_property
    def held_out(self):
        """The wordings that are held out, by their letters: one in HELD_OUT_PART, but at least one."""
        texts = {letters_of(text): text for parts in self.lines for text in expansions(parts)}
        free = sorted((crc32(letters.encode()), letters) for letters in texts if not is_always_trained(letters))
        chosen = [letters for checksum, letters in free if checksum % HELD_OUT_PART == 0] or [free[0][1]]
        return {letters: texts[letters] for letters in chosen}

    @cached_property
    def held_out_texts(self):
        return sorted(self.held_out.values())


# The plainest wordings are always trained, as are those of fewer letters than SHORT, slots aside: a model that had
# never seen them would serve nobody, however well it did on the others.
SHORT = 12
PLAINEST = ('what is the capital of {country}?', 'what is the opposite of {word}?', 'what is the plural of {word}?',
            'what rhymes with {word}?', 'what sound does a(n) {x} make?', 'what is a baby {x} called?',
            'tell me a story about {subject}.', 'write a story about {subject}.', 'tell me a story.',
            'how many legs does a(n) {x} have?', 'what color is {x}?', 'what colour is {x}?', 'what do {xs} eat?',
            'where do {xs} live?')


@lru_cache(1 << 18)
def letters_of(wording):
    return re.sub('[^a-z{}]', '', wording.lower())


TRAINED = {letters_of(wording) for wording in PLAINEST}


def is_always_trained(letters):
    return letters in TRAINED or len(re.sub('{.*?}', '', letters)) < SHORT


VOWEL_SOUND = re.compile(r'\b([Aa])\(n\) (?=(\w))')
SOUNDS_LIKE_YOU = ('uni', 'use', 'eur', 'one')


def fix_articles(text):
    """Turn every "a(n) " into "a " or "an ", by the word behind it."""
    if 'a(n)' not in text and 'A(n)' not in text:
        return text

    def article(found):
        rest = text[found.end():found.end() + 3].lower()
        vowel = found.group(2).lower() in 'aeiou' and not rest.startswith(SOUNDS_LIKE_YOU)
        return found.group(1) + ('n ' if vowel or rest == 'hou' else ' ')
    return VOWEL_SOUND.sub(article, text)


def fill(wording, slots):
    return fix_articles(wording.format_map(slots))


def capital_first(text):
    return text[:1].upper() + text[1:]


# How one begins and ends what one types. Nothing here changes what is asked.
BEFORE = ('please ', 'hi, ', 'hello, ', 'hey, ', 'ok, ', 'okay, ', 'quick question: ', 'question: ', 'now ', 'and ',
          'hi! ', 'hello! ', 'so, ', 'I have a question: ', 'one more: ', 'well, ', 'hey quern, ', 'quern, ', 'um, ')
AFTER = (', please', ' please', ', thanks', ' thank you', ' for me', ', thank you', ', quern', ' now')


CONTRACTED = re.compile('^(what|where|who|how) is(?= )')


class Speaker:
    """Draws the wordings of one split."""

    def __init__(self, rng, split):
        self.rng = rng
        self.rand = rng.random
        self.held_out = split == 'heldout'

    def pick(self, items):
        return items[int(self.rand() * len(items))]

    def chance(self, part):
        return self.rand() < part

    def wording(self, grammar):
        """A wording of this split, slots unfilled."""
        if self.held_out:
            return self.pick(grammar.held_out_texts)
        while True:
            text = grammar.draw(self.rand)
            if letters_of(text) not in grammar.held_out:
                return text

    def ask(self, grammar, slots=None, plain=False):
        """What a user types. plain: leave the case as it is, for the answer depends on it."""
        text = fill(self.wording(grammar), slots or {})
        return text if plain and self.chance(0.5) else self.dress(text, plain)

    def dress(self, text, plain=False):
        rand = self.rand
        body, mark = (text[:-1].rstrip(), text[-1]) if text[-1] in '?.!' else (text, '')
        if not plain:
            if rand() < 0.25:
                body = CONTRACTED.sub(lambda found: found.group(1) + self.pick(("'s", "'s", 's')), body)
            if rand() < 0.12:
                body = self.pick(BEFORE) + body
            if rand() < 0.08:
                body += self.pick(AFTER)
        if mark and rand() < 0.3:
            mark = ''
        elif mark == '.' and rand() < 0.2:
            mark = '!'
        case = rand()
        if plain or case < 0.7:
            body = capital_first(body)
        elif case < 0.95:
            body = body.lower()
        return body + mark

    def say(self, grammar, slots=None):
        """An answer or a piece of a story: every wording will do."""
        return fill(grammar.draw(self.rand), slots or {})


def speaker(seed, split):
    return Speaker(Random('%s:%d' % (split, seed)), split)


# The ways to begin a question, to be set before its object: WHAT_IS + " the capital of {country}?"
WHAT_IS = "[what is|what's|what is|whats|do you know|can you tell me|could you tell me|what would be|can you name]"
TELL_ME = ("[tell me|please tell me|name|say|give me|I want to know|I would like to know|I need to know|let me know|"
           "I'd like to know]")
# The same before a clause: TELL_WHAT + " where the sun sets."
TELL_WHAT = ("[tell me|please tell me|say|I want to know|I would like to know|I need to know|let me know|I wonder|"
             "I'd like to know|can you tell me|do you know|could you say|you can tell me]")
