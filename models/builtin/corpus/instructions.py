"""Instructions: count, list, repeat, reverse, spell, capitals, shorten, finish a sentence."""

from .arithmetic import in_words
from .wording import TELL_ME, TELL_WHAT, Exchange, Grammar, capital_first, fill
from .words import COUNTABLE

LISTS = {
    'fruits': 'apple banana cherry orange pear plum grape lemon peach strawberry'.split(),
    'vegetables': 'carrot potato tomato onion cucumber cabbage spinach pea bean pumpkin'.split(),
    'animals': 'cat dog horse cow sheep lion tiger elephant bear fox'.split(),
    'farm animals': 'cow pig hen sheep goat horse duck donkey'.split(),
    'wild animals': 'lion tiger elephant wolf bear fox zebra giraffe'.split(),
    'pets': 'cat dog rabbit hamster parrot goldfish'.split(),
    'birds': 'robin crow owl eagle swan duck penguin parrot'.split(),
    'insects': 'bee ant fly butterfly beetle moth'.split(),
    'colours': 'red blue green yellow orange purple pink brown black white'.split(),
    'colors': 'red blue green yellow orange purple pink brown black white'.split(),
    'shapes': 'circle square triangle rectangle star hexagon'.split(),
    'flowers': 'rose tulip daisy lily sunflower violet'.split(),
    'trees': 'oak pine birch maple willow apple'.split(),
    'countries': 'France Japan Brazil Egypt Canada India Spain Kenya Italy Norway'.split(),
    'cities': 'Paris London Tokyo Rome Berlin Cairo Madrid Oslo'.split(),
    'planets': 'Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune'.split(),
    'days': 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split(),
    'months': 'January February March April May June July August'.split(),
    'drinks': 'water milk tea coffee juice lemonade'.split(),
    'clothes': 'shirt coat hat shoes socks dress trousers scarf'.split(),
    'sports': 'football tennis swimming running cycling basketball'.split(),
    'jobs': 'teacher doctor baker farmer nurse pilot cook painter'.split(),
    'toys': 'ball doll kite drum puzzle train'.split(),
    'tools': 'hammer saw drill screwdriver shovel rake'.split(),
    'body parts': 'head arm leg hand foot nose ear eye'.split(),
    'instruments': 'piano guitar drum violin flute trumpet'.split(),
    'vehicles': 'car bus train boat plane bicycle truck'.split(),
    'languages': 'English French Spanish German Italian Japanese'.split(),
    'metals': 'iron gold silver copper tin lead'.split(),
}
COUNTS = {'one': 1, 'two': 2, 'three': 3, 'four': 4, 'five': 5}
ASK_LIST = Grammar(
    "4: [list|name|tell me|give me|write|say] {n} {things}.",
    "2: [can you|could you] [list|name|tell me|give me] {n} {things}?",
    "what are {n} {things}?", "[I need|I want|I would like] {n} {things}.", "{n} {things}[| please].",
    "[make|write|give me] a list of {n} {things}.", "[which|what] {things} do you know? [name|list|tell me] {n}.",
    "[name|list] any {n} {things}.", "give [me |][the names of |]{n} {things}.", "think of {n} {things}.",
)


def joined(items):
    return items[0] if len(items) == 1 else ', '.join(items[:-1]) + ' and ' + items[-1]


def listing(speak):
    things = speak.pick(list(LISTS))
    word = speak.pick(('two', 'three', 'three', 'three', 'four', 'five'))
    count = COUNTS[word]
    start = int(speak.rand() * (len(LISTS[things]) - count + 1))
    answer = joined(LISTS[things][start:start + count])
    shown = str(count) if speak.chance(0.4) else word
    return Exchange('list', speak.ask(ASK_LIST, {'n': shown, 'things': things}), capital_first(answer) + '.',
                    {'rule': 'list', 'of': things, 'count': count})


