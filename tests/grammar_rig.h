// Shared by the tests of constrained output: a vocabulary with awkward tokens, texts fed byte by byte, and random
// answers.
//
// The vocabulary is SentencePiece-like: <unk>, <s>, </s>, then the 256 bytes, then pieces of JSON and words, some of
// them ending within a character, and control tokens. Each test links its own copy. Threads: no shared state.
#ifndef QUERN_GRAMMAR_RIG_H
#define QUERN_GRAMMAR_RIG_H

#include "engine/grammar/grammar.h"
#include "tests/vocab_recipe.h"

enum { RIG_UNK, RIG_BOS, RIG_END, RIG_BYTES, RIG_PIECES = RIG_BYTES + 256 };

static const char *const rig_pieces[] = {"<think>",
                                         "</think>",
                                         "<|im_end|>",
                                         "{\"",
                                         "\":",
                                         "\",",
                                         "\"}",
                                         "},",
                                         "}}",
                                         "]}",
                                         "[{",
                                         "[[",
                                         "]]",
                                         "\", \"",
                                         "\": \"",
                                         "\":\"",
                                         "true",
                                         "false",
                                         "null",
                                         "tru",
                                         "alse",
                                         "nul",
                                         "the",
                                         "and",
                                         "ab",
                                         "abc",
                                         "ba",
                                         "aa",
                                         "aaaa",
                                         "aaaaaaaa",
                                         "  ",
                                         "    ",
                                         "\n",
                                         "\n\n",
                                         "\n  ",
                                         "123",
                                         "12",
                                         "00",
                                         "2024-",
                                         "-0",
                                         "0.",
                                         ".5",
                                         "e+",
                                         "E-",
                                         "1e5",
                                         "\\n",
                                         "\\\"",
                                         "\\u00",
                                         "\\",
                                         "\\\\",
                                         "\xC3\xA9",
                                         "\xC3",
                                         "\xA9\"",
                                         "\xE2\x82",
                                         "\xAC",
                                         "\xF0\x9F",
                                         "\x98\x80",
                                         "name",
                                         "\"name\"",
                                         "\"a\"",
                                         "\"b\":",
                                         "foo",
                                         "bar",
                                         "@example",
                                         ".com",
                                         "http",
                                         "://",
                                         "]",
                                         "x\"]",
                                         "\"\"",
                                         "[]",
                                         "{}",
                                         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                         "                                                ",
                                         "(",
                                         ")",
                                         "))",
                                         ")(",
                                         "+(",
                                         "\"]}",
                                         "\"},",
                                         "}]}",
                                         "]],["};

