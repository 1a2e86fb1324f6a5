// Tests GBNF and the engine below it: what a grammar accepts, that masks agree with acceptance, and what is refused.
#include "engine/grammar/compiled.h"
#include "tests/grammar_rig.h"
#include "tests/stopwatch.h"

#include <criterion/criterion.h>
#include <malloc.h>

// Texts are separated by |, as in "yes|yes"; "\1" stands for the empty text.
static void check_texts(struct rig *r, const char *grammar, const char *list, bool accepted)
{
    char *copy = strdup(list), *rest = copy;
    for (char *text; (text = strsep(&rest, "|")) != NULL;)
        cr_expect_eq(rig_accepts(r, *text == '\1' ? "" : text), accepted, "%s: '%s' must%s be accepted", grammar, text,
                     accepted ? "" : " not");
    free(copy);
}

Test(gbnf, accepts_what_the_rules_say_and_nothing_else)
{
    static const struct {
        const char *grammar, *yes, *no;
    } cases[] = {
        {"root ::= \"yes\" | \"no\"", "yes|no", "\1|y|yesno|maybe|Yes"},
        {"root ::= \"a\"*", "\1|a|aaaaaaaaa", "b|ab"},
        {"root ::= \"a\"+ \"b\"?", "a|ab|aaab", "\1|b|abb"},
        {"root ::= \"ab\"{2}", "abab", "ab|ababab|aba"},
        {"root ::= \"a\"{2,}", "aa|aaa|aaaaaa", "\1|a"},
        {"root ::= \"a\"{1,3}", "a|aa|aaa", "\1|aaaa"},
        {"root ::= \"a\"{,2}", "\1|a|aa", "aaa"},
        {"root ::= \"a\"{0}", "\1", "a"},
        {"root ::= [a-cx-z_-]", "a|b|c|x|z|_|-", "d|\1|aa"},
        {"root ::= [^a-c\\n]", "d|é|€|😀| ", "a|b|c|\n|\1|dd"},
        {"root ::= [ぁ-ゟ]+", "ひらがな", "カ|a|\1"},
        {"root ::= . .", "ab|é€|😀!", "a|abc"},
        {"root ::= \"\\x41\\u00e9\\U0001F600\\t\\\"\\\\\"", "Aé😀\t\"\\", "A"},
        {"root ::= [\\]\\[\\x41-\\x43^]", "]|[|A|C|^", "D|\\"},
        {"root ::= (\"a\" | (\"b\" \"c\")*) \"d\"", "ad|d|bcd|bcbcd", "abcd|bd"},
        {"root ::= a b\na ::= \"x\" |\n  \"y\"\nb ::= (\n \"1\"\n | # two\n \"2\" )", "x1|y2", "x|1|xy"},
        {"root ::= \"a\"\n  | \"b\"\n", "a|b", "ab"},
        {"# a comment\nroot ::= \"a\" # another\n# third", "a", "b"},
        {"root ::=\n \"a\"", "a", "\1"},
        {"root ::= x x\nx ::= \"(\" x \")\" | \"\"", "\1|()|()()|((()))()", "(|())|)("},
        {"root ::= \"a\" root \"b\" | \"c\"", "c|acb|aacbb", "ab|acbb|aacb"},
        {"root ::= \"a\" | \"a\" root", "a|aaaa", "\1|b"},
        {"root ::= (\"a\"? \"b\"?)*", "\1|a|b|abba|bbaa", "c"},
        {"root ::= (\"a\"?){50} \"b\"", "b|ab|aaab", "a"},
        {"root ::= r0\nr0 ::= r1 | \"x\"\nr1 ::= \"y\" r0", "x|yx|yyyx", "y"},
        {"root ::= e\ne ::= t ([-+] t)*\nt ::= [0-9]+ | \"(\" e \")\"", "1|1+2|(1)|((12-3)+4)-(5)", "1+|(1|1)|"},
        {"root ::= Under_score-1\nUnder_score-1 ::= \"u\"", "u", "v"},
        {"root ::= s*\ns ::= \"a\" s \"b\" | \"c\"", "\1|c|acb|cacbc", "ab|acbb"},
        {"root ::= \"a\" {2} \"b\"", "aab", "ab"},
        {"root ::= [a-z]{3}[0-9]{2,4}", "abc12|abc1234", "abc1|abc12345"},
    };
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert(rig_gbnf(&r, cases[i].grammar), "%s: %s", cases[i].grammar, r.err.text);
        check_texts(&r, cases[i].grammar, cases[i].yes, true);
        check_texts(&r, cases[i].grammar, cases[i].no, false);
    }
    rig_end(&r);
}