ONE_OF = {'fruit': 'fruits', 'vegetable': 'vegetables', 'animal': 'animals', 'colour': 'colours', 'color': 'colours',
    'pet': 'pets', 'bird': 'birds', 'insect': 'insects', 'shape': 'shapes',
          'flower': 'flowers', 'tree': 'trees', 'country': 'countries', 'city': 'cities', 'planet': 'planets',
          'drink': 'drinks', 'sport': 'sports', 'job': 'jobs', 'toy': 'toys',
          'tool': 'tools', 'instrument': 'instruments', 'vehicle': 'vehicles', 'language': 'languages',
          'metal': 'metals', 'month': 'months'}
ASK_ONE = Grammar(
    "4: [name|tell me|give me|say] a(n) {thing}.", "name one {thing}.", "[can|could] you name a(n) {thing}?",
    "tell me one {thing}.", "which {thing} do you know?", "give me an example of a(n) {thing}.",
    "I need a(n) {thing}.", "think of a(n) {thing}.", "what is an example of a(n) {thing}?",
    "one {thing}[, please| please|].",
)


def one_of(speak):
    thing = speak.pick(list(ONE_OF))
    answer = speak.pick(LISTS[ONE_OF[thing]])
    return Exchange('list', speak.ask(ASK_ONE, {'thing': thing}), capital_first(answer) + '.',
    {'rule': 'list', 'of': ONE_OF[thing], 'count': 1})


ASK_COUNT = Grammar(
    "4: count [|up |from one |from 1 ]to {n}.", "2: [can you|could you] count [|from one |from 1 ]to {n}?",
    "[say|write|list|give me|tell me|name] the numbers [from one to|from 1 to|up to] {n}.",
    "[please start counting|start counting] to {n}.",
    "[let's|let us|now] count to {n}.", "what are the numbers from [one|1] to {n}?", "I want you to count to {n}.",
    "show me how you count to {n}.",
)
ASK_COUNT_DOWN = Grammar(
    "4: count [down|backwards] from {n}.", "2: [can you|could you] count [down|backwards] from {n}?",
    "count [down|backwards] from {n} to [one|1].",
    "[start|do] a countdown from {n}.", "[say|write|list] the numbers from {n} [down |]to [one|1].",
    "I want you to count [down|backwards] from {n}.",
)


ASK_COUNT_FROM = Grammar(
    "4: count from {a} to {n}.", "[can|could] you count from {a} to {n}?",
    "[say|write|list|give me] the numbers from {a} to {n}.", "[count|start counting] at {a} and [stop|end] at {n}.",
    "what are the numbers from {a} to {n}?", "all numbers [from|between] {a} [to|and] {n}[, please|].",
)


def count(speak):
    if speak.chance(0.2):
        first = 1 + int(speak.rand() * 12)
        numbers = range(first, first + 3 + int(speak.rand() * 6))
        prompt = speak.ask(ASK_COUNT_FROM, {'a': first, 'n': numbers[-1]})
        return Exchange('count', prompt, ', '.join(map(str, numbers)) + '.', {'rule': 'numbers', 'want': list(numbers)})
    top = 3 + int(speak.rand() * (18 if speak.chance(0.3) else 8))
    words = speak.chance(0.5)
    shown = in_words(top) if words else str(top)
    down = speak.chance(0.3)
    numbers = range(top, 0, -1) if down else range(1, top + 1)
    prompt = speak.ask(ASK_COUNT_DOWN if down else ASK_COUNT, {'n': shown})
    return Exchange('count', prompt, ', '.join(map(str, numbers)) + '.', {'rule': 'numbers', 'want': list(numbers)})


SPELLED = sorted({word for word in COUNTABLE if len(word) <= 5} | {'hello', 'yes', 'no', 'quern', 'red', 'blue',
    'green', 'happy', 'big'})
ASK_SPELL = Grammar(
    "3: spell {word}.", "2: spell the word {word}.", "how do you spell {word}?",
    "[can you|could you] spell [the word |]{word}?",
    "how is {word} spelled?", f"{TELL_WHAT} how [to spell|you spell] {{word}}.", "what is the spelling of {word}?",
    "what letters are in {word}?",
    "2: spell: {word}", "write {word} letter by letter.", "[what|which] letters [make|spell] the word {word}?",
)


def spell(speak):
    word = speak.pick(SPELLED)
    quoted = '"%s"' % word if speak.chance(0.15) else word
    return Exchange('spell', speak.ask(ASK_SPELL, {'word': quoted}), '-'.join(word.upper()),
                    {'rule': 'letters', 'want': word})


