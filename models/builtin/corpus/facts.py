"""Facts that do not belong to a larger family: capitals, colours, times, shapes, the body, things and their uses."""

from .wording import WHAT_IS, TELL_ME, TELL_WHAT, Exchange, Grammar, capital_first, fill

CAPITALS = {
    'France': 'Paris', 'Germany': 'Berlin', 'Italy': 'Rome', 'Spain': 'Madrid', 'Portugal': 'Lisbon',
    'England': 'London', 'the United Kingdom': 'London', 'Scotland': 'Edinburgh', 'Wales': 'Cardiff',
    'Ireland': 'Dublin', 'Norway': 'Oslo',
    'Sweden': 'Stockholm', 'Denmark': 'Copenhagen', 'Finland': 'Helsinki', 'Iceland': 'Reykjavik',
    'the Netherlands': 'Amsterdam', 'Belgium': 'Brussels', 'Luxembourg': 'Luxembourg', 'Switzerland': 'Bern',
    'Austria': 'Vienna', 'Poland': 'Warsaw', 'Hungary': 'Budapest', 'Greece': 'Athens', 'Romania': 'Bucharest',
    'Bulgaria': 'Sofia', 'Croatia': 'Zagreb', 'Serbia': 'Belgrade', 'Ukraine': 'Kyiv', 'Russia': 'Moscow',
    'Turkey': 'Ankara', 'Estonia': 'Tallinn', 'Latvia': 'Riga', 'Lithuania': 'Vilnius', 'Slovakia': 'Bratislava',
    'Slovenia': 'Ljubljana', 'Malta': 'Valletta',
    'the Czech Republic': 'Prague', 'Egypt': 'Cairo', 'Morocco': 'Rabat', 'Kenya': 'Nairobi', 'Nigeria': 'Abuja',
    'Ghana': 'Accra', 'Ethiopia': 'Addis Ababa', 'Senegal': 'Dakar', 'Tunisia': 'Tunis', 'Algeria': 'Algiers',
    'China': 'Beijing', 'Japan': 'Tokyo',
    'South Korea': 'Seoul', 'India': 'New Delhi', 'Pakistan': 'Islamabad', 'Nepal': 'Kathmandu',
    'Thailand': 'Bangkok', 'Vietnam': 'Hanoi', 'Indonesia': 'Jakarta', 'the Philippines': 'Manila',
    'Bangladesh': 'Dhaka', 'Mongolia': 'Ulaanbaatar', 'Israel': 'Jerusalem', 'Iraq': 'Baghdad', 'Iran': 'Tehran',
    'Saudi Arabia': 'Riyadh', 'Lebanon': 'Beirut', 'Jordan': 'Amman', 'Australia': 'Canberra',
    'New Zealand': 'Wellington', 'the United States': 'Washington', 'the USA': 'Washington', 'America': 'Washington',
    'Canada': 'Ottawa', 'Mexico': 'Mexico City',
    'Cuba': 'Havana', 'Jamaica': 'Kingston', 'Brazil': 'Brasilia', 'Argentina': 'Buenos Aires', 'Chile': 'Santiago',
    'Peru': 'Lima', 'Colombia': 'Bogota', 'Uruguay': 'Montevideo', 'Venezuela': 'Caracas', 'Ecuador': 'Quito',
}
COUNTRY_OF = {city: country for country, city in reversed(list(CAPITALS.items()))}

ASK_CAPITAL = Grammar(
    f"4: {WHAT_IS} the capital [|city ]of {{country}}?",
    "2: {bare}'s capital [|city ][is what|is called what|is which city]?",
    "2: what is {bare}'s capital[| city]?",
    "2: what's {bare}'s capital[| city]?",
    "[which|what] city is the capital[| city] of {country}?",
    "[which|what] is the capital[| city] of {country}?",
    "[which|what] city is {bare}'s capital?",
    "what is the name of the capital[| city] of {country}?",
    "the capital[| city] of {country}[|, what is it| is what| is which city| is]?",
    "3: [capital of|capital city of] {country}?",
    "[what|which] capital does {country} have?",
    f"2: {TELL_ME} the capital[| city] of {{country}}.",
    f"{TELL_ME} the name of the capital[| city] of {{country}}.",
    f"{TELL_WHAT} [what|which city] the capital[| city] of {{country}} is.",
    "do you know [what|which city] the capital[| city] of {country} is?",
    "can you [say|tell me] [what|which city] the capital[| city] of {country} is?",
    "[what is|what's] the capital called in {country}?",
)
ASK_COUNTRY = Grammar(
    "[which|what] country is {city} the capital[| city] of?",
    "{city} is the capital[| city] of [which|what] country?",
    "of [which|what] country is {city} the capital[| city]?",
    "{city} is the capital of [what|which country|which land]?",
    "[what|which] country has {city} as its capital[| city]?",
    f"{TELL_WHAT} [which|what] country has {{city}} as its capital[| city].",
    f"{TELL_ME} the country whose capital[| city] is {{city}}.",
    "[which|what] country has the capital[| city] {city}?",
    "[what|which] country's capital[| city] is {city}?",
)


def capital(speak):
    country = speak.pick(list(CAPITALS))
    city = CAPITALS[country]
    bare = country.removeprefix('the ')
    if speak.chance(0.25):
        country = COUNTRY_OF[city]
        prompt = speak.ask(ASK_COUNTRY, {'city': city})
        return Exchange('country', prompt, f'{city} is the capital of {country}.',
                        {'rule': 'says', 'want': [country.removeprefix('the ')], 'family': 'countries'})
    shown = bare if speak.chance(0.15) else country
    prompt = speak.ask(ASK_CAPITAL, {'country': shown, 'bare': bare})
    return Exchange('capital', prompt, f'The capital of {country} is {city}.',
                    {'rule': 'says', 'want': [city], 'family': 'cities'})