static inline struct tokenizer *rig_tokenizer(void)
{
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    enum { N = RIG_PIECES + COUNT_OF(rig_pieces) };
    vocab_begin(&f);
    vocab_key_str(&f, "model", "llama");
    vocab_key_array(&f, "tokens", GGUF_STRING, N);
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < N; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(i - RIG_BYTES) & 255);
        const char *text = i < RIG_BYTES ? first[i] : i < RIG_PIECES ? byte : rig_pieces[i - RIG_PIECES];
        vocab_put_string(&f, text, strlen(text));
    }
    vocab_key_array(&f, "scores", GGUF_F32, N);
    for (int i = 0; i < N; i++)
        vocab_put(&f, &(float){(float)-i}, 4);
    vocab_key_array(&f, "token_type", GGUF_I32, N);
    for (int i = 0; i < N; i++) {
        int32_t type = i == RIG_UNK ? 2 : i < RIG_BYTES ? 3 : i < RIG_PIECES ? 6 : i < RIG_PIECES + 3 ? 3 : 1;
        vocab_put(&f, &type, 4);
    }
    vocab_key_u32(&f, "bos_token_id", RIG_BOS);
    vocab_key_u32(&f, "eos_token_id", RIG_END);
    if (vocab_load(&f, 0, &t, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return t;
}

struct rig {
    struct tokenizer *t;
    struct grammar_vocab *v;
    struct grammar *g;
    struct constraint *c;
    struct error err;
};

static inline void rig_begin(struct rig *r)
{
    *r = (struct rig){.t = rig_tokenizer()};
    if (grammar_vocab_new(&r->v, r->t, 0, &r->err) != 0)
        abort();
}

static inline void rig_drop(struct rig *r)
{
    constraint_free(r->c);
    grammar_free(r->g);
    r->c = NULL;
    r->g = NULL;
    r->err = (struct error){0};
}

static inline void rig_end(struct rig *r)
{
    rig_drop(r);
    grammar_vocab_free(r->v);
    tokenizer_free(r->t);
}

// Compiles, in place of what was there; false and r->err when it is refused.
static inline bool rig_gbnf(struct rig *r, const char *text)
{
    rig_drop(r);
    return grammar_from_gbnf(&r->g, r->v, str_from(text), &r->err) == 0 &&
           constraint_new(&r->c, r->g, NULL, &r->err) == 0;
}

static inline bool rig_schema(struct rig *r, const char *json, bool open)
{
    rig_drop(r);
    struct schema_options o = {.open_objects = open};
    return grammar_from_schema(&r->g, r->v, str_from(json), &o, &r->err) == 0 &&
           constraint_new(&r->c, r->g, NULL, &r->err) == 0;
}

// Whether the text, byte by byte, is a whole answer.
static inline bool rig_accepts_n(struct rig *r, const char *text, size_t n)
{
    constraint_reset(r->c);
    for (size_t i = 0; i < n; i++)
        if (constraint_accept(r->c, RIG_BYTES + (unsigned char)text[i], NULL) != 0)
            return false;
    return constraint_can_end(r->c);
}

static inline bool rig_accepts(struct rig *r, const char *text)
{
    return rig_accepts_n(r, text, strlen(text));
}

// Whether the mask has exactly the tokens that can be accepted; the first that differs goes to *bad.
static inline bool rig_mask_is_right(struct rig *r, int32_t *bad)
{
    const uint32_t *mask = constraint_mask(r->c, &r->err);
    if (!mask)
        return false;
    for (*bad = 0; *bad < tokenizer_n_vocab(r->t); ++*bad)
        if (mask_has(mask, *bad) != constraint_allows(r->c, *bad))
            return false;
    return true;
}

// A token of the mask, each as likely as the others but for `end_weight` in 16 chances to end where that is allowed.
// -1: the mask is empty or failed.
static inline int32_t rig_choose(struct rig *r, uint64_t *seed, unsigned end_weight)
{
    const uint32_t *mask = constraint_mask(r->c, &r->err);
    int32_t n = tokenizer_n_vocab(r->t), count = 0, chosen = -1;
    if (!mask)
        return -1;
    if (mask_has(mask, RIG_END) && random_below(seed, 16) < end_weight)
        return RIG_END;
    for (int32_t id = 0; id < n; id++)
        if (mask_has(mask, id) && (id == RIG_END || !tokenizer_is_end(r->t, id)) &&
            random_below(seed, (size_t)++count) == 0)
            chosen = id;
    return chosen;
}

// A random answer of up to `limit` tokens, at the end of which the shortest way out is taken by bytes where there is
// one. Returns its length in bytes, -1 when it ran into a dead end or the limit.
static inline int rig_answer(struct rig *r, uint64_t *seed, int limit, char *out, int cap)
{
    int n = 0;
    constraint_reset(r->c);
    for (int i = 0; i < limit; i++) {
        int32_t token = rig_choose(r, seed, i > limit / 4 ? 15 : 2);
        if (token == RIG_END)
            return n;
        if (token < 0 || constraint_accept(r->c, token, &r->err) != 0) {
            fprintf(stderr, "dead end behind: %.*s (%s)\n", n, out, r->err.text);
            return -1;
        }
        struct str piece = tokenizer_piece(r->t, token, false);
        if (n + (int)piece.len > cap)
            return -1;
        memcpy(out + n, piece.data, piece.len);
        n += (int)piece.len;
    }
    return -1;
}

#endif
