"""Stories: a hero is chosen, a plot and a helper, the beats are drawn, and the whole is asked for in some way.

A subject such as "a brave otter" belongs to one split by its checksum, like a wording, but for subjects of two words.
"""

import re
from zlib import crc32

from . import cast, plots
from .wording import Exchange, Grammar, capital_first, fill, fix_articles

PRONOUNS = {
    'he': {'he': 'he', 'him': 'him', 'his': 'his', 'He': 'He', 'His': 'His'},
    'she': {'he': 'she', 'him': 'her', 'his': 'her', 'He': 'She', 'His': 'Her'},
    'it': {'he': 'it', 'him': 'it', 'his': 'its', 'He': 'It', 'His': 'Its'},
}
SEA, THING = 'sea', 'thing'       # the worlds of stories, but for the land's
PLOTS_BY_NAME = {plot.name: plot for plot in plots.PLOTS + plots.SEA_PLOTS + plots.THING_PLOTS}
LAND_HEROES = ((cast.ANIMALS, 0.55), (list(cast.CHILDREN), 0.75), (list(cast.GROWN), 0.88), (list(cast.FABLED), 1.01))
SEX = {**cast.CHILDREN, **cast.GROWN, **cast.FABLED}
CHILD_PLACES = ('town', 'hill', 'water', 'farm', 'sea')
ANIMAL_PLACES = ('wood', 'wood', 'hill', 'water', 'farm')


def _land_hero(speak):
    way = speak.rand()
    heroes, is_person = next((heroes, heroes is not cast.ANIMALS) for heroes, most in LAND_HEROES if way < most)
    hero = speak.pick(heroes)
    kind = speak.pick(CHILD_PLACES + ('far',) if is_person else ANIMAL_PLACES)
    return hero, speak.pick(cast.PLACES[kind]), cast.HABITS


def _helper(speak, hero, sea):
    while True:
        pool = cast.SEA_ANIMALS if sea else cast.ANIMALS if speak.chance(0.75) else list(cast.GROWN)
        friend = speak.pick(pool)
        if friend != hero:
            return friend


def _slots(speak, hero, sex, world):
    """What the lines of a plot about this hero may ask for."""
    names = cast.SHE_NAMES if sex == 'she' else cast.HE_NAMES
    name = speak.pick(names)
    friend = _helper(speak, hero, world == SEA)
    helper = name
    while helper == name:
        helper = speak.pick(cast.SHE_NAMES if SEX.get(friend) == 'she' or not SEX.get(friend) and speak.chance(0.5)
                            else cast.HE_NAMES)
    skill, fear = speak.pick(list(cast.SKILLS)), speak.pick(list(cast.FEARS))
    trait = speak.pick(cast.TRAITS)     # for lines to come: none has {trait} yet
    slots = dict(PRONOUNS[sex], N=name, F=helper, hero='the ' + hero, hero_word=hero,
                 friend='a(n) ' + (speak.pick(cast.TRAITS) + ' ' if speak.chance(0.6) else '') + friend,
                 Friend='the ' + friend, Day=speak.pick(cast.DAYS), thing=speak.pick(cast.THINGS),
                 colour=speak.pick(cast.COLOURS), food=speak.pick(cast.FOODS), fruit=speak.pick(cast.FRUIT),
                 spot=speak.pick(cast.HIDING),
                 skill=skill, skill_where=cast.SKILLS[skill][0], skill_done=cast.SKILLS[skill][1],
                 fear=fear, fear_when=cast.FEARS[fear][0], fear_truth=cast.FEARS[fear][1], trait=trait)
    slots['a_hero2'] = slots['friend']
    return slots


def _sentences(text):
    """Sentences begin with a capital; a(n) becomes what it must."""
    text = fix_articles(re.sub(' +', ' ', text).strip())
    return capital_first(re.sub(r'([.!?] "?)([a-z])', lambda found: found.group(1) + found.group(2).upper(), text))


def _line(speak, grammar, slots):
    text = speak.say(grammar, slots)
    return _sentences(text) if text else ''


def _compose(speak, beats, slots):
    lines = [_line(speak, beat, slots) for beat in beats]
    return ' '.join(line for line in lines if line) + ' The end.'


def _land_story(speak, world):
    if world == SEA:
        hero, place, habits = speak.pick(cast.SEA_ANIMALS), speak.pick(cast.PLACES['deep']), cast.SEA_HABITS
        plot = speak.pick(plots.SEA_PLOTS)
    else:
        hero, place, habits = _land_hero(speak)
        plot = speak.pick(plots.PLOTS)
    sex = SEX.get(hero) or speak.pick(('he', 'she'))
    slots = _slots(speak, hero, sex, world)
    slots.update(place=place, habit=speak.pick(habits), habit2=speak.pick(habits))
    while slots['habit2'] == slots['habit']:
        slots['habit2'] = speak.pick(habits)
    trait = speak.pick(cast.TRAITS) + ' ' if speak.chance(0.55) else ''
    slots['a_hero'] = 'a(n) ' + trait + hero
    named = speak.chance(0.88)
    if not named:
        slots['N'] = slots['hero']
    opening = plots.OPENINGS if named else plots.NAMELESS_OPENINGS
    text = _compose(speak, [opening, plots.HABIT, *plot.beats, plots.CLOSING], slots)
    subject, must = _subject(speak, plot, slots, hero, named, text)
    return subject, text, must