# thing: colour; "is" or "are" follows from the last letter of the article-less ones listed in PLURAL_THINGS.
COLOURS = {
    'a banana': 'yellow', 'a lemon': 'yellow', 'the sun': 'yellow', 'butter': 'yellow', 'corn': 'yellow',
    'a sunflower': 'yellow', 'cheese': 'yellow', 'a canary': 'yellow', 'honey': 'golden', 'gold': 'golden',
    'grass': 'green', 'a leaf': 'green', 'a frog': 'green', 'a cucumber': 'green', 'broccoli': 'green',
    'spinach': 'green', 'a lime': 'green', 'a crocodile': 'green', 'a pea': 'green', 'a cactus': 'green',
    'an avocado': 'green', 'lettuce': 'green', 'an emerald': 'green', 'moss': 'green',
    'the sky': 'blue', 'the sea': 'blue', 'the ocean': 'blue', 'a blueberry': 'blue', 'a sapphire': 'blue',
    'water': 'clear',
    'snow': 'white', 'milk': 'white', 'salt': 'white', 'sugar': 'white', 'a swan': 'white', 'a polar bear': 'white',
    'rice': 'white', 'flour': 'white', 'a snowman': 'white', 'a sheep': 'white', 'a cloud': 'white', 'paper': 'white',
    'coal': 'black', 'a crow': 'black', 'a raven': 'black', 'the night': 'black', 'a tire': 'black', 'ink': 'black',
    'a tomato': 'red', 'a strawberry': 'red', 'a cherry': 'red', 'blood': 'red', 'a fire truck': 'red', 'a ruby': 'red',
    'a rose': 'red', 'a ladybug': 'red', 'ketchup': 'red', 'a stop sign': 'red', 'an apple': 'red',
    'a raspberry': 'red',
    'a carrot': 'orange', 'an orange': 'orange', 'a pumpkin': 'orange', 'a fox': 'orange',
    'a tiger': 'orange and black',
    'a zebra': 'black and white', 'a panda': 'black and white', 'a penguin': 'black and white',
    'a plum': 'purple', 'an eggplant': 'purple', 'a grape': 'purple', 'lavender': 'purple', 'a violet': 'purple',
    'a pig': 'pink', 'a flamingo': 'pink', 'a piglet': 'pink', 'a bear': 'brown', 'chocolate': 'brown', 'wood': 'brown',
    'a potato': 'brown', 'mud': 'brown', 'coffee': 'brown', 'a chestnut': 'brown', 'soil': 'brown', 'bread': 'brown',
    'an elephant': 'grey', 'a mouse': 'grey', 'a rock': 'grey', 'a rain cloud': 'grey', 'a dolphin': 'grey',
    'a wolf': 'grey', 'a bee': 'yellow and black', 'smoke': 'grey', 'a shark': 'grey',
}
C = '[colour|color]'
ASK_COLOUR = Grammar(
    f"4: what {C} is {{x}}?", f"2: what's the {C} of {{x}}?", f"2: what is the {C} of {{x}}?",
    f"which {C} is {{x}}?", f"which {C} does {{x}} have?", f"what {C} does {{x}} have?", f"{{x}} is what {C}?",
    f"{TELL_ME} the {C} of {{x}}.", f"{TELL_WHAT} [what|which] {C} {{x}} is.",
    f"do you know [what|which] {C} {{x}} is?", f"2: {C} of {{x}}?", f"of what {C} is {{x}}?",
    f"what would you say is the {C} of {{x}}?",
)


def colour(speak):
    thing = speak.pick(list(COLOURS))
    answer = COLOURS[thing]
    return Exchange('colour', speak.ask(ASK_COLOUR, {'x': thing}), capital_first(f'{thing} is {answer}.'),
                    {'rule': 'says', 'want': [answer], 'family': 'colours'})


MIXED = {('red', 'blue'): 'purple', ('red', 'yellow'): 'orange', ('blue', 'yellow'): 'green', ('red', 'white'): 'pink',
         ('black', 'white'): 'grey', ('red', 'green'): 'brown', ('blue', 'white'): 'light blue'}
ASK_MIX = Grammar(
    f"2: what {C} do you get [if|when] you mix {{a}} and {{b}}?",
    f"what {C} [do|does] {{a}} and {{b}} make[| together]?", "what do {a} and {b} make?", "{a} and {b} make what?",
    f"which {C} [do|does] {{a}} and {{b}} make?", "what is {a} mixed with {b}?", "mix {a} and {b}.",
    "[mixing|if I mix] {a} and {b}[ gives| makes|, what do I get| what do I get]?",
    f"{TELL_WHAT} what {C} {{a}} and {{b}} make.", f"{TELL_WHAT} what you get from {{a}} and {{b}}.",
)


def mix(speak):
    pair = speak.pick(list(MIXED))
    a, b = pair if speak.chance(0.5) else pair[::-1]
    return Exchange('mix', speak.ask(ASK_MIX, {'a': a, 'b': b}), f'{capital_first(a)} and {b} make {MIXED[pair]}.',
                    {'rule': 'says', 'want': [MIXED[pair]]})


