"""How much of each kind, and how exchanges become documents."""

from bisect import bisect
from itertools import accumulate

from . import about_quern, animals, arithmetic, facts, instructions, stories, talk, words
from .followups import follow

# kind: (share of the exchanges, maker). A kind's maker takes a Speaker and returns an Exchange.
KINDS = [
    (4.6, stories.story),
    (5.5, facts.capital), (1.6, facts.where), (2.4, facts.colour), (0.9, facts.is_colour), (0.5, facts.mix),
    (2.0, facts.calendar), (0.5, facts.month_days), (0.9, facts.letter), (1.0, facts.size), (1.9, facts.use),
    (5.0, facts.single),
    (6.5, words.opposite), (2.0, words.plural), (1.3, words.rhyme), (1.2, words.past), (1.0, words.synonym),
    (1.4, animals.sound), (1.4, animals.young), (1.3, animals.home), (1.4, animals.legs), (1.3, animals.food),
    (1.2, animals.animal_class), (0.8, animals.ability), (1.6, animals.other_way),
    (14.0, arithmetic.sums), (1.4, arithmetic.compare), (1.5, arithmetic.neighbour), (1.4, arithmetic.double_half),
    (0.7, arithmetic.too_hard), (0.6, arithmetic.parity), (1.0, arithmetic.notation), (0.8, arithmetic.sort),
    (2.3, instructions.listing), (0.8, instructions.one_of), (1.8, instructions.count), (1.8, instructions.spell),
    (3.0, instructions.repeat), (1.8, instructions.shout), (1.6, instructions.reverse), (2.6, instructions.shorter),
    (1.2, instructions.finish), (1.3, instructions.is_a), (1.2, instructions.kind_of), (0.8, instructions.first_word),
    (0.8, instructions.times), (1.0, instructions.sentence),
    (7.5, about_quern.about_quern),
    (2.2, talk.unknown),
] + [(0.4, make) for kind, make in talk.MAKERS.items() if kind != 'unknown']
SUMS = list(accumulate(share for share, _ in KINDS))
SYSTEM = ('You are a helpful assistant.', 'You are quern, a small model.', 'You are a friendly assistant.',
          'Answer briefly.', 'You are a helpful model.', 'Be kind and brief.', 'You are a storyteller and a helper.')


def exchange(speak):
    return KINDS[bisect(SUMS, speak.rand() * SUMS[-1])][1](speak)


def document(speak):
    if speak.chance(0.035):
        return {'kind': 'story_text', 'text': stories.story_text(speak)}
    messages = []
    if speak.chance(0.12):
        messages.append({'role': 'system', 'content': speak.pick(SYSTEM)})
    way = speak.rand()
    turns = 1 if way < 0.5 else 2 if way < 0.8 else 3
    exchanges = [exchange(speak)]
    while len(exchanges) < turns:
        next_one = follow(speak, exchanges[-1]) if speak.chance(0.25) else None
        exchanges.append(next_one or exchange(speak))
    for one in exchanges:
        messages += [{'role': 'user', 'content': one.prompt}, {'role': 'assistant', 'content': one.answer}]
    return {'kind': exchanges[0].kind, 'messages': messages}