Test(gbnf, refuses_by_line_and_column)
{
    static const struct {
        const char *grammar, *error;
    } cases[] = {
        {"", "no rule named root"},
        {"a ::= \"b\"", "no rule named root"},
        {"root ::= b", "line 1, column 10: rule b is not defined"},
        {"root ::= \"é\" b", "line 1, column 14: rule b is not defined"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: this rule is defined before"},
        {"root ::= \"a", "line 1, column 10: this text has no closing \""},
        {"root ::= [a", "line 1, column 10: this class has no closing ]"},
        {"root ::= [z-a]", "line 1, column 11: this range ends before it begins"},
        {"root ::= (\"a\"", "line 1, column 14: a ) is expected"},
        {"root ::= \"\\q\"", "line 1, column 11: an escape that is not known"},
        {"root ::= \"\\xg0\"", "line 1, column 13: a hexadecimal digit is missing"},
        {"root ::= \"\\uD800\"", "line 1, column 13: this is no character of Unicode"},
        {"root ::= \"a\"{3,2}", "line 1, column 13: this repeat has a minimum above its maximum"},
        {"root ::= \"a\"{x}", "line 1, column 13: a repeat is written"},
        {"root ::= \"a\"{,}", "line 1, column 13: a repeat is written"},
        {"root : \"a\"", "line 1, column 6: ::= is expected"},
        {"root ::= \"a\" )", "line 1, column 14: this is nothing that a rule is made of"},
        {"root ::= root \"a\" | \"b\"", "rule root begins with itself (left recursion)"},
        {"root ::= a\na ::= b \"x\"\nb ::= \"\" a | \"c\"", "begins with itself (left recursion)"},
        {"root ::= a\na ::= e a \"x\" | \"y\"\ne ::= \"z\"?", "rule a begins with itself (left recursion)"},
        {"root ::= \"a\" root", "root matches no text"},
        {"root ::= [^\\x00-\\U0010FFFF]", "root matches no text"},
        {"root ::= <nonsense words>", "line 1, column 10: this is not one token of the vocabulary"},
        {"root ::= <[99999]>", "the vocabulary has no token of that number"},
        {"root ::= </s>", "line 1, column 10: this token ends the answer"},
        {"root ::= \"\xFF\"", "line 1, column 11: bytes that are no UTF-8"},
        {"root ::= \"a\"{1000000000}{1000000000}", "too large"},
        {"root ::= ((((\"ab\"{1000}){1000}){1000}){1000})", "too large"},
    };
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_expect(!rig_gbnf(&r, cases[i].grammar), "%s", cases[i].grammar);
        cr_expect_eq(r.err.code, E_USAGE);
        cr_expect(strstr(r.err.text, cases[i].error), "%s:\n  is:      %s\n  must be: %s", cases[i].grammar, r.err.text,
                  cases[i].error);
    }
    rig_end(&r);
}

static bool rig_plain(struct rig *r, const char *pattern, const struct str *list, size_t n)
{
    rig_drop(r);
    int status = pattern ? grammar_from_regex(&r->g, r->v, str_from(pattern), &r->err)
                         : grammar_from_texts(&r->g, r->v, list, n, &r->err);
    return !status && constraint_new(&r->c, r->g, NULL, &r->err) == 0;
}