DAYS = 'Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split()
MONTHS = 'January February March April May June July August September October November December'.split()
SEASONS = 'spring summer autumn winter'.split()
ORDINALS = 'first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth'.split()
ASK_AFTER = Grammar(
    "3: [what|which] {unit} [comes|is] [after|right after] {x}?", "what comes after {x}?",
    "what is the {unit} after {x}?", "what is the next {unit} after {x}?", "which {unit} follows {x}?",
    "after {x} comes [what|which {unit}|...]?", f"{TELL_ME} the {{unit}} [after|that comes after|that follows] {{x}}.",
    "[do you know|can you tell me] [what|which] {unit} comes after {x}?", "what follows {x}?",
)
ASK_BEFORE = Grammar(
    "3: [what|which] {unit} [comes|is] [before|right before] {x}?", "what comes before {x}?",
    "what is the {unit} before {x}?", "before {x} comes [what|which {unit}|...]?",
    f"{TELL_ME} the {{unit}} [before|that comes before] {{x}}.",
    "[do you know|can you tell me] [what|which] {unit} comes before {x}?",
)
ASK_PLACE = Grammar(
    "3: what is the {nth} {unit} of the {whole}?", "[which|what] {unit} is the {nth}[ of the {whole}|]?",
    "[which|what] is the {nth} {unit}[ of the {whole}|]?", "what is the name of the {nth} {unit}[ of the {whole}|]?",
    f"{TELL_ME} the {{nth}} {{unit}} of the {{whole}}.", "{nth} {unit} of the {whole}?",
)


def calendar(speak):
    unit, names, whole = speak.pick((('day', DAYS, 'week'), ('month', MONTHS, 'year'), ('month', MONTHS, 'year'),
                                     ('season', SEASONS, None)))
    at = int(speak.rand() * len(names))
    name, way = names[at], speak.rand()
    if way < 0.4:
        answer = names[(at + 1) % len(names)]
        prompt, text = speak.ask(ASK_AFTER, {'unit': unit, 'x': name}), f'{answer} comes after {name}.'
    elif way < 0.7 or not whole:
        answer = names[at - 1]
        prompt, text = speak.ask(ASK_BEFORE, {'unit': unit, 'x': name}), f'{answer} comes before {name}.'
    else:
        answer, nth = name, ORDINALS[at]
        if at == len(names) - 1 and speak.chance(0.5):
            nth = 'last'
        prompt = speak.ask(ASK_PLACE, {'nth': nth, 'unit': unit, 'whole': whole})
        text = f'The {nth} {unit} of the {whole} is {answer}.'
    return Exchange('calendar', prompt, capital_first(text),
                    {'rule': 'says', 'want': [answer], 'family': 'calendar', 'given': name if answer != name else ''})


# thing: what it is for, after "to"
USES = {
    'a knife': 'cut things', 'scissors': 'cut paper', 'a spoon': 'eat soup', 'a fork': 'eat food', 'a cup': 'drink',
    'a pen': 'write', 'a pencil': 'write and draw', 'a brush': 'paint', 'a key': 'open a lock',
    'an umbrella': 'stay dry in the rain',
    'a broom': 'sweep the floor', 'a hammer': 'hit nails', 'a saw': 'cut wood', 'a needle': 'sew',
    'a clock': 'tell the time',
    'a lamp': 'give light', 'a bed': 'sleep', 'a chair': 'sit', 'a shovel': 'dig', 'a ladder': 'climb up',
    'soap': 'wash',
    'a towel': 'dry things', 'a toothbrush': 'clean teeth', 'a comb': 'tidy hair',
    'a telephone': 'talk to people far away',
    'a camera': 'take pictures', 'a ruler': 'measure length', 'a scale': 'measure weight',
    'a thermometer': 'measure temperature',
    'a map': 'find the way', 'a compass': 'find north', 'a bucket': 'carry water', 'a basket': 'carry things',
    'a rope': 'tie things', 'an oven': 'bake', 'a pot': 'cook', 'a fridge': 'keep food cold',
    'a telescope': 'look at the stars',
    'a microscope': 'look at tiny things', 'a bridge': 'cross a river', 'a boat': 'travel on water',
    'a car': 'travel on roads',
    'a plane': 'travel through the air', 'a train': 'travel on rails', 'a book': 'read', 'a mirror': 'see yourself',
    'glue': 'stick things together',
    'an eraser': 'remove pencil marks', 'a bell': 'make a sound', 'a candle': 'give light', 'a net': 'catch fish',
    'a kettle': 'boil water', 'a pillow': 'rest the head', 'a blanket': 'keep warm', 'a coat': 'keep warm',
    'a calculator': 'do sums',
    'a computer': 'work with information', 'a wheel': 'make things roll', 'a tent': 'sleep outdoors',
    'a watch': 'tell the time',
}
ASK_USE = Grammar(
    "3: what is {x} [used for|for|good for]?", "what do [you|we|people] use {x} for?", "what do you do with {x}?",
    "what can [you|I|we] do with {x}?", "why do [people|we] [use|need] {x}?", "what is the use of {x}?",
    "what is the purpose of {x}?", f"{TELL_WHAT} what {{x}} is [used for|for|good for].", "how do [we|people] use {x}?",
    "what does one do with {x}?",
)


def use(speak):
    thing = speak.pick(list(USES))
    return Exchange('use', speak.ask(ASK_USE, {'x': thing}), f'We use {thing} to {USES[thing]}.',
                    {'rule': 'says', 'want': [USES[thing]]})


