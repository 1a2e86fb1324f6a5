"""What animals say, eat, are called when young, where they live and how many legs they have."""

from .wording import TELL_ME, TELL_WHAT, WHAT_IS, Exchange, Grammar, capital_first, fix_articles
from .words import plural_of

# name: (sound, young, home, legs, what it eats, class, can it fly or swim)
ANIMALS = {
    'cat':        ('meow', 'kitten', 'a house', 4, 'mice and fish', 'mammal'),
    'dog':        ('woof', 'puppy', 'a kennel', 4, 'meat and bones', 'mammal'),
    'cow':        ('moo', 'calf', 'a barn', 4, 'grass', 'mammal'),
    'sheep':      ('baa', 'lamb', 'a meadow', 4, 'grass', 'mammal'),
    'goat':       ('maa', 'kid', 'a farm', 4, 'grass and leaves', 'mammal'),
    'horse':      ('neigh', 'foal', 'a stable', 4, 'hay and grass', 'mammal'),
    'donkey':     ('hee-haw', 'foal', 'a stable', 4, 'hay and grass', 'mammal'),
    'pig':        ('oink', 'piglet', 'a sty', 4, 'almost anything', 'mammal'),
    'hen':        ('cluck', 'chick', 'a coop', 2, 'seeds', 'bird'),
    'chicken':    ('cluck', 'chick', 'a coop', 2, 'seeds', 'bird'),
    'rooster':    ('cock-a-doodle-doo', 'chick', 'a coop', 2, 'seeds', 'bird'),
    'duck':       ('quack', 'duckling', 'a pond', 2, 'plants and insects', 'bird'),
    'goose':      ('honk', 'gosling', 'a pond', 2, 'grass', 'bird'),
    'turkey':     ('gobble', 'chick', 'a farm', 2, 'seeds', 'bird'),
    'owl':        ('hoot', 'owlet', 'a hollow tree', 2, 'mice', 'bird'),
    'crow':       ('caw', 'chick', 'a nest', 2, 'almost anything', 'bird'),
    'swan':       ('honk', 'cygnet', 'a lake', 2, 'water plants', 'bird'),
    'eagle':      ('screech', 'eaglet', 'a nest', 2, 'fish and rabbits', 'bird'),
    'penguin':    ('honk', 'chick', 'cold places by the sea', 2, 'fish', 'bird'),
    'frog':       ('croak', 'tadpole', 'a pond', 4, 'insects', 'amphibian'),
    'mouse':      ('squeak', 'pup', 'a hole', 4, 'seeds and cheese', 'mammal'),
    'rabbit':     ('squeak', 'kit', 'a burrow', 4, 'grass and carrots', 'mammal'),
    'fox':        ('yip', 'kit', 'a den', 4, 'mice and berries', 'mammal'),
    'wolf':       ('howl', 'pup', 'a den', 4, 'meat', 'mammal'),
    'bear':       ('growl', 'cub', 'a den', 4, 'fish, berries and honey', 'mammal'),
    'lion':       ('roar', 'cub', 'the savanna', 4, 'meat', 'mammal'),
    'tiger':      ('roar', 'cub', 'the jungle', 4, 'meat', 'mammal'),
    'elephant':   ('trumpet', 'calf', 'the savanna', 4, 'leaves and grass', 'mammal'),
    'monkey':     ('chatter', 'baby', 'trees', 4, 'fruit', 'mammal'),
    'kangaroo':   ('chuckle', 'joey', 'Australia', 4, 'grass', 'mammal'),
    'snake':      ('hiss', 'hatchling', 'a hole', 0, 'mice', 'reptile'),
    'bee':        ('buzz', 'larva', 'a hive', 6, 'nectar', 'insect'),
    'ant':        (None, 'larva', 'an anthill', 6, 'almost anything', 'insect'),
    'butterfly':  (None, 'caterpillar', 'a meadow', 6, 'nectar', 'insect'),
    'fly':        ('buzz', 'maggot', 'many places', 6, 'almost anything', 'insect'),
    'beetle':     (None, 'larva', 'the forest', 6, 'leaves', 'insect'),
    'spider':     (None, 'spiderling', 'a web', 8, 'insects', 'arachnid'),
    'fish':       (None, 'fry', 'water', 0, 'water plants and insects', 'fish'),
    'shark':      (None, 'pup', 'the sea', 0, 'fish', 'fish'),
    'whale':      ('sing', 'calf', 'the sea', 0, 'krill', 'mammal'),
    'dolphin':    ('click', 'calf', 'the sea', 0, 'fish', 'mammal'),
    'bird':       ('tweet', 'chick', 'a nest', 2, 'seeds and insects', 'bird'),
    'deer':       ('bellow', 'fawn', 'the forest', 4, 'grass and leaves', 'mammal'),
    'squirrel':   ('squeak', 'kit', 'a tree', 4, 'nuts', 'mammal'),
    'hedgehog':   ('grunt', 'hoglet', 'a nest of leaves', 4, 'insects and worms', 'mammal'),
    'camel':      ('grunt', 'calf', 'the desert', 4, 'desert plants', 'mammal'),
    'zebra':      ('bark', 'foal', 'the savanna', 4, 'grass', 'mammal'),
    'giraffe':    ('hum', 'calf', 'the savanna', 4, 'leaves', 'mammal'),
    'crocodile':  ('hiss', 'hatchling', 'a river', 4, 'fish and meat', 'reptile'),
    'turtle':     ('hiss', 'hatchling', 'the sea', 4, 'water plants', 'reptile'),
    'snail':      (None, 'baby snail', 'a shell', 0, 'leaves', 'mollusc'),
    'worm':       (None, 'baby worm', 'the soil', 0, 'dead leaves', 'worm'),
    'octopus':    (None, 'larva', 'the sea', 8, 'crabs', 'mollusc'),
    'crab':       ('click', 'larva', 'the sea', 10, 'almost anything', 'crustacean'),
    'bat':        ('squeak', 'pup', 'a cave', 2, 'insects', 'mammal'),
    'panda':      ('bleat', 'cub', 'bamboo forests', 4, 'bamboo', 'mammal'),
    'koala':      ('grunt', 'joey', 'trees in Australia', 4, 'leaves', 'mammal'),
    'parrot':     ('squawk', 'chick', 'the jungle', 2, 'seeds and fruit', 'bird'),
    'pigeon':     ('coo', 'chick', 'a nest', 2, 'seeds', 'bird'),
    'seal':       ('bark', 'pup', 'the sea and the shore', 0, 'fish', 'mammal'),
}
NUMBER = {0: 'no', 2: 'two', 4: 'four', 6: 'six', 8: 'eight', 10: 'ten'}
ARMS = {'octopus'}

