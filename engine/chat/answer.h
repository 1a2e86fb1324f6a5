// An answer as it comes, split into reasoning, content and tool calls.
//
// Families mark these with tokens or words of their own: <think>...</think>, [THINK], channels; <tool_call>{...},
// [TOOL_ CALLS][...], <function=name>, and so on. The splitter takes the pieces of an answer and hands out, for each
// stretch, what it is; marks may be cut anywhere between pieces. Held back is only what may still become a mark.
//
// Ownership: a splitter owns its buffers and views its style. Threads: one at a time.
#ifndef QUERN_ANSWER_H
#define QUERN_ANSWER_H

#include "engine/text/tokenizer.h"
#include "engine/value.h"

enum answer_part { ANSWER_REASONING, ANSWER_CONTENT, ANSWER_TOOL_CALLS };

// How tool calls are written.
enum tool_format {
    TOOLS_NONE,      // all text is content
    TOOLS_JSON_TAG,  // <tool_call>{"name", "arguments"}</tool_call> (Hermes, Qwen), and the like with other tags
    TOOLS_JSON_LIST, // [TOOL_CALLS][{"name", "arguments"}, ...] (Mistral), and the like with other tags
    TOOLS_JSON_BARE, // the whole answer is {"name", "parameters"} (Llama 3), after <|python_tag|> or not
    TOOLS_NAME_JSON, // a mark, the name, a mark, {arguments} (Mistral, DeepSeek, Kimi, functionary)
    TOOLS_XML,       // <function=name><parameter=key>value</parameter></function> (Qwen Coder), and its kin
    TOOLS_PYTHON,    // [name(key=value), ...] (LFM2)
};

enum { ANSWER_DROPS = 4 };
struct answer_style {
    const char *think_open, *think_close; // NULL: no reasoning
    bool in_reasoning;                    // the prompt has opened it already
    enum tool_format tools;
    const char *call_open, *call_close; // around a call, or around all of them; call_close NULL: up to the end
    const char *name_open, *name_close; // TOOLS_NAME_JSON, TOOLS_XML: what stands before and behind a name
    const char *key_open, *key_close, *value_open, *value_close; // TOOLS_XML: around keys and values
    const char *drop[ANSWER_DROPS]; // what stands between parts and belongs to none; NULL behind the last
};

// Takes a stretch of the answer; anything but 0 ends it. Of tool calls it is the text as the model wrote it.
typedef int answer_emit_fn(void *arg, enum answer_part part, struct str text);

struct answer {
    struct answer_style style;
    answer_emit_fn *emit;
    void *arg;
    enum answer_part part;
    int refused;   // what emit returned
    bool trimming; // white space behind a mark, or before all content, is being dropped
    bool fresh;    // nothing has come yet but white space
    bool bare;     // TOOLS_JSON_BARE: all of it may be a call, and is held back until the end
    char *held;
    size_t n_held, held_cap;
    char *calls; // all text of tool calls, marks included
    size_t n_calls, calls_cap;
};

void answer_begin(struct answer *a, const struct answer_style *style, answer_emit_fn *emit, void *arg);
// Adds text. Marks are looked for in it whatever it was made of. E_MEMORY.
int answer_push(struct answer *a, struct str piece, struct error *err);
// Adds a token: control tokens that are part of a mark count as such, others are dropped. The detokenizer is of this
// answer alone and writes control tokens out (detokenizer_begin(t, true)).
int answer_push_token(struct answer *a, struct detokenizer *d, int32_t id, struct error *err);
// The end of the answer: what was held back comes out.
int answer_end(struct answer *a, struct error *err);
void answer_free(struct answer *a);

// The tool calls of an answer that has ended: a list of {"type": "function", "function": {"name", "arguments"}}, as
// messages hold them, `arguments` being a dict. An empty list when there is none; a call that cannot be read is left
// out, and *n_bad (which may be NULL) counts it. What it holds lives in the arena.
int answer_tool_calls(const struct answer *a, struct arena *arena, struct value *out, size_t *n_bad, struct error *err);

#endif