# Questions of which each has its own wordings and its own answer; what must be in the answer stands first.
SINGLE = [
    ('seven', "how many days are [there |]in a week?", "how many days does a week have?",
        "number of days in [a|one|the] week?",
     f"{TELL_WHAT} how many days a week has.", "a week has how many days?", "=There are seven days in a week."),
    ('twelve', "how many months are [there |]in a year?", "how many months does a year have?",
        "number of months in [a|one|the] year?",
     f"{TELL_WHAT} how many months a year has.", "a year has how many months?", "=There are twelve months in a year."),
    ('four', "how many seasons are there[| in a year]?", "how many seasons does a year have?",
        f"{TELL_WHAT} how many seasons there are.",
     "how many seasons are in a year?", "=There are four seasons in a year."),
    ('365', "how many days are [there |]in a year?", "how many days does a year have?",
        "number of days in [a|one|the] year?",
     f"{TELL_WHAT} how many days a year has.", "=There are 365 days in a year."),
    ('24', "how many hours are [there |]in a day?", "how many hours does a day have?",
        "number of hours in [a|one|the] day?",
     f"{TELL_WHAT} how many hours a day has.", "=There are 24 hours in a day."),
    ('60', "how many minutes are [there |]in an hour?", "how many minutes does an hour have?",
        "number of minutes in [an|one] hour?",
     f"{TELL_WHAT} how many minutes an hour has.", "=There are 60 minutes in an hour."),
    ('60', "how many seconds are [there |]in a minute?", "how many seconds does a minute have?",
        "number of seconds in [a|one] minute?",
     f"{TELL_WHAT} how many seconds a minute has.", "=There are 60 seconds in a minute."),
    ('yellow', "what are the colors of a traffic light?", "=A traffic light is red, yellow and green.",
     "which colors does a traffic light have?", "what colours are on a traffic light?",
     "what colours does a traffic light have?", f"{TELL_ME} the colours of a traffic light."),
    ('seven', "how many colo[u|]rs are in [a|the] rainbow?", "how many colo[u|]rs does [a|the] rainbow have?",
        "number of colors in a rainbow?",
     f"{TELL_WHAT} how many colors [a|the] rainbow has.", "how many colors are there in a rainbow?",
     "=A rainbow has seven colours."),
    ('red', "what are the colo[u|]rs of [the|a] rainbow?", "what colo[u|]rs are in [the|a] rainbow?",
        f"{TELL_ME} the colo[u|]rs of the rainbow.",
     "which colo[u|]rs does [the|a] rainbow have?", "list the colo[u|]rs of [the|a] rainbow.",
     "=The colours of the rainbow are red, orange, yellow, green, blue, indigo and violet."),
    ('Monday', "what are the days of the week?", "[name|list|tell me|say] [all |]the days of the week.",
        "can you [name|list|say] the days of the week?",
     "which days are there in a week?", "what days does a week have?", f"{TELL_ME} the seven days of the week.",
     "=The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
    ('November', "what are the months of the year?", "[name|list|tell me|say] [all |]the months of the year.",
        "can you [name|list|say] the months of the year?",
     "which months are there in a year?", "what months does a year have?", f"{TELL_ME} the twelve months of the year.",
     "=The months of the year are January, February, March, April, May, June, July, August, September, October, "
     "November and December."),
    ('autumn', "what are the [four |]seasons[ of the year|]?", "[name|list|tell me|say] [all |]the [four |]seasons.",
        "can you [name|list] the seasons?",
     "which seasons are there[| in a year]?", "=The four seasons are spring, summer, autumn and winter."),
    ('winter', "[what|which] season is [the coldest|coldest]?", "[what|which] is the coldest season?",
        "when does it snow?", "in which season does it snow?",
     f"{TELL_ME} the coldest season.", "what is the coldest time of the year?", "=The coldest season is winter."),
    ('summer', "[what|which] season is [the hottest|hottest|the warmest]?",
        "[what|which] is the [hottest|warmest] season?",
     f"{TELL_ME} the hottest season.", "what is the [hottest|warmest] time of the year?", "when is it hot?",
     "=The hottest season is summer."),
    ('east', "where does the sun rise?", "where does the sun come up?",
        "in [which|what] direction does the sun rise?", f"{TELL_WHAT} where the sun rises.",
     "on which side does the sun rise?", "=The sun rises in the east."),
    ('west', "where does the sun set?", "where does the sun go down?", "in [which|what] direction does the sun set?",
        f"{TELL_WHAT} where the sun sets.",
     "on which side does the sun set?", "=The sun sets in the west."),
    ('star', "what is the sun?", "is the sun a [star|planet]?", f"{TELL_WHAT} what the sun is.",
        "what kind of thing is the sun?", "do you know what the sun is?",
     "=The sun is a star. It gives us light and warmth."),
    ('moon', "what goes around the earth?", "what is in the sky at night and [shines|is round]?",
        "what circles the earth?", "what does the earth have that goes around it?",
     f"{TELL_WHAT} what goes around the earth.", "=The moon goes around the earth."),
    ('sun', "what does the earth go around?", "what does the earth [circle|move around|travel around]?",
        "around what does the earth move?", f"{TELL_WHAT} what the earth goes around.",
     "=The earth goes around the sun."),
    ('eight', "how many planets are there?", "how many planets does the [sun|solar system] have?",
        "how many planets are in [our|the] solar system?", f"{TELL_WHAT} how many planets there are.",
     "number of planets?", "=There are eight planets around the sun."),
    ('Jupiter', "[what|which] is the [biggest|largest] planet?", "[what|which] planet is the [biggest|largest]?",
        f"{TELL_ME} the [biggest|largest] planet.", "name the biggest planet.",
     "=The biggest planet is Jupiter."),
    ('Mercury', "[what|which] planet is [closest|nearest] to the sun?",
        "[what|which] is the planet [closest|nearest] to the sun?", f"{TELL_ME} the planet closest to the sun.",
     "=Mercury is the planet closest to the sun."),
    ('Mars', "[what|which] planet is [red|called the red planet|the red planet]?", "what is the red planet?",
        "what is the red planet called?", f"{TELL_WHAT} which planet is red.",
     "=Mars is called the red planet."),
    ('ice', "what is frozen water[| called]?",
        "what does water [become|turn into|turn to] when it [freezes|is very cold]?",
        "what do you get when water freezes?", "what is water that is frozen?",
     f"{TELL_WHAT} what frozen water is called.", "what happens to water when it freezes?",
     "=Frozen water is called ice."),
    ('steam', "what does water [become|turn into] when it boils?", "what is boiling water turning into?",
        "what do you get when water boils?", "what comes out of boiling water?",
     f"{TELL_WHAT} what water turns into when it boils.", "what happens [to water when it boils|when water boils]?",
     "=When water boils, it turns into steam."),
    ('100', "at [what|which] temperature does water boil?", "when does water boil?",
        "what is the boiling point of water?", "how hot is boiling water?",
        f"{TELL_WHAT} at what temperature water boils.",
     "boiling point of water?", "=Water boils at 100 degrees Celsius."),
    ('0', "at [what|which] temperature does water freeze?", "when does water freeze?",
        "what is the freezing point of water?", "how cold is freezing water?",
        f"{TELL_WHAT} at what temperature water freezes.",
     "freezing point of water?", "=Water freezes at 0 degrees Celsius."),
    ('clouds', "where does rain come from?", "what does rain [come|fall] from?", "from where does rain [come|fall]?",
        f"{TELL_WHAT} where rain comes from.", "why does it rain?", "how does rain form?",
     "=Rain falls from clouds. Clouds are made of tiny drops of water."),
    ('drops', "what are clouds made of?", "what is a cloud made of?", "what is a cloud?", "what are clouds?",
        f"{TELL_WHAT} what clouds are made of.", "=Clouds are made of tiny drops of water."),
    ('light', "why is the sky blue?", "what makes the sky blue?", "how come the sky is blue?",
        f"{TELL_WHAT} why the sky is blue.", "why does the sky look blue?", "do you know why the sky is blue?",
     "=The sky is blue because the air scatters blue light the most."),
    ('light', "what do plants need[| to grow]?", "what does a plant need[| to grow|to live]?", "how do plants grow?",
        "what makes plants grow?", f"{TELL_WHAT} what plants need.", "=Plants need light, water and air to grow."),
    ('bees', "who makes honey?", "what makes honey?", "which animal makes honey?", "where does honey come from?",
        f"{TELL_WHAT} who makes honey.", "what animals make honey?", "=Bees make honey."),
    ('cows', "where does milk come from?", "who gives us milk?", "which animal gives us milk?",
        "what animal gives milk?", f"{TELL_WHAT} where milk comes from.", "=Milk comes from cows."),
    ('hens', "who lays eggs?", "which animal lays eggs?", "where do eggs come from?", "what animal gives us eggs?",
        f"{TELL_WHAT} where eggs come from.", "=Eggs come from hens."),
    ('sheep', "where does wool come from?", "which animal gives us wool?", "who gives us wool?",
        "what animal does wool come from?", f"{TELL_WHAT} where wool comes from.", "=Wool comes from sheep."),
    ('flour', "what is bread made of?", "what is bread made from?", "what do you need to [make|bake] bread?",
        "how is bread made?", f"{TELL_WHAT} what bread is made of.", "=Bread is made of flour, water and yeast."),
    ('trees', "where does wood come from?", "what is wood from?", "what does wood come from?",
        "where do we get wood?", f"{TELL_WHAT} where wood comes from.", "=Wood comes from trees."),
    ('wood', "what is paper made of?", "what is paper made from?", "what do we make paper from?",
        "how is paper made?", f"{TELL_WHAT} what paper is made of.", "=Paper is made of wood."),
    ('sand', "what is glass made of?", "what is glass made from?", "what do we make glass from?",
        "how is glass made?", f"{TELL_WHAT} what glass is made of.", "=Glass is made of sand."),
    ('see', "what do [we|you|people] [use|have] eyes for?", "what are eyes for?", "what do eyes do?",
        "what can you do with your eyes?", f"{TELL_WHAT} what eyes are for.", "why do [we|people] have eyes?",
        "=We see with our eyes."),
    ('hear', "what do [we|you|people] [use|have] ears for?", "what are ears for?", "what do ears do?",
        "what can you do with your ears?", f"{TELL_WHAT} what ears are for.", "why do [we|people] have ears?",
        "=We hear with our ears."),
    ('smell', "what do [we|you|people] [use|have] a nose for?", "what is the nose for?", "what does the nose do?",
        "what can you do with your nose?", f"{TELL_WHAT} what the nose is for.", "why do [we|people] have a nose?",
        "=We smell with our nose."),
    ('taste', "what do [we|you|people] [use|have] a tongue for?", "what is the tongue for?",
        "what does the tongue do?", "what can you do with your tongue?", f"{TELL_WHAT} what the tongue is for.",
        "why do [we|people] have a tongue?", "=We taste with our tongue."),
    ('chew', "what do [we|you|people] [use|have] teeth for?", "what are teeth for?", "what do teeth do?",
        "what can you do with your teeth?", f"{TELL_WHAT} what teeth are for.", "why do [we|people] have teeth?",
        "=We chew with our teeth."),
    ('blood', "what does the heart do?", "what is the heart for?", "what do [we|people] have a heart for?",
        "why do [we|people] have a heart?", f"{TELL_WHAT} what the heart does.",
        "=The heart pumps blood through the body."),
    ('think', "what does the brain do?", "what is the brain for?", "what do [we|people] have a brain for?",
        "why do [we|people] have a brain?", f"{TELL_WHAT} what the brain does.", "=We think with our brain."),
    ('breathe', "what do lungs do?", "what are lungs for?", "what do [we|people] have lungs for?",
        "why do [we|people] have lungs?", f"{TELL_WHAT} what lungs do.", "=We breathe with our lungs."),
    ('walk', "what do [we|you|people] [use|have] legs for?", "what are legs for?", "what do legs do?",
        "what can you do with your legs?", f"{TELL_WHAT} what legs are for.", "why do [we|people] have legs?",
        "=We walk with our legs."),
    ('five', "how many fingers are on [a|one] hand?", "how many fingers does [a|one] hand have?",
        "how many fingers do you have on one hand?", "number of fingers on [a|one] hand?",
        f"{TELL_WHAT} how many fingers a hand has.", "=A hand has five fingers."),
    ('ten', "how many fingers [do people|does a person|do we|do you|do humans] have?",
        "how many toes [do people|does a person|do we|do you|do humans] have?",
        f"{TELL_WHAT} how many fingers [people|we] have.",
     "=People have ten fingers and ten toes."),
    ('two', "how many eyes [do people|does a person|do we|do you|do humans] have?",
        "how many ears [do people|does a person|do we|do you|do humans] have?",
        f"{TELL_WHAT} how many [eyes|ears] [people|we] have.",
     "how many hands [do people|does a person|do we|do you|do humans] have?",
     "=People have two eyes, two ears and two hands."),
    ('three', "how many sides does a triangle have?", "how many sides has a triangle?",
        "how many corners does a triangle have?", "how many corners has a triangle?",
        "number of sides of a triangle?", f"{TELL_WHAT} how many sides a triangle has.",
        "a shape with three sides is called [what|...]?", "[what|which] shape has three sides?",
        "=A triangle has three sides."),
    ('four', "how many sides does a square have?", "how many sides has a square?",
        "how many corners does a square have?", "how many corners has a square?", "number of sides of a square?",
        f"{TELL_WHAT} how many sides a square has.", "[what|which] shape has four equal sides?",
        "=A square has four equal sides."),
    ('five', "how many sides does a pentagon have?", "how many sides has a pentagon?",
        "how many corners does a pentagon have?", "how many corners has a pentagon?",
        "number of sides of a pentagon?", f"{TELL_WHAT} how many sides a pentagon has.",
        "[what|which] shape has five sides?", "=A pentagon has five sides."),
    ('six', "how many sides does a hexagon have?", "how many sides has a hexagon?",
        "how many corners does a hexagon have?", "how many corners has a hexagon?", "number of sides of a hexagon?",
        f"{TELL_WHAT} how many sides a hexagon has.", "[what|which] shape has six sides?", "=A hexagon has six sides."),
    ('eight', "how many sides does an octagon have?", "how many sides has an octagon?",
        "how many corners does an octagon have?", "how many corners has an octagon?",
        "number of sides of an octagon?", f"{TELL_WHAT} how many sides an octagon has.",
        "[what|which] shape has eight sides?", "=An octagon has eight sides."),
    ('round', "what is a circle?", "how many sides does a circle have?", "how many corners does a circle have?",
        "what shape is a [ball|wheel|coin]?", f"{TELL_WHAT} what a circle is.", "what does a circle look like?",
        "=A circle is round and has no corners."),
    ('blue whale', "[what|which] is the [biggest|largest] animal[| in the world| on earth]?",
        "[what|which] animal is the [biggest|largest]?", f"{TELL_ME} the [biggest|largest] animal[| in the world].",
        "what's the biggest animal?", "=The biggest animal is the blue whale."),
    ('cheetah', "[what|which] is the fastest animal[| in the world| on earth| on land]?",
        "[what|which] animal is the fastest?", f"{TELL_ME} the fastest animal[| in the world].",
        "what's the fastest animal?", "=The fastest animal on land is the cheetah."),
    ('giraffe', "[what|which] is the tallest animal[| in the world| on earth]?",
        "[what|which] animal is the tallest?", f"{TELL_ME} the tallest animal[| in the world].",
        "what's the tallest animal?", "which animal has the longest neck?", "=The tallest animal is the giraffe."),
    ('Everest', "[what|which] is the [highest|tallest] mountain[| in the world| on earth]?",
        "[what|which] mountain is the [highest|tallest]?",
        f"{TELL_ME} the [highest|tallest] mountain[| in the world].", "what's the highest mountain?",
        "=The highest mountain is Mount Everest."),
    ('Pacific', "[what|which] is the [biggest|largest] ocean[| in the world| on earth]?",
        "[what|which] ocean is the [biggest|largest]?", f"{TELL_ME} the [biggest|largest] ocean[| in the world].",
        "what's the biggest ocean?", "=The biggest ocean is the Pacific Ocean."),
    ('Russia', "[what|which] is the [biggest|largest] country[| in the world| on earth]?",
        "[what|which] country is the [biggest|largest]?", f"{TELL_ME} the [biggest|largest] country[| in the world].",
        "what's the biggest country?", "=The biggest country is Russia."),
    ('Nile', "[what|which] is the longest river[| in the world| on earth]?", "[what|which] river is the longest?",
        f"{TELL_ME} the longest river[| in the world].", "what's the longest river?",
        "=The longest river is the Nile."),
    ('seven', "how many continents are there[| on earth]?", "how many continents does the earth have?",
        "number of continents?", f"{TELL_WHAT} how many continents there are.", "=There are seven continents."),
    ('26', "how many letters are [there |]in the alphabet?", "how many letters does the [English |]alphabet have?",
        "number of letters in the alphabet?", f"{TELL_WHAT} how many letters the alphabet has.",
        "=The English alphabet has 26 letters."),
    ('a, e, i', "what are the vowels?", "which letters are vowels?", f"{TELL_ME} the vowels.", "list the vowels.",
        "name the [five |]vowels.", "=The vowels are a, e, i, o and u."),
    ('A', "what is the first letter of the alphabet?", "[which|what] letter [comes|is] first in the alphabet?",
        f"{TELL_ME} the first letter of the alphabet.", "first letter of the alphabet?",
        "=The first letter of the alphabet is A."),
    ('Z', "what is the last letter of the alphabet?", "[which|what] letter [comes|is] last in the alphabet?",
        f"{TELL_ME} the last letter of the alphabet.", "last letter of the alphabet?",
        "=The last letter of the alphabet is Z."),
    ('oxygen', "what do [we|people|humans] breathe?", "what gas do [we|people|humans] [need|breathe]?",
        "what is in the air that we need?", f"{TELL_WHAT} what we breathe.", "=We breathe air. It has oxygen in it."),
    ('magnet', "what attracts iron?", "what pulls iron?", "what sticks to iron?", "what is a magnet?",
        "what does a magnet do?", f"{TELL_WHAT} what a magnet does.", "=A magnet pulls things made of iron."),
    ('fires', "what do firefighters do?", "what does a firefighter do?", "what is the job of a firefighter?",
        f"{TELL_WHAT} what a firefighter does.", "who puts out fires?", "=A firefighter puts out fires."),
    ('teaches', "what do teachers do?", "what does a teacher do?", "what is the job of a teacher?",
        f"{TELL_WHAT} what a teacher does.", "who teaches children?", "=A teacher teaches children."),
    ('sick', "what do doctors do?", "what does a doctor do?", "what is the job of a doctor?",
        f"{TELL_WHAT} what a doctor does.", "who helps sick people?", "=A doctor helps sick people."),
    ('bread', "what do bakers do?", "what does a baker do?", "what is the job of a baker?",
        f"{TELL_WHAT} what a baker does.", "who bakes bread?", "=A baker bakes bread and cakes."),
    ('food', "what do farmers do?", "what does a farmer do?", "what is the job of a farmer?",
        f"{TELL_WHAT} what a farmer does.", "who grows our food?", "=A farmer grows food and keeps animals."),
]


class Single:
    def __init__(self, row):
        self.want = row[0]
        self.ask = Grammar(*[line for line in row[1:] if line[0] != '='])
        self.answer = next(line[1:] for line in row if line[0] == '=')


SINGLES = [Single(row) for row in SINGLE]


def single(speak):
    chosen = speak.pick(SINGLES)
    return Exchange('fact', speak.ask(chosen.ask), chosen.answer, {'rule': 'says', 'want': [chosen.want]})


CONTINENTS = {
    'Europe': '''France, Germany, Italy, Spain, Portugal, England, Scotland, Wales, Ireland, Norway, Sweden, Denmark,
        Finland, Iceland,
        the Netherlands, Belgium, Luxembourg, Switzerland, Austria, Poland, Hungary, Greece, Romania, Bulgaria,
        Croatia, Serbia,
        Ukraine, Estonia, Latvia, Lithuania, Slovakia, Slovenia, Malta, the Czech Republic, the United Kingdom''',
    'Africa': 'Egypt, Morocco, Kenya, Nigeria, Ghana, Ethiopia, Senegal, Tunisia, Algeria',
    'Asia': '''China, Japan, South Korea, India, Pakistan, Nepal, Thailand, Vietnam, Indonesia, the Philippines,
        Bangladesh,
        Mongolia, Israel, Iraq, Iran, Saudi Arabia, Lebanon, Jordan''',
    'North America': 'the United States, Canada, Mexico, Cuba, Jamaica',
    'South America': 'Brazil, Argentina, Chile, Peru, Colombia, Uruguay, Venezuela, Ecuador',
}
CONTINENT_OF = {' '.join(country.split()): continent for continent,
    countries in CONTINENTS.items() for country in countries.split(',')}
ASK_CONTINENT = Grammar(
    "3: [which|what] continent is {country} [in|on|part of]?", "on [which|what] continent is {country}?",
    "in [which|what] part of the world is {country}?", "where is {country}?", "where in the world is {country}?",
    f"{TELL_WHAT} where {{country}} is.", f"{TELL_WHAT} [which|what] continent {{country}} is [in|on].",
    "{country} is [on|in] [which|what] continent?", "to which continent does {country} belong?",
    "where can I find {country}?", "where does {country} lie?",
)
ASK_CITY = Grammar(
    "3: where is {city}?", "in [which|what] country is {city}?", "[which|what] country is {city} in?",
    "{city} is in [which|what] country?", f"{TELL_WHAT} where {{city}} is.",
    f"{TELL_WHAT} [which|what] country {{city}} is in.",
    "where can I find {city}?", "where in the world is {city}?", "to which country does {city} belong?",
    "where does {city} lie?", "the city of {city} is in [which|what] country?",
)


def where(speak):
    if speak.chance(0.5):
        country = speak.pick(list(CONTINENT_OF))
        prompt = speak.ask(ASK_CONTINENT, {'country': country})
        return Exchange('continent', prompt, f'{capital_first(country)} is in {CONTINENT_OF[country]}.',
                        {'rule': 'says', 'want': [CONTINENT_OF[country]], 'family': 'continents'})
    city = speak.pick(list(COUNTRY_OF))
    country = COUNTRY_OF[city]
    return Exchange('city', speak.ask(ASK_CITY, {'city': city}), f'{city} is in {country}.',
                    {'rule': 'says', 'want': [country.removeprefix('the ')], 'family': 'countries'})


ASK_IS_COLOUR = Grammar(
    "4: is {x} {colour}?", "would you say that {x} is {colour}?", f"{TELL_WHAT} if {{x}} is {{colour}}.",
    "{x} is {colour}, [right|true or false|yes or no|isn't it]?", "is it true that {x} is {colour}?",
    "is the color of {x} {colour}?",
    "is {colour} the color of {x}?", "do you think {x} is {colour}?",
)


def is_colour(speak):
    thing = speak.pick(list(COLOURS))
    right = COLOURS[thing]
    true = speak.chance(0.5)
    shown = right
    while not true and shown == right:
        shown = speak.pick(('red', 'blue', 'green', 'yellow', 'orange', 'purple', 'pink', 'brown', 'black', 'white',
        'grey'))
    return Exchange('is_colour', speak.ask(ASK_IS_COLOUR, {'x': thing, 'colour': shown}),
    f'{"Yes" if true else "No"}, {thing} is {right}.',
                    {'rule': 'says', 'want': ['yes' if true else 'no'], 'family': 'yes_no'})


MONTH_DAYS = dict(zip(MONTHS, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)))
ASK_MONTH_DAYS = Grammar(
    "3: how many days does {x} have?", "how many days are [there |]in {x}?", "how many days has {x}[| got]?",
    "{x} has how many days?", "number of days in {x}?", f"{TELL_WHAT} how many days {{x}} has.", "how long is {x}?",
    "how long is the month of {x}?",
)