ASK_SOUND = Grammar(
    "3: what [sound|noise] does a(n) {x} make?",
    "2: what does [a(n)|the] {x} say?",
    "what do {xs} say?",
    "what [sound|noise] do {xs} make?",
    "what is the [sound|noise] [of a(n) {x}|that a(n) {x} makes]?",
    "how does [a(n)|the] {x} [sound|go|talk]?",
    "the {x} says [what|...]?",
    f"{TELL_WHAT} [what|which] [sound|noise] a(n) {{x}} makes.",
    f"{TELL_WHAT} what [a(n) {{x}} says|{{xs}} say].",
    "which [sound|noise] does a(n) {x} make?",
    "do you know [what|which] [sound|noise] a(n) {x} makes?",
)
ASK_YOUNG = Grammar(
    "3: what is a [baby|young] {x} called?",
    "2: what's a [baby|young] {x} called?",
    "what do you call a [baby|young] {x}?",
    "what are [baby|young] {xs} called?",
    "what is the [name|word] [for|of] a [baby|young] {x}?",
    "what do we call the young of a(n) {x}?",
    "what is the young of a(n) {x}[| called]?",
    "what is the baby of a(n) {x}[| called]?",
    "a [baby|young] {x} is called [what|a what|...]?",
    f"{TELL_WHAT} what a [baby|young] {{x}} is called.",
    f"{TELL_ME} the [name of|word for] a [baby|young] {{x}}.",
)
ASK_HOME = Grammar(
    "3: where [does a(n) {x}|do {xs}] live?",
    "[where|in what place] does the {x} live?",
    "what is the home of a(n) {x}?",
    "where is the home of [a(n) {x}|{xs}]?",
    "where can [you|I|we] find a(n) {x}?",
    "where would [you|I] [find|look for] [a(n) {x}|{xs}]?",
    f"{TELL_WHAT} where [a(n) {{x}} lives|{{xs}} live].",
    "do you know where [a(n) {x} lives|{xs} live]?",
)
ASK_LEGS = Grammar(
    "4: how many legs [does a(n) {x}|do {xs}] have?",
    "how many legs has a(n) {x}[| got]?",
    "[what number|which number] of legs does a(n) {x} have?",
    "what is the number of legs of a(n) {x}?",
    "how many legs are there on a(n) {x}?",
    f"{TELL_WHAT} how many legs [a(n) {{x}} has|{{xs}} have].",
    f"count the legs [of|on] a(n) {{x}}.",
    "do you know how many legs [a(n) {x} has|{xs} have]?",
)
ASK_FOOD = Grammar(
    "3: what [does a(n) {x}|do {xs}] eat?",
    "2: what do {xs} like to eat?",
    "what does a(n) {x} like to eat?",
    "what is the food of a(n) {x}?",
    "what kind of food [does a(n) {x}|do {xs}] eat?",
    "what do you feed a(n) {x}?",
    "what food do {xs} [eat|like]?",
    f"{TELL_WHAT} what [a(n) {{x}} eats|{{xs}} eat].",
    "do you know what [a(n) {x} eats|{xs} eat]?",
)
ASK_CLASS = Grammar(
    "3: what kind of animal is a(n) {x}?",
    "what [type|sort|class] of animal is a(n) {x}?",
    "is a(n) {x} a mammal[,| or] a bird or [something else|an insect|a fish]?",
    "what kind of animals are {xs}?",
    "what are {xs}?",
    "2: what is a(n) {x}?", "tell me about {xs}.", "tell me something about {xs}.",
    f"{TELL_WHAT} what [kind|type|sort] of animal a(n) {{x}} is.",
    f"{TELL_WHAT} what a(n) {{x}} is.",
)