Test(plain_texts, match_a_pattern_as_a_whole_with_or_without_anchors)
{
    static const struct {
        const char *pattern, *yes, *no;
    } cases[] = {
        {"[0-9]{3}", "123", "12|1234|a123|\1"},
        {"^[0-9]{3}$", "123", "1234|a123"},
        {"a+(b)?", "a|ab|aaab", "\1|b|abb|cab"},
        {"^a$|b", "a|b", "ab|bb|xb"},
        {"yes", "yes", "y|yesno|ayes"},
        {"(?:^|x)a", "a|xa", "ya|ba|aa"},
        {"(?=.*b)[ab]{3}", "aab|bbb|bab", "aaa|ab|abab"},
        {"(?!b)[ab]{2}$", "aa|ab", "ba|bb|a"},
        {"\\(\\d+\\)", "(1)|(22)", "()|1"},
    };
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_assert(rig_plain(&r, cases[i].pattern, NULL, 0), "%s: %s", cases[i].pattern, r.err.text);
        check_texts(&r, cases[i].pattern, cases[i].yes, true);
        check_texts(&r, cases[i].pattern, cases[i].no, false);
    }
    cr_expect(!rig_plain(&r, "a(b", NULL, 0));
    cr_expect(!rig_plain(&r, "a\\1", NULL, 0));
    cr_expect(!rig_plain(&r, "[^\\s\\S]", NULL, 0));
    rig_end(&r);
}

Test(plain_texts, are_those_of_a_list)
{
    const struct str list[] = {STR_LIT("yes"), STR_LIT("no"), STR_LIT("\"é\\\n"), STR_LIT("yes, of course")};
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_plain(&r, NULL, list, COUNT_OF(list)), "%s", r.err.text);
    check_texts(&r, "list", "yes|no|\"é\\\n|yes, of course", true);
    check_texts(&r, "list", "\1|ye|noyes|yes, |é", false);
    rig_end(&r);
}

// <think> is a control token of the vocabulary, which bytes cannot write; <x> is text.
Test(frames, stand_around_a_value_once_or_often)
{
    static const int32_t think = RIG_PIECES;
    struct rig r;
    rig_begin(&r);
    for (int many = 0; many < 2; many++) {
        struct schema_options o = {.frame = {STR_LIT("<x>"), STR_LIT("</x>"), STR_LIT("\n"), many}};
        rig_drop(&r);
        cr_assert_eq(grammar_from_schema(&r.g, r.v, STR_LIT("{\"enum\":[1,2]}"), &o, &r.err), 0, "%s", r.err.text);
        cr_assert_eq(constraint_new(&r.c, r.g, NULL, &r.err), 0);
        check_texts(&r, "frame", "<x>\n1\n</x>", true);
        check_texts(&r, "frame", "1|<x>\n1|<x>1</x>|<x>\n3\n</x>|\1", false);
        check_texts(&r, "frame", "<x>\n1\n</x>\n<x>\n2\n</x>", many);
    }
    struct schema_options o = {.frame = {.open = STR_LIT("<think>")}};
    rig_drop(&r);
    cr_assert_eq(grammar_from_schema(&r.g, r.v, STR_LIT("{\"enum\":[1]}"), &o, &r.err), 0, "%s", r.err.text);
    cr_assert_eq(constraint_new(&r.c, r.g, NULL, &r.err), 0);
    check_texts(&r, "control token", "<think>1|1", false);
    constraint_reset(r.c);
    cr_assert_eq(constraint_accept(r.c, think, &r.err), 0);
    cr_assert_eq(constraint_accept(r.c, RIG_BYTES + '1', &r.err), 0);
    cr_assert(constraint_can_end(r.c));
    rig_end(&r);
}

// Two ways to read each letter, which are told apart at the end alone.
static const char two_ways[] =
    "root ::= a | b\na ::= \"a\" (a \"x\" | b \"y\") | \"c\"\nb ::= \"a\" (a \"x\" | b \"y\") | \"d\"";