def month_days(speak):
    month = speak.pick(MONTHS)
    return Exchange('month_days', speak.ask(ASK_MONTH_DAYS, {'x': month}), f'{month} has {MONTH_DAYS[month]} days.',
                    {'rule': 'says', 'want': [str(MONTH_DAYS[month])], 'family': 'numbers'})


LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
ALPHABET = Single(('a, b, c', "[say|tell me|write|list|recite] the alphabet.", "[can|could] you say the alphabet?",
    "what is the alphabet?", "what are the letters of the alphabet?", "[list|name] the letters[| of the alphabet].",
                   "I want to hear the alphabet.", "do you know the alphabet?", "the alphabet, please.",
                   "=" + ', '.join(LETTERS) + '.'))
ASK_LETTER_AFTER = Grammar(
    "3: [what|which] letter comes after {x}?", "what comes after {x} in the alphabet?",
    "what is the letter after {x}?", "which letter follows {x}?", "the letter after {x} is [what|which|...]?",
    f"{TELL_ME} the letter [after|that comes after|that follows] {{x}}.",
    "what is the next letter after {x}?",
)
ASK_LETTER_BEFORE = Grammar(
    "3: [what|which] letter comes before {x}?", "what comes before {x} in the alphabet?",
    "what is the letter before {x}?", f"{TELL_ME} the letter [before|that comes before] {{x}}.",
    "the letter before {x} is [what|which|...]?",
)