ADJECTIVES = '''big small old new red blue green white black happy sad quiet loud brave tired hungry little funny kind
young tall fast slow warm cold clever gentle busy lonely proud shy golden brown round strong'''.split()
BEINGS = '''cat dog fox bear bird horse cow pig hen duck frog rabbit lion tiger monkey boy girl man woman child king
queen teacher doctor farmer baker sailor mouse wolf sheep goose robot'''.split()
VERBS = '''sat ran slept walked jumped played danced sang waited rested worked stopped hid fell stood swam'''.split()
PLACES = '''house garden forest park river hill school kitchen field street village beach bridge tree window door table
barn castle lake market shop road'''.split()
PREPOSITIONS = 'near by behind beside'.split()
ON_PLACES = '''on mat,on bed,on roof,on chair,on hill,on bench,on road,under table,under tree,under bed,under bridge,
in garden,in house,in kitchen,in river,in park,in forest,in school,in box'''.replace('\n', '').split(',')
ADVERBS = '''very quickly, slowly, happily, quietly, all day long, for a long time, again and again,
early in the morning,
late in the evening, all alone, with great joy'''.replace('\n', ' ').split(', ')
PHRASES = ('hello', 'hello world', 'good morning', 'good night', 'thank you', 'I am here', 'yes', 'no', 'I like you',
           'the end', 'stop', 'go home', 'come here', 'well done', 'happy birthday', 'look at me', 'what a nice day',
           'I love you',
           'see you soon', 'have fun', 'be quiet', 'wake up', 'good job', 'the sun is shining', 'I am happy',
           'it is cold')


def _sentence(speak):
    return 'the %s %s %s %s the %s' % (speak.pick(ADJECTIVES), speak.pick(BEINGS), speak.pick(VERBS),
                                       speak.pick(PREPOSITIONS), speak.pick(PLACES))


def _some_text(speak):
    way = speak.rand()
    if way < 0.3:
        return speak.pick(PHRASES)
    if way < 0.6:
        return ' '.join(speak.pick(pool) for pool in speak.pick(((ADJECTIVES, BEINGS), (BEINGS,), (PLACES,),
        (ADJECTIVES, PLACES),
                                                                  (ADJECTIVES, ADJECTIVES, BEINGS))))
    return _sentence(speak)


ASK_REPEAT = Grammar(
    "3: repeat after me: {text}", "2: say: {text}", "3: say {text}", "repeat {text}", "say this: {text}",
    "repeat: {text}", "repeat [this|the following|these words]: {text}",
    "[please say|please repeat|can you say|can you repeat]: {text}",
    "say [this|the following|these words|after me]: {text}", "copy this[ text|]: {text}", "write: {text}",
    "write [this|the following]: {text}", "echo: {text}",
    "repeat after me, please: {text}", "[I want you to|you should|now] [say|repeat]: {text}",
    "just [say|repeat|write]: {text}",
)


def repeat(speak):
    text = _some_text(speak)
    if speak.chance(0.6):
        text = capital_first(text)
    if speak.chance(0.3):
        text += '.'
    prompt = speak.ask(ASK_REPEAT, {'text': '\0'}, plain=True).replace('\0',
    '"%s"' % text if speak.chance(0.2) else text)
    return Exchange('repeat', prompt, text, {'rule': 'same', 'want': text})


ASK_SHOUT = Grammar(
    "3: say [it |]in capital[s| letters]: {text}",
    "3: [say|write|put|print] {text} in [capitals|capital letters|upper case|all caps|uppercase].",
    "what is {text} in [capital letters|capitals|upper case]?", "{text} in capitals[.|]",
    "write [it |]in [capital letters|capitals|upper case|big letters]: {text}",
    "[in capitals|in capital letters|in upper case|upper case|capitals]: {text}",
    "[turn|change|put] this into [capitals|capital letters|upper case]: {text}",
    "make this [upper case|all capitals|all caps]: {text}",
    "[shout|shout this|capitalise|capitalize|uppercase]: {text}",
    "say this in [capitals|capital letters|upper case|all caps]: {text}",
    "write this in [capitals|capital letters|upper case|all caps]: {text}",
    "repeat in [capitals|capital letters|upper case]: {text}",
)


