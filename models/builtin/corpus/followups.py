"""Second turns that lean on the first: "And Italy?", "Thank you", "Say that again", "What was the name of the fox?"."""

import re

from . import animals, facts, stories, talk, words
from .wording import Exchange, Grammar, capital_first, fix_articles

AND = Grammar("3: and {x}?", "2: what about {x}?", "how about {x}?", "and [for|of] {x}?", "and now {x}?", "now {x}.",
    "the same for {x}[, please|].", "and what about {x}?", "ok, and {x}?")
AGAIN = Grammar("2: say that again.", "[can|could] you repeat that?", "what did you say?", "repeat that.", "pardon?",
    "once more.", "again.", "I did not [hear|understand] that.", "please say it again.", "sorry, what?")
ASK_HERO_NAME = Grammar("3: what is the name of the {hero}?", "what is the {hero} called?",
    "what was the name of the {hero}?", "what was the {hero} called?", "who is the story about?",
    "what's the name of the {hero}?", "tell me the name of the {hero}.", "how is the {hero} called in the story?")
HERO = re.compile(r"\b(?:was|lived) an? ((?:[a-z]+ )*?)([a-z]+)(?: named ([A-Z][a-z]+)|[^.]*\. (?:His|Her) name was "
                  r"([A-Z][a-z]+))")


def _and_capital(speak):
    country = speak.pick(list(facts.CAPITALS))
    return country, Exchange('capital', '', f'The capital of {country} is {facts.CAPITALS[country]}.', {})


def _and_opposite(speak):
    word = speak.pick(list(words.OPPOSITES))
    return word, Exchange('opposite', '', f'The opposite of {word} is {words.OPPOSITES[word]}.', {})


def _and_plural(speak):
    word = speak.pick(words.COUNTABLE)
    return word, Exchange('plural', '', f'The plural of {word} is {words.plural_of(word)}.', {})


def _and_colour(speak):
    thing = speak.pick(list(facts.COLOURS))
    return thing, Exchange('colour', '', capital_first(f'{thing} is {facts.COLOURS[thing]}.'), {})


def _and_animal(maker):
    def make(speak):
        one = maker(speak)
        return re.match(r'An? (?:baby )?([a-z]+)', one.answer).group(1), one
    return make


AND_ALSO = {'capital': _and_capital, 'opposite': _and_opposite, 'plural': _and_plural, 'colour': _and_colour,
            **{maker.__name__: _and_animal(maker)
               for maker in (animals.sound, animals.young, animals.home, animals.legs, animals.food)}}
OF_ANIMALS = ('sound', 'young', 'home', 'legs', 'food')


def follow(speak, last):
    """An exchange that follows the last one, or None where nothing leans on it."""
    way = speak.rand()
    if way < 0.12:
        return talk.MAKERS['thanks'](speak)
    if way < 0.24 and last.kind != 'story':
        return Exchange('again', speak.ask(AGAIN), last.answer, {})
    if last.kind in AND_ALSO:
        subject, one = AND_ALSO[last.kind](speak)
        if one.kind in OF_ANIMALS:
            subject = speak.pick(('a(n) ', 'the ')) + subject if speak.chance(0.8) else subject
        return Exchange(one.kind, speak.ask(AND, {'x': fix_articles(subject)}), one.answer, {})
    if last.kind == 'story':
        return _about_story(speak, last)
    return None


def _about_story(speak, last):
    found = HERO.search(last.answer)
    if not found or speak.chance(0.25):
        prompt = speak.ask(stories.ASK_ANY_STORY)
        return Exchange('story', prompt, stories.story_text(speak), {})
    hero, name = found.group(2), found.group(3) or found.group(4)
    return Exchange('story_name', speak.ask(ASK_HERO_NAME, {'hero': hero}), f'The {hero} is called {name}.', {})