def letter(speak):
    if speak.chance(0.12):
        return Exchange('letter', speak.ask(ALPHABET.ask), ALPHABET.answer, {'rule': 'says', 'want': [ALPHABET.answer]})
    at = int(speak.rand() * 25)
    before, after = LETTERS[at], LETTERS[at + 1]
    if speak.chance(0.6):
        return Exchange('letter', speak.ask(ASK_LETTER_AFTER, {'x': before}), f'{after} comes after {before}.',
        {'rule': 'says', 'want': [after]})
    return Exchange('letter', speak.ask(ASK_LETTER_BEFORE, {'x': after}), f'{before} comes before {after}.',
    {'rule': 'says', 'want': [before]})


# From the smallest to the biggest.
BY_SIZE = ['an ant', 'a bee', 'a snail', 'a mouse', 'a frog', 'a rat', 'a squirrel', 'a rabbit', 'a cat', 'a fox',
    'a dog', 'a sheep', 'a wolf',
           'a lion', 'a bear', 'a horse', 'a giraffe', 'an elephant', 'a whale', 'a house', 'a mountain', 'the moon',
           'the earth', 'the sun']
ASK_BIGGER = Grammar(
    "4: [which|what] is [bigger|larger], {a} or {b}?", "is {a} or {b} [bigger|larger]?",
    "{a} or {b}, which is [bigger|larger]?", f"{TELL_WHAT} [which|what] is [bigger|larger], {{a}} or {{b}}.",
    "[which|what] is the [bigger|larger] one, {a} or {b}?",
    "which of the two is [bigger|larger], {a} or {b}?",
)
ASK_LESS_BIG = Grammar(
    "4: [which|what] is smaller, {a} or {b}?", "is {a} or {b} smaller?", "{a} or {b}, which is smaller?",
    f"{TELL_WHAT} [which|what] is smaller, {{a}} or {{b}}.", "[which|what] is the smaller one, {a} or {b}?",
    "which of the two is smaller, {a} or {b}?",
)


def size(speak):
    n = len(BY_SIZE)
    small, big = sorted((int(speak.rand() * n), int(speak.rand() * n)))
    if small == big:
        small, big = (small - 1, big) if small else (small, big + 1)
    a, b = (small, big) if speak.chance(0.5) else (big, small)
    slots = {'a': BY_SIZE[a], 'b': BY_SIZE[b]}
    if speak.chance(0.6):
        return Exchange('size', speak.ask(ASK_BIGGER, slots),
        capital_first(f'{BY_SIZE[big]} is bigger than {BY_SIZE[small]}.'),
                        {'rule': 'starts', 'want': BY_SIZE[big]})
    return Exchange('size', speak.ask(ASK_LESS_BIG, slots),
    capital_first(f'{BY_SIZE[small]} is smaller than {BY_SIZE[big]}.'),
                    {'rule': 'starts', 'want': BY_SIZE[small]})