def _slots(name):
    return {'x': name, 'xs': plural_of(name)}


def _one_with(speak, field):
    names = [name for name, facts in ANIMALS.items() if facts[field] is not None]
    return speak.pick(names)


# Of what several animals share, the one that is meant where the question goes the other way round.
SAYS = {'meow': 'cat', 'woof': 'dog', 'moo': 'cow', 'baa': 'sheep', 'neigh': 'horse', 'oink': 'pig', 'cluck': 'hen',
    'quack': 'duck', 'hoot': 'owl',
        'caw': 'crow', 'croak': 'frog', 'gobble': 'turkey', 'buzz': 'bee', 'roar': 'lion', 'hiss': 'snake',
        'howl': 'wolf', 'cock-a-doodle-doo': 'rooster'}
BABY_OF = {'kitten': 'cat', 'puppy': 'dog', 'calf': 'cow', 'lamb': 'sheep', 'foal': 'horse', 'piglet': 'pig',
    'chick': 'hen', 'duckling': 'duck', 'gosling': 'goose',
           'owlet': 'owl', 'cygnet': 'swan', 'eaglet': 'eagle', 'tadpole': 'frog', 'cub': 'bear', 'joey': 'kangaroo',
           'caterpillar': 'butterfly', 'fawn': 'deer', 'kid': 'goat'}
LIVES_IN = {'a kennel': 'dog', 'a barn': 'cow', 'a stable': 'horse', 'a sty': 'pig', 'a coop': 'hen',
    'a hollow tree': 'owl', 'a burrow': 'rabbit', 'a hive': 'bee',
            'an anthill': 'ant', 'a web': 'spider', 'a nest': 'bird', 'a cave': 'bat', 'the desert': 'camel',
            'a den': 'bear'}
ASK_WHO_SAYS = Grammar(
    "3: [which|what] animal [says|goes|makes the sound] {y}?", "who says {y}?", "what says {y}?",
    f"{TELL_WHAT} [which|what] animal says {{y}}.", "{y} is the sound of [which|what] animal?",
    "[which|what] animal makes {y}?",
)
SOUND_VERBS = {'barks': 'woof', 'meows': 'meow', 'moos': 'moo', 'roars': 'roar', 'quacks': 'quack', 'oinks': 'oink',
    'neighs': 'neigh', 'hoots': 'hoot',
               'croaks': 'croak', 'buzzes': 'buzz', 'hisses': 'hiss', 'howls': 'howl'}
ASK_WHO_BARKS = Grammar("3: [which|what] animal {y}?", "who {y}?", "what {y}?",
    f"{TELL_WHAT} [which|what] animal {{y}}.", "[name|tell me] an animal that {y}.", "what is the animal that {y}?",
    "[which|what] kind of animal {y}?")
ASK_WHOSE_BABY = Grammar(
    "4: what is a(n) {y}?", "a(n) {y} is the [baby|young] of [which|what] animal?",
    "[which|what] animal's baby is called a(n) {y}?", "what does a(n) {y} [become|grow into|grow up to be]?",
    f"{TELL_WHAT} what a(n) {{y}} is.", "what are {y}s?", "whose baby is a(n) {y}?",
)
ASK_WHO_LIVES = Grammar(
    "3: [which|what] animal lives in {y}?", "who lives in {y}?", "what lives in {y}?",
    f"{TELL_WHAT} [which|what] animal lives in {{y}}.", "{y} is the home of [which|what] animal?",
    "[which|what] animals live in {y}?", "whose home is {y}?",
)