// Grammars of all shapes, for what must hold in all of them.
static const char *const shapes[] = {
    "root ::= value\nvalue ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? ws \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? ws \"]\"\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4}))* \"\\\"\"\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]{1,3})?\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
    "root ::= e\ne ::= t ([-+] t)*\nt ::= [0-9a]+ | \"(\" e \")\"",
    "root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"x\"",
    "root ::= [^\\x00-\\x1F]{0,100} \"\\n\"",
    "root ::= ([a-z]{2,3} \" \"?){50,60}",
    "root ::= (\"a\" | \"aa\" | \"aaa\"){45,90} \"b\"",
    "root ::= <think> !</think>* </think> .*",
    "root ::= \"<\" [a-z]{1,5} \">\" root? \"</\" [a-z]{1,5} \">\"",
    "root ::= (\"[\" root? \"]\")+",
    "root ::= x{3}\nx ::= \"(\" x* \")\" | \"aa\"",
};

Test(masks, hold_exactly_the_tokens_that_are_accepted)
{
    uint64_t seed = 11;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        cr_assert(rig_gbnf(&r, shapes[i]), "%s: %s", shapes[i], r.err.text);
        for (int walk = 0; walk < 12; walk++) {
            constraint_reset(r.c);
            for (int step = 0; step < 40; step++) {
                int32_t bad, token;
                cr_assert(rig_mask_is_right(&r, &bad), "%s: token %d at step %d of walk %d (%s)", shapes[i], bad, step,
                          walk, r.err.text);
                token = rig_choose(&r, &seed, 1);
                cr_assert_geq(token, 0, "%s: a dead end", shapes[i]);
                if (token == RIG_END)
                    break;
                cr_assert_eq(constraint_accept(r.c, token, &r.err), 0, "%s", r.err.text);
            }
        }
    }
    rig_end(&r);
}

// A vocabulary of many words, of all kinds of characters, of one byte to a hundred.
static struct tokenizer *words_tokenizer(uint64_t *seed, int n)
{
    static const char *const parts[] = {"a",  "e", "on",   "ing",  "THE",  "Z",    "7",  "42", " ",
                                        "_",  "-", ".",    "/",    "\"",   "\\",   "\n", "é",  "€",
                                        "中", "😀", "\x01", "\x7F", "\xC3", "\x98", "{",  "="};
    struct vocab_file f;
    struct tokenizer *t;
    struct error err = {0};
    vocab_begin(&f);
    vocab_key_str(&f, "model", "llama");
    vocab_key_array(&f, "tokens", GGUF_STRING, (size_t)n);
    bool *seen = calloc(1 << 20, sizeof *seen); // by hash: no two tokens may be spelled alike
    for (int i = 0; i < n;) {
        char text[128] = "</s>";
        size_t len = i ? 0 : 4, most = 1 + random_below(seed, random_below(seed, 20) ? 12 : 100);
        if (i > 0 && i <= 256)
            len = (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)i - 1);
        bool plain = random_below(seed, 4) > 0;
        while (i > 256 && len < most) {
            const char *part = parts[random_below(seed, plain ? 6 : COUNT_OF(parts))];
            len += (size_t)snprintf(text + len, sizeof text - len, "%s", part);
        }
        uint32_t hash = 1;
        for (size_t k = 0; k < len; k++)
            hash = (hash ^ (uint8_t)text[k]) * 0x01000193u;
        if (seen[hash >> 12])
            continue;
        seen[hash >> 12] = true;
        vocab_put_string(&f, text, len);
        i++;
    }
    free(seen);
    vocab_key_array(&f, "scores", GGUF_F32, (size_t)n);
    for (int i = 0; i < n; i++)
        vocab_put(&f, &(float){(float)-i}, 4);
    vocab_key_array(&f, "token_type", GGUF_I32, (size_t)n);
    for (int i = 0; i < n; i++)
        vocab_put(&f, &(int32_t){i == 0 ? 3 : i <= 256 ? 6 : 1}, 4);
    vocab_key_u32(&f, "eos_token_id", 0);
    cr_assert_eq(vocab_load(&f, 0, &t, &err), 0, "%s", err.text);
    return t;
}

