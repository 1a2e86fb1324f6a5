"""Asks a model what was kept out of its training text, and judges the answers by rule.

    python3 check.py prompts --seed S --n 100 -o PROMPTS         held-out questions, a JSON object a line
    python3 check.py prompts --own-words -o PROMPTS              a hundred questions that people wrote (own_words.py)
    python3 check.py judge --prompts PROMPTS --answers ANSWERS   right and wrong by kind; status 0 from 90% on
    python3 check.py loops --answers ANSWERS                     status 0 when no answer repeats itself

ANSWERS has a line {"id": ..., "text": ...} for each prompt. A prompt's "judge" names a rule below and what it needs;
its "answer" is what training would have said. Every answer must also be free of loops.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from functools import lru_cache

import own_words
from corpus import animals, cast, facts, instructions, stories, words
from corpus.arithmetic import in_words
from corpus.mixture import exchange
from corpus.wording import speaker

PASS_PART = 0.9
MOST_WORDS = 60             # of an answer that is not a story
NUMBER_WORDS = {in_words(n): n for n in range(101)}

# An answer has the words of the question, of the expected answer, and these. Others make it wrong.
FILLING = set('''a an and are as because can do does have has i in is it its it's of on one that the their them they
this to we with yes you your called'''.split())
LIKE = 0.55                 # the least likeness to the expected answer, for answers that are whole sentences
# Of the words of a family, an answer may say what is wanted and what was asked about, and no other.
FAMILIES = {
    'cities': set(facts.CAPITALS.values()),
    'countries': {country.removeprefix('the ') for country in facts.CAPITALS},
    'colours': {word for colour in facts.COLOURS.values() for word in colour.split()} - {'and'},
    'calendar': set(facts.DAYS + facts.MONTHS + facts.SEASONS),
    'sounds': {row[0] for row in animals.ANIMALS.values() if row[0]},
    'young': {row[1] for row in animals.ANIMALS.values()},
    'homes': {re.sub('^(a|an|the) ', '', row[2]) for row in animals.ANIMALS.values()},
    'classes': {row[5] for row in animals.ANIMALS.values()},
    'numbers': set(NUMBER_WORDS) | {str(n) for n in range(101)} | {'no'},
    'opposites': set(words.OPPOSITES),
    'yes_no': {'yes', 'no'},
    'parity': {'even', 'odd'},
    'number_words': set(NUMBER_WORDS),
    'continents': set(facts.CONTINENT_OF.values()),
}


def words_of(text):
    return [word.strip("'-") if not word.startswith('-') else word.rstrip("'-")
            for word in re.findall(r"[a-z0-9$/'é-]+", text.lower()) if word.strip("'-/")]


def has_phrase(text, phrase):
    """Whether the words of the phrase stand in the text, in a row."""
    whole, part = words_of(text), words_of(phrase)
    return any(whole[at:at + len(part)] == part for at in range(len(whole) - len(part) + 1)) if part else phrase in text


def numbers_of(text):
    text = text.lower().replace(',', ' ').replace('one hundred', '100')
    found = re.findall(r"-?\d+|[a-z]+(?:-[a-z]+)?", text)
    return [int(word) if word.lstrip('-').isdigit() else NUMBER_WORDS[word] for word in found
            if word.lstrip('-').isdigit() or word in NUMBER_WORDS]


def likeness(one, other):
    """Twice the words in common, over the words of both: 1 for the same words, 0 for none."""
    a, b = Counter(words_of(one)), Counter(words_of(other))
    return 2 * sum((a & b).values()) / max(1, sum(a.values()) + sum(b.values()))


# Each rule takes the answer, the prompt's judge and the prompt, and returns why the answer is wrong, or None.
def rule_says(text, judge, prompt):
    wanted = [want for want in judge['want'] if has_phrase(text, want)]
    if not wanted:
        return 'does not say "%s"' % judge['want'][0]
    strange = set(words_of(text)) - FILLING - set(words_of(prompt['prompt'])) - set(words_of(prompt['answer']))
    strange -= {word for want in judge['want'] for word in words_of(want)}
    if strange:
        return 'also says "%s"' % sorted(strange)[0]
    if 'family' not in judge:
        return None if likeness(text, prompt['answer']) >= LIKE else 'says something else beside'
    asked = {judge.get('given', '').lower()} | {want.lower() for want in judge['want']}
    for other in FAMILIES[judge['family']]:
        if has_phrase(text, other) and other.lower() not in asked and not has_phrase(prompt['answer'], other):
            return 'also says "%s"' % other
    if 'given' in judge and judge['given'] and re.search(r'\b%s\W*$' % re.escape(judge['given'].lower()),
    text.lower()) \
            and re.search(r'\b(is|comes|goes|are)\W+%s\W*$' % re.escape(judge['given'].lower()), text.lower()):
        return 'answers with what was asked'
    return None


def rule_one_of(text, judge, prompt):
    return None if words_of(text) in [words_of(answer) for answer in judge['of']] else 'is none of those that it knows'


def rule_number(text, judge, prompt):
    found = numbers_of(text)
    if not found or found[-1] != judge['want']:
        return 'does not end on %d' % judge['want']
    given, others = set(judge['given']), set(found[:-1])
    if others and others != given and others != given | {judge['want']}:
        return 'is about other numbers'
    if 'sign' in judge and {'plus', 'minus', 'times', 'divided'} & set(words_of(text)) - {judge['sign']}:
        return 'is about something other than "%s"' % judge['sign']
    return None


def rule_first_number(text, judge, prompt):
    found = numbers_of(text)
    right = found and found[0] == judge['want'] and set(found) <= set(judge['given'])
    return None if right else 'does not choose %d' % judge['want']


def rule_numbers(text, judge, prompt):
    return None if numbers_of(text) == judge['want'] else 'miscounts'


def bare(text):
    return text.strip().strip('"').strip().rstrip('.').strip()


def rule_same(text, judge, prompt):
    return None if bare(text) == bare(judge['want']) else 'is not "%s"' % judge['want']


def rule_words(text, judge, prompt):
    return None if words_of(text) == judge['want'] else 'is not "%s"' % ' '.join(judge['want'])


def rule_letters(text, judge, prompt):
    letters = re.split(r'[-\s,.]+', text.strip().strip('.'))
    right = all(len(letter) == 1 for letter in letters) and ''.join(letters).lower() == judge['want']
    return None if right else 'misspells "%s"' % judge['want']


def rule_list(text, judge, prompt):
    known = {item.lower() for item in instructions.LISTS[judge['of']]}
    items = [item for item in re.split(r',|\band\b', text.strip().rstrip('.').lower()) if item.strip()]
    items = [item.strip() for item in items]
    if len(items) != judge['count'] or len(set(items)) != len(items):
        return 'is not %d different %s' % (judge['count'], judge['of'])
    strange = [item for item in items if item not in known]
    return '"%s" is none of the %s' % (strange[0], judge['of']) if strange else None


def rule_rhymes(text, judge, prompt):
    groups = [group for group in words.RHYMES if judge['given'] in group]
    rhymes = {word for group in groups for word in group} - {judge['given']}
    said = [word for word in words_of(text) if word not in ('rhymes', 'with', 'and', 'a', 'the', judge['given'])]
    return None if len(set(said)) == 1 and said[0] in rhymes else 'does not rhyme with "%s"' % judge['given']


def rule_shorter(text, judge, prompt):
    said, long = words_of(text), words_of(judge['of'])
    if not 3 <= len(said) < len(long):
        return 'is not shorter'
    rest = iter(long)
    if not all(word in rest for word in said):
        return 'says what the sentence does not'
    lost = [word for word in judge['keep'] if word not in said]
    return 'leaves out "%s"' % lost[0] if lost else None


def rule_starts(text, judge, prompt):
    said, wanted = words_of(text), words_of(judge['want'])
    nouns = [word for word in said if word in words_of(prompt['answer']) and word not in FILLING]
    if not nouns or nouns[0] != wanted[-1]:
        return 'does not choose "%s"' % judge['want']
    strange = set(said) - FILLING - set(words_of(prompt['answer'])) - set(words_of(prompt['prompt']))
    return 'also says "%s"' % sorted(strange)[0] if strange else None


def rule_sentence(text, judge, prompt):
    if not re.fullmatch(r'[A-Z][^.!?]*[.!?]', text.strip()) or not 4 <= len(words_of(text)) <= 20:
        return 'is not one sentence'
    return None if judge['word'] in words_of(text) else 'has no "%s"' % judge['word']


FEWEST_STORY_WORDS, MOST_STORY_WORDS = 45, 260
HE, SHE = {'he', 'him', 'his', 'himself'}, {'she', 'her', 'hers', 'herself'}


@lru_cache(1)
def story_lexicon():
    """The words that the stories of training are made of: a word outside it is a slip of the model."""
    speak = speaker(0, 'train')
    heroes = cast.ANIMALS + cast.SEA_ANIMALS + cast.PLAIN_THINGS + [*cast.CHILDREN, *cast.GROWN, *cast.FABLED,
    *cast.LIVE_THINGS]
    told = [stories.tell(speak)[1] for _ in range(5000)]
    return {word for text in told + heroes + cast.HE_NAMES + cast.SHE_NAMES for word in words_of(text)}


def sentences_of(text):
    """Text split behind . ! ? and the quotation mark that follows, where a capital or a quotation begins anew."""
    return [part.strip() for part in re.split(r'(?<=[.!?])"?\s+(?=["A-Z])', text) if part.strip()]


def names_of(text):
    """Words with a capital that do not begin a sentence or a quotation: the names of a story."""
    return [name for name in re.findall(r'(?<=[a-z,;] )[A-Z][a-z]+', text)]


def rule_story(text, judge, prompt):
    text = text.strip()
    length = len(words_of(text))
    if not FEWEST_STORY_WORDS <= length <= MOST_STORY_WORDS:
        return 'has %d words' % length
    if not text.endswith('The end.'):
        return 'does not end with an end'
    if text.count('The end.') > 1:
        return 'ends more than once'
    if text.count('"') % 2:
        return 'leaves a quotation open'
    for sentence in sentences_of(text):
        if not re.match(r'"?[A-Z]', sentence):
            return 'has a sentence without a capital: %s' % sentence[:40]
    return story_slip(text, judge)


def story_slip(text, judge):
    said = words_of(text)
    for subject in judge['all']:
        if not has_phrase(text, subject):
            return 'is not about "%s"' % subject
    if judge.get('some') and not any(word in said for word in judge['some']):
        return 'is not on the theme'
    twice = re.search(r'\b([a-z]+) \1\b', text.lower())
    if twice and twice.group(1) not in ('very', 'many', 'that', 'had'):
        return 'says "%s" twice' % twice.group(1)
    for one, other in zip(said, said[1:]):
        if (one == 'a' and other[0] in 'aeiou' and not other.startswith(('uni', 'use', 'one'))) or \
                (one == 'an' and other[0] not in 'aeiouh'):
            return 'says "%s %s"' % (one, other)
    strange = set(said) - story_lexicon()
    if strange:
        return 'has the word "%s"' % sorted(strange)[0]
    names = Counter(names_of(text))
    if len(names) > 3:
        return 'has too many names: %s' % ', '.join(names)
    told = set(words_of(re.sub(r'"[^"]*"', ' ', text)))
    if told & HE and told & SHE:
        return 'mixes he and she'
    return None


RULES = {name.removeprefix('rule_'): rule for name, rule in list(globals().items()) if name.startswith('rule_')}

LONG_RUN, LONG_TIMES = 8, 3     # no run of so many words may come so many times
SHORT_TIMES = 4                 # nor a shorter one, of one word or more, so many times in a row


def loop_in(text):
    """The words that a text goes round in, or None."""
    said = text.split()
    runs = Counter(tuple(said[at:at + LONG_RUN]) for at in range(len(said) - LONG_RUN + 1))
    for run, times in runs.items():
        if times >= LONG_TIMES:
            return ' '.join(run)
    for period in range(1, LONG_RUN):
        same = 0
        for at in range(period, len(said)):
            same = same + 1 if said[at] == said[at - period] else 0
            if same >= period * (SHORT_TIMES - 1):
                return ' '.join(said[at - period + 1:at + 1])
    return None


def fault_of(text, prompt):
    """Why the answer is wrong, or None when it is right."""
    if not text.strip():
        return 'is empty'
    loop = loop_in(text)
    if loop:
        return 'loops: %s' % loop
    if prompt['judge']['rule'] != 'story' and len(words_of(text)) > MOST_WORDS:
        return 'is too long'
    return RULES[prompt['judge']['rule']](text, prompt['judge'], prompt)


def held_out_prompts(seed, n):
    speak = speaker(seed, 'heldout')
    prompts, seen = [], set()
    while len(prompts) < n:
        one = exchange(speak)
        if one.prompt.lower() not in seen:
            seen.add(one.prompt.lower())
            prompts.append({'id': 'h%d-%03d' % (seed, len(prompts)), 'kind': one.kind, 'prompt': one.prompt,
                            'answer': one.answer, 'judge': one.judge})
    return prompts


def read_lines(path):
    with (sys.stdin if path == '-' else open(path, encoding='utf-8')) as lines:
        return [json.loads(line) for line in lines if line.strip()]


def command_prompts(args):
    with (sys.stdout if args.output == '-' else open(args.output, 'w', encoding='utf-8')) as out:
        for prompt in own_words.prompts() if args.own_words else held_out_prompts(args.seed, args.n):
            out.write(json.dumps(prompt, ensure_ascii=False) + '\n')
    return 0


def command_judge(args):
    prompts = read_lines(args.prompts)
    answers = {answer['id']: answer['text'] for answer in read_lines(args.answers)}
    right, wrong = defaultdict(int), defaultdict(int)
    for prompt in prompts:
        text = answers.get(prompt['id'], '')
        fault = fault_of(text, prompt)
        if fault:
            wrong[prompt['kind']] += 1
            print('wrong  %-10s %s\n       answer: %s\n       it %s' % (
                prompt['kind'], prompt['prompt'], ' '.join(text.split()), fault))
        else:
            right[prompt['kind']] += 1
    for kind in sorted(set(right) | set(wrong)):
        print('%-14s %3d of %3d' % (kind, right[kind], right[kind] + wrong[kind]))
    total = sum(right.values())
    print('%-14s %3d of %3d (%.1f%%)' % ('all', total, len(prompts), 100 * total / max(1, len(prompts))))
    return 0 if prompts and total >= PASS_PART * len(prompts) else 1


def command_loops(args):
    answers = read_lines(args.answers)
    looping = 0
    for answer in answers:
        loop = loop_in(answer['text'])
        if loop:
            looping += 1
            print('loops  %s: %s' % (answer['id'], loop))
    print('%d of %d without a loop' % (len(answers) - looping, len(answers)))
    return 0 if answers and not looping else 1


def main():
    parser = argparse.ArgumentParser(prog='check.py', description='Ask held-out questions and judge the answers.')
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser('prompts', help='write held-out questions')
    command.add_argument('--seed', type=int, default=1)
    command.add_argument('--n', type=int, default=100)
    command.add_argument('--own-words', action='store_true', help='those written by hand instead')
    command.add_argument('-o', '--output', default='-')
    command.set_defaults(run=command_prompts)
    command = commands.add_parser('judge', help='judge the answers')
    command.add_argument('--prompts', required=True)
    command.add_argument('--answers', required=True)
    command.set_defaults(run=command_judge)
    command = commands.add_parser('loops', help='find answers that repeat themselves')
    command.add_argument('--answers', required=True)
    command.set_defaults(run=command_loops)
    args = parser.parse_args()
    return args.run(args)


if __name__ == '__main__':
    sys.exit(main())