def other_way(speak):
    """Which animal says this, is grown from this, or lives in this."""
    way = speak.rand()
    if way < 0.33:
        said = speak.pick(list(SAYS))
        prompt = speak.ask(ASK_WHO_SAYS, {'y': said})
        if speak.chance(0.3):
            verb = speak.pick(list(SOUND_VERBS))
            said = SOUND_VERBS[verb]
            prompt = speak.ask(ASK_WHO_BARKS, {'y': verb})
        return Exchange('who_says', prompt, f'A {SAYS[said]} goes "{said}".'.replace('A owl', 'An owl'),
                        {'rule': 'says', 'want': [name for name, facts in ANIMALS.items() if facts[0] == said]})
    if way < 0.66:
        baby = speak.pick(list(BABY_OF))
        return Exchange('whose_baby', speak.ask(ASK_WHOSE_BABY, {'y': baby}),
        fix_articles(f'A(n) {baby} is a baby {BABY_OF[baby]}.'),
                        {'rule': 'says', 'want': [name for name, facts in ANIMALS.items() if facts[1] == baby]})
    home = speak.pick(list(LIVES_IN))
    return Exchange('who_lives', speak.ask(ASK_WHO_LIVES, {'y': home}),
    fix_articles(f'A(n) {LIVES_IN[home]} lives in {home}.'),
                    {'rule': 'says', 'want': [name for name, facts in ANIMALS.items() if facts[2] == home]})


def sound(speak):
    name = _one_with(speak, 0)
    said = ANIMALS[name][0]
    return Exchange('sound', speak.ask(ASK_SOUND, _slots(name)), fix_articles(f'A(n) {name} goes "{said}".'),
                    {'rule': 'says', 'want': [said], 'family': 'sounds'})


def young(speak):
    name = _one_with(speak, 1)
    baby = ANIMALS[name][1]
    return Exchange('young', speak.ask(ASK_YOUNG, _slots(name)), fix_articles(f'A baby {name} is called a(n) {baby}.'),
                    {'rule': 'says', 'want': [baby], 'family': 'young'})


def home(speak):
    name = speak.pick(list(ANIMALS))
    where = ANIMALS[name][2]
    preposition = 'on' if where == 'a farm' else 'in'
    return Exchange('home', speak.ask(ASK_HOME, _slots(name)),
    fix_articles(f'A(n) {name} lives {preposition} {where}.'),
                    {'rule': 'says', 'want': [where.removeprefix('a ').removeprefix('an ').removeprefix('the ')],
                     'family': 'homes'})


def legs(speak):
    name = speak.pick(list(ANIMALS))
    count = ANIMALS[name][3]
    limbs = 'arms' if name in ARMS else 'legs'
    return Exchange('legs', speak.ask(ASK_LEGS, _slots(name)),
    fix_articles(f'A(n) {name} has {NUMBER[count]} {limbs}.'),
                    {'rule': 'says', 'want': [NUMBER[count], str(count)], 'family': 'numbers'})


def food(speak):
    name = speak.pick(list(ANIMALS))
    eaten = ANIMALS[name][4]
    return Exchange('food', speak.ask(ASK_FOOD, _slots(name)), fix_articles(f'A(n) {name} eats {eaten}.'),
                    {'rule': 'says', 'want': [eaten]})


def animal_class(speak):
    name = speak.pick([name for name, facts in ANIMALS.items() if facts[5] != name])
    kind = ANIMALS[name][5]
    return Exchange('class', speak.ask(ASK_CLASS, _slots(name)), fix_articles(f'A(n) {name} is a(n) {kind}.'),
                    {'rule': 'says', 'want': [kind], 'family': 'classes'})


ABILITIES = {
    'fly': ('bird bee butterfly bat eagle owl duck crow goose parrot pigeon swan'.split(),
            'dog cat pig horse fish elephant frog snail penguin lion fox whale'.split()),
    'swim': ('fish duck whale dolphin shark frog seal swan turtle penguin crocodile octopus'.split(),
    'hen bee ant butterfly spider snail'.split()),
    'climb trees': ('cat squirrel monkey koala bear'.split(), 'fish whale cow duck pig horse snake'.split()[:6]),
    'talk': (['parrot'], 'cat dog fish cow fox'.split()),
}
ASK_ABILITY = Grammar(
    "4: can [a(n) {x}|{xs}] {do}?", "is a(n) {x} able to {do}?", "are {xs} able to {do}?", "do {xs} {do}?",
    f"{TELL_WHAT} if [a(n) {{x}}|{{xs}}] can {{do}}.", "is it true that {xs} can {do}?",
    "{xs} can {do}, [right|true or false|can't they]?",
)


def ability(speak):
    do = speak.pick(('fly', 'fly', 'swim', 'swim', 'climb trees', 'talk'))
    can = speak.chance(0.5)
    name = speak.pick(ABILITIES[do][0 if can else 1])
    slots = dict(_slots(name), do=do)
    return Exchange('ability', speak.ask(ASK_ABILITY, slots),
    fix_articles(f'{"Yes" if can else "No"}, a(n) {name} can{"" if can else "not"} {do}.'),
                    {'rule': 'says', 'want': ['yes' if can else 'no'], 'family': 'yes_no'})