static struct rig words_rig(uint64_t *seed, int n)
{
    struct rig r = {.t = words_tokenizer(seed, n)};
    cr_assert_eq(grammar_vocab_new(&r.v, r.t, 0, &r.err), 0, "%s", r.err.text);
    return r;
}

// Texts that count characters, lengths around those of tokens, letters that are not alike, and characters of several
// bytes that are.
static const char *const texts[] = {
    "root ::= [^\"\\\\]* \"\\\"\"",
    "root ::= [a-z]{1,7} [^x]*",
    "root ::= [^z\\n]{20}",
    "root ::= .{2,90}",
    "root ::= [a-fA-F0-9]{4,300}",
    "root ::= ([a-z0-9_]+ [ .-])* [A-Z]",
    "root ::= \"a\"? ([^\\x00-\\x1F中]{0,45} \"=\")+",
    "root ::= (word \"-\")+\nword ::= [^-\\n]+",
};

Test(masks, of_what_is_read_alike_are_exact)
{
    uint64_t seed = 7;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct rig r = words_rig(&seed, 4000);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        cr_assert(rig_gbnf(&r, texts[i]), "%s: %s", texts[i], r.err.text);
        for (int step = 0; step < 24; step++) {
            int32_t bad, token;
            if (step % 8 == 0)
                constraint_reset(r.c);
            cr_assert(rig_mask_is_right(&r, &bad), "%s: token %d at step %d (%s)", texts[i], bad, step, r.err.text);
            token = rig_choose(&r, &seed, 0);
            if (token <= 0)
                break;
            cr_assert_eq(constraint_accept(r.c, token, &r.err), 0, "%s", r.err.text);
        }
    }
    rig_end(&r);
}

Test(masks, of_texts_visit_few_of_the_tokens)
{
    uint64_t seed = 8;
    fprintf(stderr, "seed %llu\n", (unsigned long long)seed);
    struct rig r = words_rig(&seed, 30000);
    static const char *const schemas[] = {"{\"type\": \"string\"}", "{\"type\": \"string\", \"maxLength\": 500}",
                                          "{\"type\": \"string\", \"minLength\": 10, \"maxLength\": 60}"};
    for (size_t i = 0; i < COUNT_OF(schemas); i++) {
        cr_assert(rig_schema(&r, schemas[i], false), "%s", r.err.text);
        for (const char *text = "\"wo"; *text; text++)
            cr_assert_eq(constraint_accept(r.c, 1 + *text, &r.err), 0);
        uint64_t before = r.g->masks.n_visited, nodes = r.v->trees[TREE_SHORT].n + r.v->trees[TREE_LONG].n;
        cr_assert_not_null(constraint_mask(r.c, &r.err));
        uint64_t visited = r.g->masks.n_visited - before;
        cr_expect_lt(visited, nodes / 2, "%s: %llu of %llu nodes", schemas[i], (unsigned long long)visited,
                     (unsigned long long)nodes);
        fprintf(stderr, "%s: %llu of %llu nodes\n", schemas[i], (unsigned long long)visited, (unsigned long long)nodes);
    }
    rig_end(&r);
}

Test(masks, allow_the_end_exactly_where_the_text_is_whole)
{
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, "root ::= \"a\" \"b\"?"));
    const char text[] = "ab";
    for (int i = 0; i <= 2; i++) {
        const uint32_t *mask = constraint_mask(r.c, &r.err);
        cr_assert_not_null(mask);
        cr_expect_eq(mask_has(mask, RIG_END), i > 0);
        cr_expect_eq(mask_has(mask, RIG_PIECES + 2), i > 0, "<|im_end|> ends an answer as well");
        cr_expect_eq(constraint_can_end(r.c), i > 0);
        cr_expect_eq(constraint_must_end(r.c), i == 2);
        if (i < 2)
            cr_assert_eq(constraint_accept(r.c, RIG_BYTES + text[i], &r.err), 0);
    }
    cr_expect_neq(constraint_accept(r.c, RIG_BYTES + 'b', &r.err), 0);
    cr_expect_neq(constraint_accept(r.c, RIG_BOS, &r.err), 0);
    cr_expect_neq(constraint_accept(r.c, -1, &r.err), 0);
    cr_expect_neq(constraint_accept(r.c, 1 << 30, &r.err), 0);
    cr_expect_eq(constraint_length(r.c), 2);
    rig_end(&r);
}