def _thing_story(speak):
    if speak.chance(0.6):
        hero = speak.pick(list(cast.LIVE_THINGS))
        where, use, done = cast.LIVE_THINGS[hero]
    else:
        hero, where = speak.pick(cast.PLAIN_THINGS), speak.pick(cast.PLAIN_WHERE)
        use, done = cast.PLAIN_USE
    plot = speak.pick(plots.THING_PLOTS)
    slots = _slots(speak, hero, 'it', THING)
    slots.update(N='the ' + hero, where=where, use=use, done=done)
    trait = speak.pick(cast.THING_TRAITS) + ' ' if speak.chance(0.6) else ''
    slots['a_hero'] = 'a(n) ' + trait + hero
    text = _compose(speak, [*plot.beats, plots.THING_CLOSING], slots)
    subject, must = _subject(speak, plot, slots, hero, False, text)
    return subject, text, must


def _subject(speak, plot, slots, hero, named, text):
    """What the story is asked for as, and the words that it must then have: "all" of these, one at least of "some"."""
    way = speak.rand()
    if way < 0.55:
        return fill(slots['a_hero'], slots), {'all': [hero]}
    if named and way < 0.65:
        wording = speak.pick(('{a_hero} named {N}', '{a_hero} called {N}', '{N} the {hero_word}', '{N}'))
        return fill(wording, _filled(slots)), {'all': [slots['N']] + ([hero] if 'hero' in wording else [])}
    friend = slots['Friend'].removeprefix('the ')
    if way > 0.9 and re.search(r'\b%s\b' % friend, text) and not plot in plots.THING_PLOTS:
        return fill('{a_hero} and {friend}', _filled(slots)), {'all': [hero, friend]}
    wording = plot.about.draw(speak.rand)
    must = {'all': [hero] if 'hero' in wording else []}
    if '{thing}' in wording:
        must['all'].append(slots['thing'])
    if '{friend}' in wording or '{a_hero2}' in wording:
        must['all'].append(friend)
    if not must['all']:
        must['some'] = plots.THEME_WORDS[plot.name].split()
    return fill(wording, _filled(slots)), must


def _filled(slots):
    """The slots with the articles of their own slots settled."""
    return {name: fix_articles(value) for name, value in slots.items()}


def tell(speak):
    """A story: its subject, its text, and what a story on this subject must have."""
    while True:
        way = speak.rand()
        story = _thing_story(speak) if way < 0.14 else _land_story(speak, SEA if way < 0.2 else None)
        subject = fix_articles(story[0])
        common = subject.count(' ') < 2
        if common or (crc32(subject.encode()) % 8 == 0) == speak.held_out:
            return (subject,) + story[1:]


ASK_STORY = Grammar(
    "6: tell me a [|short |little |nice |small ]story about {subject}.",
    "3: [can|could|will|would] you tell [me |us |]a [|short |little |nice ]story about {subject}?",
    "3: write [me |]a [|short |little |nice |small ]story about {subject}.",
    "I [want|would like] [to hear |]a [|short |little ]story about {subject}.",
    "make up a [|short |little ]story about {subject}.",
    "2: a [|short |little ]story about {subject}[, please| please|].",
    "give me a [|short |little ]story about {subject}.", "do you know a story about {subject}?",
    "[let me hear|invent|create|compose] a story about {subject}.", "2: story about {subject}.",
    "tell [my child|the children|us|my son|my daughter] a story about {subject}.",
    "please tell a story about {subject}.", "tell a [|short |little ]story about {subject}.",
    "tell me about {subject} in a story.", "I need a [bedtime |short |]story about {subject}.",
    "[tell me|write] a [bedtime|fairy|children's] story about {subject}.",
    "can you write [me |]a story about {subject}?",
    "tell me a tale [of|about] {subject}.", "write a tale [of|about] {subject}.", "tell me the story of {subject}.",
    "[tell|write|tell me|write me] something about {subject}, as a story.",
    "how about a story [about|with] {subject}?", "I'd like a story [about|with] {subject}.",
    "what happens in a story about {subject}?",
    "[tell me|write|give me] a story [with|in which there is] {subject}.",
    "once more a story, this time about {subject}.",
    "[tell|write] [me |us |]a [funny|sad|happy|good|long|very short] story about {subject}.",
)
ASK_ANY_STORY = Grammar(
    "4: tell me a [|short |little |nice |good |bedtime ]story.",
    "2: [can|could] you tell me a [|short |little |nice |bedtime ]story?",
    "write [me |]a [|short |little |nice ]story.", "I want [to hear |]a [|short |bedtime ]story.",
    "a story[, please| please|].", "tell me another story.", "[give me|make up|invent] a [|short |little ]story.",
    "do you know a story?", "tell us a story.", "do you know any stories?", "[please read|read] me a story.",
    "I would like [to hear |]a story.", "another story[, please| please|].", "one more story[, please| please|].",
    "story time.", "tell me any story.", "tell me a story that you like.",
)


def story(speak):
    subject, text, must = tell(speak)
    if speak.chance(0.1):
        return Exchange('story', speak.ask(ASK_ANY_STORY), text, {'rule': 'story', 'all': []})
    return Exchange('story', speak.ask(ASK_STORY, {'subject': subject}), text, {'rule': 'story', **must})


def story_text(speak):
    return tell(speak)[1]
