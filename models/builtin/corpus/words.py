"""Word facts: opposites, plurals, rhymes, and the words that the model can spell and shout."""

from .wording import TELL_ME, TELL_WHAT, WHAT_IS, Exchange, Grammar, capital_first

# Either word is the opposite of the other.
OPPOSITE_PAIRS = '''
hot cold, big small, tall short, up down, in out, open closed, happy sad, fast slow, day night, black white,
light dark, good bad, old young, hard soft, wet dry, full empty, high low, loud quiet, strong weak, rich poor,
clean dirty, early late, long brief, near far, first last, left right, front back, top bottom, inside outside,
on off, over under, above below, before after, always never, all none, begin end, start stop, come go, push pull,
give take, buy sell, win lose, find hide, laugh cry, love hate, remember forget, ask answer, true false, yes no,
right wrong, safe dangerous, easy difficult, simple complicated, heavy light, thick thin, wide narrow,
deep shallow, smooth rough, sharp blunt, sweet sour, fresh stale, new used, brave cowardly, kind cruel, polite rude,
clever stupid, awake asleep, alive dead, asleep awake, friend enemy, war peace, summer winter, north south,
east west, morning evening, sunrise sunset, boy girl, man woman, king queen, brother sister, mother father,
uncle aunt, arrive leave, build destroy, catch throw, float sink, rise fall, stand sit, whisper shout, work rest,
teach learn, lead follow, lock unlock, send receive, borrow lend, increase decrease, save spend, break repair,
fill drain, heaven hell, beautiful ugly, calm nervous, careful careless, cheap expensive, busy idle, lazy diligent,
tight loose, raw cooked, wild tame, straight crooked, public private, visible invisible, possible impossible,
lucky unlucky, fair unfair, honest dishonest, healthy sick, patient impatient, perfect imperfect, more less,
many few, here there, everything nothing, everyone nobody, together apart, forward backward, question answer,
success failure, beginning ending, male female, entrance exit, guest host, maximum minimum, plus minus, odd even,
warm cool, tidy messy, generous selfish, humble proud, bright dim, solid liquid, modern ancient, friendly hostile,
gentle violent, joy sorrow, noisy silent
'''


def _opposites():
    """Each word's opposite; where a word stands in two pairs, the first holds, but for what is written out below."""
    table = {}
    for pair in OPPOSITE_PAIRS.replace('\n', ' ').split(','):
        one, other = pair.split()
        table.setdefault(one, other)
        table.setdefault(other, one)
    table.update({'light': 'dark', 'right': 'left', 'brief': 'long', 'long': 'short', 'short': 'long', 'back': 'front',
                  'end': 'beginning', 'ending': 'beginning', 'hide': 'show', 'show': 'hide', 'bright': 'dark',
                  'used': 'new', 'new': 'old', 'answer': 'question', 'question': 'answer', 'ask': 'answer',
                  'dark': 'light', 'find': 'lose', 'little': 'big',
                  'large': 'small', 'shut': 'open', 'closed': 'open', 'close': 'open', 'quick': 'slow',
                  'hello': 'goodbye', 'finish': 'start', 'begin': 'end', 'thin': 'thick', 'fat': 'thin',
                  'smart': 'stupid', 'dumb': 'smart', 'under': 'over', 'below': 'above', 'sleep': 'wake',
                  'difficult': 'easy', 'hard': 'soft', 'loose': 'tight', 'cool': 'warm', 'evening': 'morning',
                  'nice': 'mean', 'mean': 'nice', 'pretty': 'ugly', 'ill': 'healthy', 'sick': 'healthy'})
    return table


OPPOSITES = _opposites()
# What is as good an answer as the one that is taught.
ALSO_OPPOSITE = {
    'hard': ['easy'], 'old': ['new'], 'new': ['used'], 'short': ['tall'], 'right': ['wrong'], 'light': ['heavy'],
    'start': ['end', 'finish'], 'begin': ['finish'], 'end': ['start', 'begin'], 'find': ['hide'],
    'brave': ['afraid', 'scared'],
    'clever': ['dumb'], 'small': ['large'], 'little': ['large'], 'slow': ['quick'], 'bad': ['nice'], 'thin': ['fat'],
    'difficult': ['simple'], 'loud': ['silent'], 'quiet': ['noisy'], 'kind': ['mean'], 'below': ['over'],
    'under': ['above'], 'sick': ['well'], 'sad': ['glad'], 'closed': ['opened'], 'close': ['far'], 'stop': ['go'],
    'dark': ['bright'], 'calm': ['excited'], 'easy': ['hard'], 'soft': ['loud'],
}