Test(constraint, goes_back_and_splits)
{
    uint64_t seed = 5;
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, shapes[0]));
    size_t words = ((size_t)tokenizer_n_vocab(r.t) + 31) / 32;
    uint32_t *masks = calloc(64 * words, sizeof *masks);
    int32_t tokens[64];
    int n = 0;
    for (; n < 60; n++) {
        memcpy(masks + (size_t)n * words, constraint_mask(r.c, &r.err), words * sizeof *masks);
        tokens[n] = rig_choose(&r, &seed, 0);
        if (tokens[n] == RIG_END)
            break;
        cr_assert_eq(constraint_accept(r.c, tokens[n], &r.err), 0);
    }
    for (int round = 0; round < 50; round++) {
        int to = (int)random_below(&seed, (size_t)n);
        struct constraint *twin;
        cr_assert_eq(constraint_clone(&twin, r.c, &r.err), 0);
        constraint_rewind(twin, to);
        cr_expect_eq(constraint_length(twin), MIN(to, constraint_length(r.c)));
        cr_expect_arr_eq(constraint_mask(twin, &r.err), masks + (size_t)to * words, words * sizeof *masks);
        for (int i = to; i < n; i++)
            cr_assert_eq(constraint_accept(twin, tokens[i], &r.err), 0);
        constraint_free(twin);
        cr_expect_eq(constraint_length(r.c), n);
    }
    free(masks);
    rig_end(&r);
}

Test(constraint, tells_what_must_come)
{
    struct rig r;
    char out[32];
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, "root ::= \"{\\\"name\\\": \" (\"true\" | \"try\") \"}\""));
    cr_expect_eq(constraint_forced(r.c, out, sizeof out), 11);
    cr_expect_eq(memcmp(out, "{\"name\": tr", 11), 0);
    cr_expect_eq(constraint_forced(r.c, out, 4), 4);
    for (const char *p = "{\"name\": tr"; *p; p++)
        cr_assert_eq(constraint_accept(r.c, RIG_BYTES + *p, &r.err), 0);
    cr_expect_eq(constraint_forced(r.c, out, sizeof out), 0);
    cr_assert_eq(constraint_accept(r.c, RIG_BYTES + 'y', &r.err), 0);
    cr_expect_eq(constraint_forced(r.c, out, sizeof out), 1);
    rig_end(&r);
}

// --- after thinking ---

static bool take(struct rig *r, const char *text)
{
    for (; *text; text++)
        if (constraint_accept(r->c, RIG_BYTES + (unsigned char)*text, &r->err) != 0)
            return false;
    return true;
}

static void begin_after(struct rig *r, const char *trigger)
{
    constraint_free(r->c);
    struct constraint_options o = {.trigger = str_from(trigger)};
    cr_assert_eq(constraint_new(&r->c, r->g, &o, &r->err), 0);
}

