"""Short stories on a subject."""
from .wording import Exchange, Grammar, capital_first, fill
from . import plots


ASK_STORY = Grammar(
    "4: tell me a [|short |little |nice |small ]story about {subject}.", "3: [can|could|will|would] you tell [me |us |]a [|short |little |nice ]story about {subject}?",
    "2: write [me |]a [|short |little |nice |small ]story about {subject}.", "I [want|would like] [to hear |]a [|short |little ]story about {subject}.", "make up a [|short |little ]story about {subject}.", "a [|short |little ]story about {subject}[, please| please|].",
    "give me a [|short |little ]story about {subject}.", "do you know a story about {subject}?", "[let me hear|invent|create|compose] a story about {subject}.", "story about {subject}.", "tell [my child|the children|us|my son|my daughter] a story about {subject}.",
    "please tell a story about {subject}.", "tell a [|short |little ]story about {subject}.", "tell me about {subject} in a story.", "I need a [bedtime |short |]story about {subject}.", "[tell me|write] a [bedtime|fairy|children's] story about {subject}.", "can you write [me |]a story about {subject}?",
    "tell me a tale [of|about] {subject}.", "write a tale [of|about] {subject}.", "tell me the story of {subject}.",
)


def story(speak):
    subject, text, judge = plots.tell(speak)
    prompt = speak.ask(ASK_STORY, {'subject': subject})
    return Exchange('story', prompt, text, {'rule': 'story', **judge})


def story_text(speak):
    return plots.tell(speak)[1]