def shout(speak):
    text = speak.pick(PHRASES) if speak.chance(0.4) else ' '.join(
        speak.pick(pool) for pool in speak.pick(((ADJECTIVES, BEINGS), (BEINGS,), (PLACES,), (VERBS,), (ADJECTIVES,))))
    prompt = speak.ask(ASK_SHOUT, {'text': text}, plain=True)
    return Exchange('shout', prompt, text.upper(), {'rule': 'same', 'want': text.upper()})


ASK_REVERSE = Grammar(
    "3: reverse the order[| of these words]: {text}", "[reverse|turn around|swap] these words: {text}",
    "say these [words |]in reverse[| order]: {text}", "write these [words |]in reverse[| order]: {text}",
    "[in reverse order|reverse order|backwards|reverse]: {text}", "[list|put] these in reverse order: {text}",
    "say these [words |]backwards: {text}", "the other way around: {text}",
)


def reverse(speak):
    pool = speak.pick((ADJECTIVES, BEINGS, PLACES, LISTS['fruits'], LISTS['animals'], LISTS['colours'],
                       'one two three four five six seven eight nine ten'.split()))
    n = speak.pick((2, 3, 3, 3, 4))
    words = []
    while len(words) < n:
        word = speak.pick(pool)
        if word not in words:
            words.append(word)
    between = speak.pick((', ', ' ', ', '))
    prompt = speak.ask(ASK_REVERSE, {'text': between.join(words)}, plain=True)
    answer = ', '.join(words[::-1])
    return Exchange('reverse', prompt, answer, {'rule': 'words', 'want': words[::-1]})


ASK_SHORTER = Grammar(
    "4: make this shorter: {text}", "[can you|could you] make this [shorter|more brief]: {text}",
    "[shorten|please shorten|summarize|summarise|cut down]: {text}",
    "[shorten|summarize|summarise] this[ sentence| text|]: {text}",
    "say [this|it] [shorter|in fewer words|more briefly]: {text}", "make it [shorter|brief|short]: {text}",
    "write this [shorter|in fewer words|more briefly]: {text}", "make the sentence shorter: {text}",
    "[a shorter version of this|in short|in fewer words]: {text}", "use fewer words: {text}",
)


# Long ways to say that a {being} {verb} {where}, which is said by SHORT_FORM.
LONG_FORMS = Grammar(
    "4: The {one} {two} {being} {verb} {adverb} {at} the {three} {place}.",
    "2: The {one} and {two} {being} {verb} {at} the {three} {place} {adverb}.",
    "2: The {one} {being} {verb} {at} the {three} {place}.",
    "2: The very {one} {being} {verb} {at} the {two}, {three} {place}.",
    "The {being}, who was very {one}, {verb} {at} the {two} {place}.",
    "The {being}, which was {one} and {two}, {verb} {at} the {three} {place} {adverb}.",
    "I would like to tell you that the {one} {being} {verb} {at} the {place}.",
    "It was a {one} day, and the {being} {verb} {at} the {place}.",
    "The {one} {being} {verb} {at} the {place} because it was {two}.",
    "Once, a long time ago, the {one} {being} {verb} {at} the {two} {place}.",
    "Everyone knows that the {being} {verb} {at} the {one} {place} {adverb}.",
    "The {being} {verb} {adverb} {at} the {one} {place}, and it was {two}.",
    "The {one}, {two} {being} very often {verb} {at} the {place}.",
    "At the end of the day the {one} {being} {verb} {at} the {three} {place}.",
)
SHORT_FORM = 'The {being} {verb} {at} the {place}.'


def shorter(speak):
    slots = {'one': speak.pick(ADJECTIVES), 'two': speak.pick(ADJECTIVES), 'three': speak.pick(ADJECTIVES),
    'being': speak.pick(BEINGS), 'verb': speak.pick(VERBS),
             'place': speak.pick(PLACES), 'at': speak.pick(PREPOSITIONS), 'adverb': speak.pick(ADVERBS)}
    if speak.chance(0.25):
        slots['at'], slots['place'] = speak.pick(ON_PLACES).split()
    long = speak.say(LONG_FORMS, slots)
    return Exchange('shorter', speak.ask(ASK_SHORTER, {'text': long}, plain=True), SHORT_FORM.format_map(slots),
                    {'rule': 'shorter', 'of': long, 'keep': [slots['being'], slots['verb'], slots['place']]})


