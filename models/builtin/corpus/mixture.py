"""How much of each kind, and how exchanges become documents."""

from itertools import accumulate
from bisect import bisect

from . import about_quern, animals, arithmetic, facts, instructions, stories, talk, words

# kind: (share of the exchanges, maker). A kind's maker takes a Speaker and returns an Exchange.
KINDS = [
    (6.5, stories.story), (5.0, facts.capital), (2.6, facts.colour), (0.5, facts.mix), (2.2, facts.calendar), (2.0, facts.use),
    (5.0, facts.single), (5.0, words.opposite), (2.2, words.plural), (1.5, words.rhyme),
    (1.4, animals.sound), (1.4, animals.young), (1.4, animals.home), (1.4, animals.legs), (1.4, animals.food), (1.2, animals.animal_class),
    (10.0, arithmetic.sums), (1.5, arithmetic.compare), (1.5, arithmetic.neighbour), (1.4, arithmetic.double_half), (0.7, arithmetic.too_hard),
    (3.0, instructions.listing), (1.8, instructions.count), (2.0, instructions.spell), (3.5, instructions.repeat), (2.0, instructions.shout),
    (1.8, instructions.reverse), (3.0, instructions.shorter), (1.5, instructions.finish), (1.5, instructions.is_a),
    (7.0, about_quern.about_quern), (2.2, talk.unknown),
] + [(0.45, make) for kind, make in talk.MAKERS.items() if kind != 'unknown']
SUMS = list(accumulate(share for share, _ in KINDS))
SYSTEM = ('You are a helpful assistant.', 'You are quern, a small model.', 'You are a friendly assistant.', 'Answer briefly.', 'You are a helpful model.',
          'Be kind and brief.', 'You are a storyteller and a helper.')


def exchange(speak):
    return KINDS[bisect(SUMS, speak.rand() * SUMS[-1])][1](speak)


def document(speak):
    if speak.chance(0.04):
        return {'kind': 'story_text', 'text': stories.story_text(speak)}
    messages = []
    if speak.chance(0.12):
        messages.append({'role': 'system', 'content': speak.pick(SYSTEM)})
    way = speak.rand()
    turns = 1 if way < 0.5 else 2 if way < 0.8 else 3
    kinds = []
    for _ in range(turns):
        one = exchange(speak)
        kinds.append(one.kind)
        messages += [{'role': 'user', 'content': one.prompt}, {'role': 'assistant', 'content': one.answer}]
    return {'kind': kinds[0], 'messages': messages}
