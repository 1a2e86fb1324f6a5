"""The people and animals of the stories, and what happens to them (first, simple version)."""
from .wording import Grammar, capital_first, fill

CREATURES = '''fox bear cat dog rabbit mouse lion wolf frog duck owl goose pig goat horse donkey squirrel hedgehog turtle elephant
monkey tiger penguin whale dragon bird snail bee butterfly dolphin robot'''.split()
TRAITS = 'brave little shy clever kind curious lonely young old small lazy proud funny quiet gentle'.split()
HE = 'Tom Max Sam Leo Ben Finn Oscar Pip Rusty Hugo Milo Otto Felix Jack Theo Bruno'.split()
SHE = 'Lily Mia Anna Rosie Ella Nora Ruby Clara Daisy Molly Ivy Luna Emma Zoe Tilly Hazel'.split()
PLACES = ['a green forest', 'a quiet village', 'a small house by the river', 'a valley between two hills', 'a farm', 'a town by the sea']
LOST = 'kite ball key hat scarf bell drum book'.split()
OPEN = Grammar("Once upon a time there was {a} named {N}. {He} lived in {place}.", "Once upon a time, in {place}, there lived {a} named {N}.", "There was once {a} named {N}, who lived in {place}.")
WISH = Grammar("{N} loved to play with {his} {thing}.", "Every day {he} played with {his} {thing}.")
LOSS = Grammar("One [windy|rainy|cold|sunny] day the {thing} was gone. {N} looked [everywhere|under the bed|behind every tree], but {he} could not find it.", "One morning {he} could not find the {thing}. {He} felt very sad.")
HELP = Grammar("Then {he} met {friend} named {F}. \"Why are you sad?\" asked {F}. \"I have lost my {thing},\" said {N}.", "\"I will help you,\" said {friend} named {F}. \"Let us look together.\"")
FOUND = Grammar("They looked for a long time. At last they found the {thing} [under a bush|in a tree|by the river].", "Together they searched until the evening, and there was the {thing}, [under a bush|in a tree|by the river].")
END = Grammar("{N} thanked {F}, and they became good friends. The end.", "{N} was so happy that {he} danced. From that day on the two were friends. The end.")


def tell(speak):
    she = speak.chance(0.5)
    slots = dict(zip(('he', 'him', 'his', 'He', 'His'), ('she', 'her', 'her', 'She', 'Her') if she else ('he', 'him', 'his', 'He', 'His')))
    names = SHE if she else HE
    being = speak.pick(CREATURES) if speak.chance(0.7) else ('girl' if she else 'boy')
    subject = 'a(n) ' + (speak.pick(TRAITS) + ' ' if speak.chance(0.6) else '') + being
    friend = speak.pick([c for c in CREATURES if c != being])
    slots.update(a=subject, N=speak.pick(names), place=speak.pick(PLACES), thing=speak.pick(LOST), friend='a(n) ' + friend, F=speak.pick([n for n in SHE + HE]))
    while slots['F'] == slots['N']:
        slots['F'] = speak.pick(SHE + HE)
    text = ' '.join(speak.say(g, slots) for g in (OPEN, WISH, LOSS, HELP, FOUND, END))
    return fill(subject, {}), fill(text, {}), {'subject': being, 'name': slots['N']}