ASK_OPPOSITE = Grammar(
    f"4: {WHAT_IS} the opposite of {{word}}?",
    "2: {word} [is the opposite of|is the reverse of] [what|which word]?",
    "[which|what] word is the opposite of {word}?",
    "[which|what] word means the opposite of {word}?",
    "[which|what] is the opposite of {word}?",
    "what is the [antonym|opposite word] [of|for] {word}?",
    "3: [opposite of|the opposite of|opposite word of|antonym of] {word}?",
    "if something is not {word}, what is the opposite?",
    "the opposite of {word}[ is| is what|, what is it|]?",
    f"2: {TELL_ME} the opposite of {{word}}.",
    f"{TELL_ME} the [opposite|word that is the opposite] of the word {{word}}.",
    "what's the opposite of the word {word}?",
    "{word}: what is the opposite?",
    "give the opposite[ word|] of {word}.",
    "2: say the opposite of {word}.",
)


def opposite(speak):
    word = speak.pick(list(OPPOSITES))
    quoted = '"%s"' % word if speak.chance(0.15) else word
    prompt = speak.ask(ASK_OPPOSITE, {'word': quoted})
    other = OPPOSITES[word]
    return Exchange('opposite', prompt, f'The opposite of {word} is {other}.',
                    {'rule': 'says', 'want': [other] + ALSO_OPPOSITE.get(word, []), 'family': 'opposites',
                     'given': word})


IRREGULAR = {
    'mouse': 'mice', 'man': 'men', 'woman': 'women', 'child': 'children', 'foot': 'feet', 'tooth': 'teeth',
    'goose': 'geese', 'sheep': 'sheep', 'fish': 'fish', 'leaf': 'leaves', 'knife': 'knives', 'wolf': 'wolves',
    'life': 'lives', 'wife': 'wives', 'loaf': 'loaves', 'half': 'halves', 'shelf': 'shelves', 'person': 'people',
    'ox': 'oxen', 'deer': 'deer', 'potato': 'potatoes', 'tomato': 'tomatoes', 'hero': 'heroes', 'thief': 'thieves',
    'calf': 'calves', 'elf': 'elves',
}
NOUNS = '''
cat dog fox bear bird horse cow pig hen duck frog rabbit lion tiger monkey snake spider bee ant butterfly
house tree flower river hill lake road bridge garden window door table chair bed lamp clock book pen pencil
box glass cup plate spoon fork bottle basket bag hat coat shoe sock shirt dress button ring key
apple pear banana cherry berry orange lemon peach plum carrot onion egg cake cookie sandwich
boy girl baby friend king queen teacher doctor farmer baker sailor
car bus train boat ship plane bike truck ball kite doll toy drum bell star cloud day week month year
city town village country school church park beach bush branch brush dish wish bench watch match kiss
lady family puppy kitten story party penny pony cherry country
'''.split()


def plural_of(noun):
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if noun.endswith(('s', 'x', 'sh', 'ch')):
        return noun + 'es'
    if noun.endswith('y') and noun[-2] not in 'aeiou':
        return noun[:-1] + 'ies'
    return noun + 's'


COUNTABLE = sorted(set(NOUNS) | set(IRREGULAR))
ASK_PLURAL = Grammar(
    f"3: {WHAT_IS} the plural [|form ]of {{word}}?",
    "[plural|the plural|plural form|the plural form] of {word}?",
    "one {word}, two [what|...]?",
    "one {word}, [many|three|several] [what|...]?",
    "if there is one {word} and then another, there are two [what|...]?",
    "how do you [say|write] more than one {word}?",
    "what do you call more than one {word}?",
    "what do [you|we] call [two|three|many] of a {word}?",
    "what is the word for [many|more than one|two of a] {word}?",
    f"2: {TELL_ME} the plural of {{word}}.",
    "[make|turn] {word} [plural|into a plural].",
    "give the plural [form |]of [the word |]{word}.",
)


def plural(speak):
    word = speak.pick(COUNTABLE)
    many = plural_of(word)
    prompt = speak.ask(ASK_PLURAL, {'word': word})
    return Exchange('plural', prompt, f'The plural of {word} is {many}.',
    {'rule': 'says', 'want': [many], 'given': word})