FINISH = {
    'the sun rises in the': 'east', 'the sky is': 'blue', 'grass is': 'green', 'snow is': 'white',
    'a dog says': 'woof', 'a cat says': 'meow',
    'birds can': 'fly', 'fish can': 'swim', 'bees make': 'honey', 'cows give': 'milk',
    'the opposite of hot is': 'cold', 'once upon a': 'time',
    'fire is': 'hot', 'ice is': 'cold', 'sugar is': 'sweet', 'lemons are': 'sour', 'we see with our': 'eyes',
    'we hear with our': 'ears', 'one, two,': 'three',
    'two plus two is': 'four', 'Monday, Tuesday,': 'Wednesday', 'a week has seven': 'days',
    'a year has twelve': 'months', 'after the night comes the': 'day',
    'the baby of a cow is a': 'calf', 'at night we can see the moon and the': 'stars', 'we write with a': 'pen',
    'we sleep in a': 'bed', 'an apple is a': 'fruit',
    'a carrot is a': 'vegetable', 'a triangle has three': 'sides', 'in winter it is': 'cold',
    'in summer it is': 'hot', 'red, yellow and': 'green',
    'the first month is': 'January', 'we cut paper with': 'scissors', 'rain falls from the': 'clouds',
    'they lived happily ever': 'after',
}
ASK_FINISH = Grammar(
    "4: finish [the|this] sentence: {text}{dots}", "complete [the|this] sentence: {text}{dots}",
    "[finish|complete|continue|fill in]: {text}{dots}", "what word [is missing|comes next]: {text}{dots}",
    "what comes next: {text}{dots}", "[can you|could you] [finish|complete] this[ sentence|]: {text}{dots}",
    "fill in the missing word: {text}{dots}", "[end|continue] this sentence: {text}{dots}",
)


def finish(speak):
    start = speak.pick(list(FINISH))
    dots = speak.pick(('...', ' ...', '', ' ___'))
    shown = capital_first(start) if speak.chance(0.6) else start
    prompt = speak.ask(ASK_FINISH, {'text': shown, 'dots': dots}, plain=True)
    return Exchange('finish', prompt, f'{capital_first(start)} {FINISH[start]}.',
    {'rule': 'says', 'want': [FINISH[start]]})


KINDS_OF_THINGS = {'animal': 'animals', 'fruit': 'fruits', 'vegetable': 'vegetables', 'colour': 'colours',
    'planet': 'planets', 'flower': 'flowers', 'drink': 'drinks',
                   'sport': 'sports', 'tool': 'tools', 'instrument': 'instruments', 'vehicle': 'vehicles',
                   'shape': 'shapes', 'metal': 'metals'}
ASK_IS_A = Grammar(
    "4: is {x} a(n) {kind}?", "is {x} a(n) {kind} or not?", "would you say that {x} is a(n) {kind}?",
    "do you think {x} is a(n) {kind}?", f"{TELL_WHAT} if {{x}} is a(n) {{kind}}.",
    "tell me whether {x} is a(n) {kind}.", "{x} is a(n) {kind}, [right|true or false|yes or no|isn't it]?",
    "can you call {x} a(n) {kind}?",
)
UNCOUNTED = {'spinach'}.union(*(LISTS[things] for things in ('drinks', 'metals', 'sports', 'colours', 'planets')))


def is_a(speak):
    kind = speak.pick(list(KINDS_OF_THINGS))
    true = speak.chance(0.5)
    other = kind if true else speak.pick([k for k in KINDS_OF_THINGS if k != kind])
    thing = speak.pick([t for t in LISTS[KINDS_OF_THINGS[kind]] if t not in ('orange', 'violet')])
    article = '' if thing in UNCOUNTED else 'a(n) '
    shown = fill(article + thing, {})
    prompt = speak.ask(ASK_IS_A, {'x': shown, 'kind': other})
    answer = fill(('Yes, ' if true else 'No, ') + shown + ' is a(n) ' + kind + '.', {})
    return Exchange('is_a', prompt, answer, {'rule': 'says', 'want': ['yes' if true else 'no'], 'family': 'yes_no'})


