"""From a document of the corpus to the text that the model sees: ChatML, as tokenizer.chat_template renders it."""

from dataclasses import dataclass

# What export writes into the model file, and what `segments` must agree with (tests/test_builtin.c compares them).
TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


@dataclass
class Segment:
    """A stretch without control tokens, between the one before it and the one behind it ('' where there is none)."""

    before: str
    head: str  # what stands there of itself ("user\n"); never learned
    body: str
    after: str
    learned: bool  # the body and the token behind it

    @property
    def text(self):
        return self.head + self.body


def segments(document):
    if "text" in document:
        return [Segment("", "", document["text"], "<|endoftext|>", True)]
    return [
        Segment("<|im_start|>", m["role"] + "\n", m["content"], "<|im_end|>", m["role"] == "assistant")
        for m in document["messages"]
    ]