RHYMES = [group.split() for group in '''
cat hat bat mat rat sat
dog log fog frog
fox box
sun run fun bun
day play way say stay may
night light bright sight right
tree bee sea free three me
star car far jar
moon spoon soon noon
house mouse
ball tall fall wall small call
king ring sing wing thing
bear hair chair pear
cake lake snake make take
boat goat coat float
blue shoe true new
bed red head bread
cold gold old told bold
rain train pain brain
book look cook hook
sky fly high why
door floor four more
ten pen hen men
pig big dig wig
hop top shop stop
nose rose toes
bell well shell tell
'''.strip().split('\n')]
ASK_RHYME = Grammar(
    "3: [what|which word|what word] rhymes with {word}?",
    "[can you find|do you know|can you tell me|find|name] a word that rhymes with {word}?",
    "what is a [word that rhymes with|rhyme for] {word}?",
    f"2: {TELL_ME} a word that rhymes with {{word}}.",
    f"{TELL_ME} [a rhyme for|something that rhymes with] {{word}}.",
    "[a|one] [word that rhymes|rhyme] with {word}?",
    "rhyme with {word}.",
    "find a rhyme for [the word |]{word}.",
    "does anything rhyme with {word}?",
)


def rhyme(speak):
    group = speak.pick(RHYMES)
    at = int(speak.rand() * len(group))
    word, answer = group[at], group[(at + 1) % len(group)]
    return Exchange('rhyme', speak.ask(ASK_RHYME, {'word': word}), f'{capital_first(answer)} rhymes with {word}.',
                    {'rule': 'rhymes', 'given': word})


PAST = dict(pair.split() for pair in '''go went, see saw, eat ate, run ran, come came, give gave, take took,
make made, say said, tell told, find found, think thought, buy bought, bring brought, catch caught, teach taught,
sing sang, swim swam, drink drank, begin began, write wrote, ride rode, drive drove, speak spoke, break broke,
fall fell, fly flew, grow grew, know knew, throw threw, draw drew, sleep slept, keep kept, feel felt, leave left,
meet met, sit sat, stand stood, win won, lose lost, hear heard, read read, hide hid, build built, send sent,
walk walked, play played, jump jumped, look looked, help helped, like liked, love loved, want wanted, work worked,
is was, are were, have had, do did, get got, put put, cut cut, forget forgot, wear wore, choose chose, wake woke,
pay paid, sell sold, hold held, shine shone'''.replace('\n', ' ').split(', '))
ASK_PAST = Grammar(
    f"3: {WHAT_IS} the past [tense |form |]of {{word}}?", "[past tense|the past tense|past form] of {word}?",
    "what is {word} in the past[| tense]?", f"{TELL_ME} the past [tense|form] of {{word}}.",
    "put {word} [in|into] the past[| tense].",
    "today I {word}, yesterday I [what|...]?", "how do you say {word} in the past[| tense]?",
    "give the past tense of [the word |the verb |]{word}.", "what's the past tense of the [word|verb] {word}?",
)


def past(speak):
    word = speak.pick(list(PAST))
    return Exchange('past', speak.ask(ASK_PAST, {'word': word}), f'The past tense of {word} is {PAST[word]}.',
                    {'rule': 'says', 'want': [PAST[word]]})


SYNONYMS = dict(pair.split() for pair in '''big large, small little, happy glad, sad unhappy, fast quick,
smart clever, begin start, end finish, pretty beautiful, angry mad, tired sleepy, scared afraid, funny amusing,
rich wealthy, sick ill, quiet silent, loud noisy, easy simple, hard difficult, nice pleasant, shout yell, jump leap,
look watch, talk speak, gift present, road street, stone rock, house home, boat ship, forest wood, cold chilly,
wet damp, clever smart, large big, quick fast, glad happy, start begin, odd strange, kind friendly, brave bold,
shut close, rabbit bunny, child kid, ocean sea, correct right, error mistake, tale story, under below, near close,
whole entire, choose pick, fix repair'''.replace('\n', ' ').split(', '))
ASK_SYNONYM = Grammar(
    "3: [what is|what's] another word for {word}?", "[what is|what's] a synonym [for|of] {word}?",
    "[another word|synonym|a synonym] for {word}?", f"{TELL_ME} another word for {{word}}.",
    f"{TELL_ME} a synonym [for|of] {{word}}.",
    "[what|which] word means the same as {word}?", "what else can [I|you] say for {word}?",
    "how else can you say {word}?", "is there another word for {word}?", "[what|which] word is like {word}?",
)


def synonym(speak):
    word = speak.pick(list(SYNONYMS))
    return Exchange('synonym', speak.ask(ASK_SYNONYM, {'word': word}), f'Another word for {word} is {SYNONYMS[word]}.',
                    {'rule': 'says', 'want': [SYNONYMS[word]]})