ASK_KIND = Grammar(
    "4: what is {x}?", "what's {x}?", "what kind of thing is {x}?", "what sort of thing is {x}?",
    f"{TELL_WHAT} what {{x}} is.", "what do you call {x}?", "what can you say about {x}?", "explain what {x} is.",
    "{x} is what[| kind of thing]?",
)


def kind_of(speak):
    kind = speak.pick([kind for kind in KINDS_OF_THINGS if kind != 'animal'])
    thing = speak.pick([t for t in LISTS[KINDS_OF_THINGS[kind]] if t not in ('orange', 'violet')])
    shown = fill(('' if thing in UNCOUNTED else 'a(n) ') + thing, {})
    return Exchange('kind', speak.ask(ASK_KIND, {'x': shown}), fill(capital_first(f'{shown} is a(n) {kind}.'), {}),
                    {'rule': 'says', 'want': [kind]})


ASK_FIRST = Grammar(
    "3: what is the {which} word of: {text}", "{which} word of: {text}",
    "[tell me|say|give me|write] the {which} word of: {text}", "[what|which] is the {which} word here: {text}",
    "[what|which] word [is|comes] {which} in: {text}",
    "[what|which] word is the {which} one: {text}", "[tell me|say|give me|write] only the {which} word: {text}",
)


def first_word(speak):
    which = speak.pick(('first', 'last'))
    text = _sentence(speak) if speak.chance(0.5) else ' '.join(
        speak.pick(pool) for pool in speak.pick(((ADJECTIVES, BEINGS), (ADJECTIVES, ADJECTIVES, BEINGS),
        (BEINGS, PLACES, ADJECTIVES))))
    word = text.split()[0 if which == 'first' else -1]
    return Exchange('first_word', speak.ask(ASK_FIRST, {'which': which, 'text': text}, plain=True), word,
    {'rule': 'words', 'want': [word]})


ASK_TIMES = Grammar(
    "3: say {word} {n} times.", "[write|repeat] {word} {n} times.",
    "[can|could] you [say|write|repeat] {word} {n} times?", "{n} times {word}[, please| please|].",
    "write the word {word} {n} times.", "say the word {word} {n} times.", "I want you to [say|write] {word} {n} times.",
)


def times(speak):
    word = speak.pick(speak.pick((BEINGS, ADJECTIVES, PLACES, ['hello', 'yes', 'no', 'please', 'hurray'])))
    count = speak.pick((2, 3))
    shown = speak.pick((str(count), in_words(count)))
    prompt = speak.ask(ASK_TIMES, {'word': word, 'n': shown})
    return Exchange('times', prompt, ', '.join([word] * count) + '.', {'rule': 'words', 'want': [word] * count})


ASK_SENTENCE = Grammar(
    "3: write a [|short ]sentence [about|with] a(n) {word}.", "write a [|short ]sentence with the word {word}.",
    "make a [|short ]sentence [about a(n)|with the word|with] {word}.",
    "[can|could] you [write|make] a sentence [about a(n)|with the word|with] {word}?",
    "use [the word |]{word} in a sentence.",
    "[tell me|give me|say] a sentence [about a(n)|with the word|with] {word}.",
    "a sentence [about a(n)|with the word|with] {word}[, please| please|].",
    "I need a sentence [about a(n)|with the word|with] {word}.", "build a sentence with {word}.",
)


def sentence(speak):
    words = [speak.pick(ADJECTIVES), speak.pick(BEINGS), speak.pick(VERBS), speak.pick(PREPOSITIONS),
    speak.pick(PLACES)]
    word = words[1] if speak.chance(0.7) else words[4]
    return Exchange('sentence', speak.ask(ASK_SENTENCE, {'word': word}), 'The %s %s %s %s the %s.' % tuple(words),
                    {'rule': 'sentence', 'word': word})