Test(trigger, starts_the_grammar_behind_its_text_in_whatever_tokens)
{
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, "root ::= \"[]\""));
    begin_after(&r, "</think>");
    // anything may come but the end, also what looks like the beginning of the trigger
    cr_expect(constraint_is_waiting(r.c));
    cr_assert(take(&r, "hm {</thin</thi <"));
    cr_expect(!mask_has(constraint_mask(r.c, &r.err), RIG_END));
    cr_expect(mask_has(constraint_mask(r.c, &r.err), RIG_PIECES));
    cr_expect(!constraint_can_end(r.c));
    cr_assert(take(&r, "</think>"));
    cr_expect(!constraint_is_waiting(r.c));
    cr_expect(!take(&r, "x"));
    cr_assert(take(&r, "\n\n[]"));
    cr_expect(constraint_can_end(r.c));
    // going back to before the trigger
    constraint_rewind(r.c, 3);
    cr_expect(constraint_is_waiting(r.c));
    // the control token of that name
    cr_assert_eq(constraint_accept(r.c, RIG_PIECES + 1, &r.err), 0);
    cr_expect(!constraint_is_waiting(r.c));
    int32_t bad;
    cr_assert(rig_mask_is_right(&r, &bad), "token %d", bad);
    cr_assert(take(&r, "[]"));
    cr_expect(constraint_must_end(r.c));
    rig_end(&r);
}

Test(trigger, may_end_within_a_token_whose_rest_the_grammar_reads)
{
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, "root ::= \"name\" [0-9]"));
    begin_after(&r, "x\"");
    cr_assert(take(&r, "x"));
    int32_t bad;
    cr_assert(rig_mask_is_right(&r, &bad), "token %d", bad);
    const uint32_t *mask = constraint_mask(r.c, &r.err);
    for (int32_t id = RIG_PIECES; id < tokenizer_n_vocab(r.t); id++) {
        struct str text = tokenizer_piece(r.t, id, true);
        bool completes = text.len > 0 && text.data[0] == '"';
        bool fits = completes && (text.len == 1 || (text.len > 1 && !strncmp(text.data + 1, "name", text.len - 1)));
        if (completes)
            cr_expect_eq(mask_has(mask, id), fits, "'%.*s'", (int)text.len, text.data);
    }
    rig_end(&r);
}

// --- tokens by name ---

Test(gbnf, names_tokens)
{
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, "root ::= <think> !</think>* </think> \"ok\""), "%s", r.err.text);
    const uint32_t *mask = constraint_mask(r.c, &r.err);
    for (int32_t id = 0; id < tokenizer_n_vocab(r.t); id++)
        cr_expect_eq(mask_has(mask, id), id == RIG_PIECES, "token %d", id);
    cr_assert_eq(constraint_accept(r.c, RIG_PIECES, &r.err), 0);
    cr_expect(!mask_has(constraint_mask(r.c, &r.err), RIG_END));
    cr_assert(take(&r, "any </think> text"), "%s", r.err.text);
    cr_assert_eq(constraint_accept(r.c, RIG_PIECES + 1, &r.err), 0);
    cr_expect(!take(&r, "n"));
    cr_assert(take(&r, "ok"));
    cr_expect(constraint_must_end(r.c));
    cr_assert(rig_gbnf(&r, "root ::= <[259]> [a]"), "%s", r.err.text);
    cr_assert_eq(constraint_accept(r.c, 259, &r.err), 0);
    rig_end(&r);
}

// --- hostile grammars ---

static void must_be_quick(struct rig *r, const char *what, const char *grammar)
{
    double begin = seconds();
    if (rig_gbnf(r, grammar)) {
        uint64_t seed = 1;
        for (int i = 0; i < 30; i++) {
            int32_t token = rig_choose(r, &seed, 0);
            if (token < 0 || token == RIG_END || constraint_accept(r->c, token, &r->err) != 0)
                break;
        }
    } else {
        cr_expect(r->err.code == E_USAGE || r->err.code == E_MEMORY, "%s", what);
    }
    cr_expect_lt(seconds() - begin, 3 * patience(), "%s: %.1f s (%s)", what, seconds() - begin, r->err.text);
}

static char *repeated(const char *before, const char *part, int n, const char *after)
{
    size_t len = strlen(part);
    char *text = malloc(strlen(before) + len * (size_t)n + strlen(after) + 1), *p = text + strlen(before);
    strcpy(text, before);
    for (int i = 0; i < n; i++, p += len)
        memcpy(p, part, len);
    strcpy(p, after);
    return text;
}

