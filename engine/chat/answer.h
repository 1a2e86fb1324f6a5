// Splits the text of an answer, as it arrives, into reasoning, content and tool calls.
//
// Each family of models marks these with its own tokens or words: <think>...</think>, [THINK], channels;
// <tool_call>{...}, [TOOL_CALLS][...], <function=name>, and so on. The splitter takes the pieces of an answer and
// emits each stretch with its kind. A mark may be split anywhere between pieces. Only text that may still become a
// mark is held back.
//
// Ownership: a splitter owns its buffers; the strings of its style must outlive it. Threads: one at a time.
#ifndef QUERN_ANSWER_H
#define QUERN_ANSWER_H

#include "engine/text/tokenizer.h"
#include "engine/value.h"

enum answer_part { ANSWER_REASONING, ANSWER_CONTENT, ANSWER_TOOL_CALLS };

// The formats of tool calls. A call is read when it ends. One that cannot be read is content, as the model wrote it.
enum tool_format {
    TOOLS_NONE,      // there are no tool calls; all text is content
    TOOLS_JSON_TAG,  // <tool_call>{"name", "arguments"}</tool_call> (Hermes, Qwen), or with other tags
    TOOLS_JSON_LIST, // [TOOL_CALLS][{"name", "arguments"}, ...] (Mistral), or with other tags
    TOOLS_JSON_BARE, // the whole answer is {"name", "parameters"} (Llama 3), optionally after <|python_tag|>
    TOOLS_NAME_JSON, // a mark, the name, a mark, {arguments} (Mistral, DeepSeek, Kimi, functionary)
    TOOLS_XML,       // <function=name><parameter=key>value</parameter></function> (Qwen Coder), and similar formats
    TOOLS_PYTHON,    // [name(key=value), ...] (LFM2)
    TOOLS_BRACES,    // call:name{key:value, ...}, with strings between marks (Gemma 4)
};

enum { ANSWER_DROPS = 4 };
struct answer_style {
    const char *think_open, *think_close; // NULL: no reasoning
    bool in_reasoning;                    // the prompt has already opened it
    enum tool_format tools;
    const char *call_open, *call_close; // marks around a call, or around all calls; call_close NULL: they extend to
                                        // the end
    const char *name_open, *name_close; // TOOLS_NAME_JSON, TOOLS_XML, TOOLS_BRACES: marks before and after a name
    const char *key_open, *key_close, *value_open, *value_close; // TOOLS_XML: marks around keys and values;
        // TOOLS_BRACES: value_open is on both sides of a string
    const struct value *offered;    // the tools, by whose schemas values between tags are typed; NULL: not known
    const char *drop[ANSWER_DROPS]; // marks between parts that belong to none and are dropped; NULL after the last
};

// Whether a place in a call is within a string; all zeros at the beginning of the call.
struct quotes {
    char quote; // the sign that ends the string; 0: outside of strings
    bool escaped;
};

// Receives a stretch of the answer; a result other than 0 stops the output. Tool calls are passed as the model wrote
// them.
typedef int answer_emit_fn(void *arg, enum answer_part part, struct str text);

struct answer {
    struct answer_style style;
    answer_emit_fn *emit;
    void *arg;
    enum answer_part part;
    int refused;   // result of emit if it was not 0
    bool trimming; // white space after a mark, or at the beginning of the content, is being dropped
    bool fresh;    // only white space so far
    bool bare;     // TOOLS_JSON_BARE: the whole answer may be a call, and is held back until the end
    char *held;
    size_t n_held, held_cap;
    char *call;                      // the text of a call that has not ended, from the white space before its mark on
    size_t n_call, call_cap, n_lead; // n_lead: bytes of that white space
    struct quotes quotes;            // at the end of that text
    char *calls;                     // the text of all tool calls that can be read, including marks
    size_t n_calls, calls_cap;
    size_t n_bad; // calls that cannot be read
};

void answer_begin(struct answer *a, const struct answer_style *style, answer_emit_fn *emit, void *arg);
// Adds text, in which marks are recognized wherever it came from. E_MEMORY.
int answer_push(struct answer *a, struct str piece, struct error *err);
// Adds a token. Control tokens that are part of a mark are kept, others are dropped. The detokenizer must be used for
// this answer only, and must write control tokens (detokenizer_begin(t, true)).
int answer_push_token(struct answer *a, struct detokenizer *d, int32_t id, struct error *err);
// Ends the answer: emits what was held back.
int answer_end(struct answer *a, struct error *err);
void answer_free(struct answer *a);

// The tool calls of an answer that has ended: a list of {"type": "function", "function": {"name", "arguments"}} as in
// messages, where `arguments` is a dict. The list is empty if there are none. Calls that cannot be read, which are
// content, are counted in *n_bad, unless that is NULL. The values live in the arena.
int answer_tool_calls(const struct answer *a, struct arena *arena, struct value *out, size_t *n_bad, struct error *err);

#endif
