// Fuzz target: any text as a grammar, a schema or a pattern. What compiles is followed by a few tokens; every mask must
// hold exactly the tokens that can be accepted, and one at least.
//
//   clang -g -O1 -fsanitize=fuzzer,address,undefined -I. -D_GNU_SOURCE tests/fuzz/fuzz_grammar.c engine/grammar/*.c
//       engine/text/*.c engine/json.c engine/json_write.c engine/value.c kernels/text.c gguf/*.c -lm -lpthread
//       -o fuzz_grammar                                                                            (one line)
//   ./fuzz_grammar -max_len=4096 -rss_limit_mb=1024 -timeout=10 CORPUS
// With -DFUZZ_SEEDS it is a program that writes a few sound inputs into the directory that it is given, to start from.
//
// An input is: what it is (G, S, P), a byte that chooses tokens, then the text.
#include "tests/grammar_rig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_grammar: %s\n", what);
    abort();
}

static int compile(struct rig *r, char kind, struct str text)
{
    char schema[8192];
    size_t n = 0;
    if (kind == 'S')
        return grammar_from_schema(&r->g, r->v, text, NULL, &r->err);
    if (kind != 'P')
        return grammar_from_gbnf(&r->g, r->v, text, &r->err);
    n += (size_t)snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"");
    for (size_t i = 0; i < text.len && n < sizeof schema - 16; i++) {
        unsigned char c = (unsigned char)text.data[i];
        n += (size_t)snprintf(schema + n, sizeof schema - n,
                              c < 0x20                ? "\\u%04x"
                              : c == '"' || c == '\\' ? "\\%c"
                                                      : "%c",
                              c);
    }
    n += (size_t)snprintf(schema + n, sizeof schema - n, "\"}");
    return grammar_from_schema(&r->g, r->v, (struct str){schema, n}, NULL, &r->err);
}

// Grammars with more readings than are followed may say one thing in the mask and another one by one.
static void follow(struct rig *r, uint64_t seed)
{
    check(constraint_new(&r->c, r->g, NULL, &r->err) == 0, "no constraint");
    for (int i = 0; i < 6; i++) {
        int32_t token = rig_choose(r, &seed, 2);
        if (token < 0) {
            check(r->err.code == E_USAGE || r->err.code == E_MEMORY, "a dead end");
            return;
        }
        if (token == RIG_END)
            return;
        check(constraint_accept(r->c, token, &r->err) == 0 || strstr(r->err.text, "readings"),
              "a token of the mask is refused");
        char forced[16];
        constraint_forced(r->c, forced, sizeof forced);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rig r;
    if (!r.t)
        rig_begin(&r);
    if (size < 2)
        return 0;
    if (compile(&r, (char)data[0], (struct str){(const char *)data + 2, size - 2}) == 0)
        follow(&r, data[1]);
    else
        check(r.err.code == E_USAGE || r.err.code == E_MEMORY, "a failure without an error");
    rig_drop(&r);
    return 0;
}

#ifdef FUZZ_SEEDS
static const char *const seeds[] = {
    "G\1root ::= \"a\" [b-z]* (\"x\" | \"y\"){2,5} # comment\n",
    "G\2root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\" | \"1\"\n",
    "G\3root ::= <think> !</think>* </think> .* | [^\\x00-\\x1F\\u00e9]+\n",
    "S\1{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-3,\"maximum\":12.5,"
    "\"multipleOf\":0.5}},"
    "\"required\":[\"a\"],\"additionalProperties\":{\"$ref\":\"#\"}}",
    "S\2{\"oneOf\":[{\"type\":\"array\",\"prefixItems\":[{\"const\":1}],\"items\":{\"enum\":[1,\"a\",null]},"
    "\"contains\":{\"const\":1}},"
    "{\"not\":{\"type\":\"string\",\"minLength\":2}}],\"if\":{\"required\":[\"x\"]},\"then\":{\"maxProperties\":2}}",
    "S\3{\"type\":\"object\",\"patternProperties\":{\"^a|b$\":{}},\"propertyNames\":{\"maxLength\":5},"
    "\"minProperties\":1,"
    "\"dependentRequired\":{\"x\":[\"y\"]},\"properties\":{\"x\":{\"format\":\"date\"},\"y\":{\"pattern\":\"\\\\d+\"}}"
    "}",
    "S\4{\"type\":\"array\",\"items\":{\"enum\":[1,2,3]},\"uniqueItems\":true,\"minItems\":2,\"$defs\":{\"a\":{\"$"
    "anchor\":\"b\"}}}",
    "P\1^(?=.*\\d)(?!x)[a-z\\d_-]{2,8}(foo|b.r)?$",
    "P\2\\p{Lu}\\u00e9[^\\w\\s]+(?:a|b)*?$|^c",
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < COUNT_OF(seeds) && argc > 1; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed-%zu", argv[1], i);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(seeds[i], 1, strlen(seeds[i]), f) != strlen(seeds[i]) || fclose(f))
            return 1;
    }
    return 0;
}
#endif