Test(hostile, grammars_are_refused_or_followed_within_bounds)
{
    struct rig r;
    // meson has every byte that is freed overwritten, which is most of the time where lists grow to gigabytes in sum
    mallopt(M_PERTURB, 0);
    rig_begin(&r);
    char *text = repeated("root ::= ", "(", 100000, "");
    must_be_quick(&r, "open groups", text);
    cr_expect(strstr(r.err.text, "nested too deeply"), "%s", r.err.text);
    free(text);
    must_be_quick(&r, "a million", "root ::= \"a\"{1000000}");
    must_be_quick(&r, "a million at most", "root ::= [a-z]{0,1000000} \"\\n\"");
    must_be_quick(&r, "empty repeats", "root ::= (\"a\"?){100000}");
    must_be_quick(&r, "nested stars", "root ::= (((((\"a\"*)*)*)*)*)* \"b\"");
    must_be_quick(&r, "exponential automaton", "root ::= [ab]* \"a\" [ab]{200} \"c\"");
    must_be_quick(&r, "ambiguous", "root ::= s\ns ::= \"a\" s s | \"a\"");
    must_be_quick(&r, "ambiguous stacks", two_ways);
    text = repeated("root ::= \"a", "a", 1000000, "\"");
    must_be_quick(&r, "a long text", text);
    free(text);
    text = repeated("root ::= \"a\"", " | \"a\" | \"b\"", 100000, "");
    must_be_quick(&r, "many choices", text);
    free(text);
    text = repeated("root ::= a\na ::= \"x\" a", " | \"y\" a", 50000, " | \"z\"");
    must_be_quick(&r, "many calls", text);
    free(text);
    // each rule twice the one before
    size_t room = 1 << 16, n = 0;
    text = malloc(room);
    n += (size_t)snprintf(text + n, room - n, "root ::= r60 r60\nr0 ::= \"ab\" | \"cd\"\n");
    for (int i = 1; i <= 60; i++)
        n += (size_t)snprintf(text + n, room - n, "r%d ::= r%d r%d\n", i, i - 1, i - 1);
    must_be_quick(&r, "doubling", text);
    n = (size_t)snprintf(text, room, "root ::= r0\n");
    for (int i = 0; i < 1000; i++)
        n += (size_t)snprintf(text + n, room - n, "r%d ::= r%d \"a\" | \"b\"\n", i, i + 1);
    snprintf(text + n, room - n, "r1000 ::= \"c\" r0?");
    must_be_quick(&r, "a long cycle", text);
    free(text);
    rig_end(&r);
}

Test(hostile, more_readings_than_are_followed_lead_into_no_dead_end)
{
    uint64_t seed = 3;
    char out[4096];
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, two_ways));
    for (int i = 0; i < 20; i++)
        cr_expect_geq(rig_answer(&r, &seed, 2000, out, sizeof out), 1, "%s", r.err.text);
    rig_end(&r);
}

Test(hostile, depth_has_a_limit_that_leads_into_no_dead_end)
{
    struct rig r;
    rig_begin(&r);
    cr_assert(rig_gbnf(&r, "root ::= \"[\" root \"]\" | \"{\" (root \",\"){2} \"}\" | \"x\""));
    int depth = 0;
    while (constraint_accept(r.c, RIG_BYTES + '[', &r.err) == 0 && depth < 10000)
        depth++;
    cr_expect(depth >= 90 && depth < 10000, "%d", depth);
    int32_t bad;
    cr_expect(rig_mask_is_right(&r, &bad), "token %d", bad);
    cr_assert(take(&r, "x"));
    for (int i = 0; i < depth; i++)
        cr_assert(take(&r, "]"));
    cr_expect(constraint_must_end(r.c));
    rig_end(&r);
}

Test(hostile, texts_cut_at_every_byte_do_no_harm)
{
    struct rig r;
    rig_begin(&r);
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        for (size_t n = 0; n <= strlen(shapes[i]); n++) {
            rig_drop(&r);
            char *cut = strndup(shapes[i], n);
            rig_gbnf(&r, cut);
            free(cut);
        }
    rig_end(&r);
}
