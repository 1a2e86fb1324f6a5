// Tests that the tests of PTX detect wrong kernels, by mutation: emitted kernels are changed in one random place
// (another register, a number off by one, a barrier removed, a comparison or an operation reversed, an instruction
// removed), and each change must cause a fault or a wrong result.
//
// A change that no longer parses is not counted, because any compiler would find it. Some changes have no effect (a
// bound that no size reaches, an equal address) and are never detected, so the required share is below 1.
#include "gguf/dtype.h"
#include "bench/ptx/emitters.h"
#include "tests/ptx/interpreter.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef MUTATIONS
#define MUTATIONS 250
#endif
enum { SEED = 20261121, TEXT_SIZE = 1 << 16, LINES = 2048, REGISTERS = 512, MAX_ARGS = 4, NODE = 7, Q4_K_BYTES = 144 };

static uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static size_t below(uint64_t *state, size_t n)
{
    return (size_t)(random_u64(state) % n);
}

// ---- subjects

struct subject {
    const char *name;
    char text[TEXT_SIZE];
    size_t len;
    struct ptx_launch launch;
    int n_args;
    void *args[MAX_ARGS];
    size_t sizes[MAX_ARGS], out_size;
    float *want;
    uint32_t unit;  // sizes are multiples of it; 0: any size
    double bound;   // of the error, as a share of the largest expected value
    uint64_t a_cta; // instructions of a CTA of the unchanged kernel
};

// Runs a text. Returns 0 with the result in `out`; -1 if it does not parse (*parsed is false) or has a fault.
static int run(const struct subject *s, const char *text, size_t len, uint64_t limit, float *out, bool *parsed,
               uint64_t *instructions)
{
    struct error err;
    struct simt *m = simt_new();
    uint64_t at[MAX_ARGS + 1];
    char entry[64];
    cr_assert_not_null(m);
    snprintf(entry, sizeof(entry), "%s_%d", s->launch.entry, NODE);
    *parsed = !simt_load(m, (struct str){text, len}, &err) && simt_find(m, entry);
    int rc = *parsed ? 0 : -1;
    for (int i = 0; !rc && i < s->n_args; i++) {
        at[i] = simt_alloc(m, s->sizes[i]);
        rc = simt_put(m, at[i], s->args[i], s->sizes[i], &err);
    }
    const uint32_t *g = s->launch.grid, *b = s->launch.block;
    simt_set_limit(m, limit);
    if (!rc) {
        at[s->n_args] = simt_alloc(m, s->out_size);
        rc = simt_launch(m, simt_find(m, entry), (struct simt_dim){g[0], g[1], g[2]},
                         (struct simt_dim){b[0], b[1], b[2]}, 0, at, (size_t)(s->n_args + 1) * 8, &err) ||
                     simt_get(m, at[s->n_args], out, s->out_size, &err)
                 ? -1
                 : 0;
    }
    *instructions = simt_count(m).instructions;
    simt_free(m);
    return rc;
}

static void *random_bytes(size_t size, uint64_t *state)
{
    uint8_t *p = malloc(size);
    cr_assert_not_null(p);
    for (size_t i = 0; i < size; i++)
        p[i] = (uint8_t)random_u64(state);
    return p;
}

static float *random_floats(size_t n, uint64_t *state)
{
    float *x = malloc(n * sizeof(*x));
    cr_assert_not_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)(random_u64(state) >> 11) * 0x1p-52 - 1);
    return x;
}

static uint16_t *random_halves(size_t n, uint64_t *state)
{
    uint16_t *h = malloc(n * sizeof(*h));
    cr_assert_not_null(h);
    for (size_t i = 0; i < n; i++)
        h[i] = f32_to_f16((float)((double)(random_u64(state) >> 11) * 0x1p-52 - 1));
    return h;
}

static void add_arg(struct subject *s, void *data, size_t size)
{
    s->args[s->n_args] = data;
    s->sizes[s->n_args++] = size;
}

typedef int gemm_emitter(struct ptx *, const struct ptx_gemm *, struct ptx_launch *, struct error *);
enum operand { FLOATS, HALVES, Q4_K };

static int make_gemm(struct subject *s, gemm_emitter *emit, struct ptx_gemm g, enum operand type, struct ptx *p,
                     uint64_t *state, struct error *err)
{
    size_t na = (size_t)g.m * g.k, nb = (size_t)g.k * g.n;
    g.node = NODE;
    if (type == HALVES) {
        add_arg(s, random_halves(na, state), na * 2);
        add_arg(s, random_halves(nb, state), nb * 2);
    } else {
        add_arg(s, random_floats(na, state), na * 4);
        if (type == FLOATS)
            add_arg(s, random_floats(nb, state), nb * 4);
    }
    if (type == Q4_K) {
        uint8_t *q = random_bytes(nb / 256 * Q4_K_BYTES, state);
        for (size_t i = 0; i < nb / 256; i++) {
            const uint16_t scales[2] = {f32_to_f16(0.01f + 0.001f * (float)(i % 7)), f32_to_f16(0.03f)};
            memcpy(q + i * Q4_K_BYTES, scales, sizeof(scales));
        }
        add_arg(s, q, nb / 256 * Q4_K_BYTES);
    }
    s->out_size = (size_t)g.m * g.n * 4;
    s->bound = 4e-6;
    s->unit = emit == ptx_emit_gemm_mma ? 8 : 0;
    return emit(p, &g, &s->launch, err);
}

static int make_rows(struct subject *s, bool layernorm, uint32_t width, struct ptx *p, uint64_t *state,
                     struct error *err)
{
    enum { ROWS = 7 };
    const struct ptx_rows r = {.node = NODE, .rows = ROWS, .width = width, .eps = layernorm ? 1e-2f : 0};
    const size_t row = sizeof(float) * width;
    float *x = random_floats(ROWS * (size_t)width, state);
    // One value of every other row is so large that exponentials overflow if it is not found as the maximum.
    for (size_t i = 0; !layernorm && i < ROWS; i += 2)
        x[i * width + below(state, width)] = 200;
    add_arg(s, x, ROWS * row);
    for (int i = 0; layernorm && i < 2; i++)
        add_arg(s, random_floats(width, state), row);
    s->out_size = ROWS * row;
    s->bound = 4e-6;
    return (layernorm ? ptx_emit_layernorm : ptx_emit_softmax)(p, &r, &s->launch, err);
}

static int make_attention(struct subject *s, bool causal, uint32_t positions, struct ptx *p, uint64_t *state,
                          struct error *err)
{
    const struct ptx_attention a = {
        .node = NODE, .heads = 2, .positions = positions, .dim = 36, .scale = 0.5f, .causal = causal};
    size_t n = (size_t)a.heads * a.positions * a.dim;
    float *x[3];
    for (int i = 0; i < 3; i++)
        add_arg(s, x[i] = random_floats(n, state), n * 4);
    // Some keys are so large that the exponentials of their scores overflow if the maximum is not found.
    for (size_t i = 0; i < n; i++) {
        x[0][i] = x[0][i] + 1.5f;
        x[1][i] = (x[1][i] + 1) * (i / a.dim % 9 == 4 ? 8 : 1);
    }
    s->out_size = n * 4;
    s->bound = 0x1p-24 * (64 + 36 * 20 * a.scale);
    return ptx_emit_attention(p, &a, &s->launch, err);
}

enum { N_SUBJECTS = 11, N_SIZES = 4 };

// Makes a kernel in one of several sizes. Their texts differ only in numbers, and a bound that one size does not reach
// is reached by another.
static void make_subject(struct subject *s, int which, int size)
{
    static const struct {
        const char *name;
        gemm_emitter *emit;
        enum operand type;
        struct ptx_gemm g[N_SIZES];
    } gemms[] = {
        {"gemm naive", ptx_emit_gemm_naive, FLOATS, {{.m = 19, .n = 35, .k = 7}, {.m = 3, .n = 40, .k = 9}}},
        {"gemm tiled 8",
         ptx_emit_gemm_tiled,
         FLOATS,
         {{.m = 19, .n = 21, .k = 13, .tile = 8},
          {.m = 9, .n = 11, .k = 9, .tile = 8},
          {.m = 9, .n = 11, .k = 17, .tile = 8}}},
        {"gemm tiled 16",
         ptx_emit_gemm_tiled,
         FLOATS,
         {{.m = 37, .n = 41, .k = 45, .tile = 16}, {.m = 17, .n = 19, .k = 33, .tile = 16}}},
        {"gemm mma",
         ptx_emit_gemm_mma,
         HALVES,
         {{.m = 37, .n = 72, .k = 88},
          {.m = 45, .n = 80, .k = 72},
          {.m = 53, .n = 88, .k = 40},
          {.m = 61, .n = 48, .k = 56}}},
        {"gemm mma bf16",
         ptx_emit_gemm_mma,
         HALVES,
         {{.m = 70, .n = 72, .k = 40, .bf16 = true},
          {.m = 78, .n = 80, .k = 72, .bf16 = true},
          {.m = 21, .n = 24, .k = 88, .bf16 = true},
          {.m = 29, .n = 56, .k = 56, .bf16 = true}}},
        {"gemm wmma",
         ptx_emit_gemm_wmma,
         HALVES,
         {{.m = 37, .n = 35, .k = 43},
          {.m = 29, .n = 43, .k = 37},
          {.m = 33, .n = 51, .k = 51},
          {.m = 45, .n = 59, .k = 34}}},
        {"gemm Q4_K",
         ptx_emit_gemm_q4_k,
         Q4_K,
         {{.m = 37, .n = 35, .k = 512}, {.m = 30, .n = 38, .k = 512}, {.m = 33, .n = 33, .k = 512}}},
    };
    static const char *const others[] = {"softmax", "layernorm", "attention", "attention causal"};
    static const uint32_t widths[N_SIZES] = {1001, 999, 1023, 1025}, positions[N_SIZES] = {39, 38, 37, 36};
    uint64_t state = SEED + (uint64_t)which, count;
    struct error err = {0};
    struct ptx p;
    bool parsed;
    const int n_gemms = (int)COUNT_OF(gemms), other = which - n_gemms;
    *s = (struct subject){.name = other < 0 ? gemms[which].name : others[other]};
    if (other < 0 && !gemms[which].g[size].m)
        return; // it has fewer sizes
    ptx_start(&p, s->text, sizeof(s->text));
    int rc = other < 0   ? make_gemm(s, gemms[which].emit, gemms[which].g[size], gemms[which].type, &p, &state, &err)
             : other < 2 ? make_rows(s, other == 1, widths[size], &p, &state, &err)
                         : make_attention(s, other == 3, positions[size], &p, &state, &err);
    cr_assert(!rc && !ptx_finish(&p, &err), "%s: %s", s->name, err.text);
    s->len = p.size;
    s->want = malloc(s->out_size);
    cr_assert_not_null(s->want);
    cr_assert_eq(run(s, s->text, s->len, 1 << 28, s->want, &parsed, &count), 0, "%s", s->name);
    const uint32_t *g = s->launch.grid;
    s->a_cta = count / ((uint64_t)g[0] * g[1] * g[2]);
}

static void free_subject(struct subject *s)
{
    for (int i = 0; i < s->n_args; i++)
        free(s->args[i]);
    free(s->want);
}

static bool same_numbers(const struct subject *s, const float *got)
{
    double largest = 0, worst = 0;
    for (size_t i = 0; i < s->out_size / 4; i++) {
        if (!isfinite(got[i]))
            return false;
        largest = fmax(largest, fabs((double)s->want[i]));
        worst = fmax(worst, fabs((double)got[i] - s->want[i]));
    }
    return worst <= s->bound * largest;
}

// ---- changes

struct span {
    size_t at, len;
};
struct sites {
    struct span lines[LINES]; // instructions, without leading blanks and line ends
    size_t n_lines;
    struct span registers[REGISTERS]; // as declared, with the type of each
    struct span types[REGISTERS];
    size_t n_registers;
};

static bool begins(const char *text, struct span s, const char *word)
{
    return s.len >= strlen(word) && !memcmp(text + s.at, word, strlen(word));
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '%';
}

// ".reg .type %a, %b;"
static void read_registers(const char *text, struct span line, struct sites *out)
{
    size_t at = line.at + 5, end = line.at + line.len;
    struct span type = {at, 0};
    while (at < end && text[at] != ' ')
        at++;
    type.len = at - type.at;
    while (at < end && out->n_registers < REGISTERS) {
        if (text[at] != '%') {
            at++;
            continue;
        }
        struct span name = {at, 0};
        while (at < end && word_char(text[at]))
            at++;
        name.len = at - name.at;
        if (text[at] == '<')
            continue;
        out->types[out->n_registers] = type;
        out->registers[out->n_registers++] = name;
    }
}

static void find_sites(const char *text, size_t len, struct sites *out)
{
    out->n_lines = out->n_registers = 0;
    for (size_t at = 0; at < len;) {
        size_t end = at;
        while (end < len && text[end] != '\n')
            end++;
        struct span line = {at, 0};
        while (line.at < end && text[line.at] == ' ')
            line.at++;
        line.len = end - line.at;
        if (begins(text, line, ".reg "))
            read_registers(text, line, out);
        else if (line.at > at && line.len > 3 && text[end - 1] == ';' && text[line.at] != '.' && text[line.at] != '/' &&
                 out->n_lines < LINES)
            out->lines[out->n_lines++] = line;
        at = end + 1;
    }
}

// Replaces [at, at + len) of a text by a word. Returns the new length, 0 if there is no room.
static size_t replace(char *text, size_t size, size_t at, size_t len, const char *word)
{
    size_t n = strlen(word);
    if (size - len + n >= TEXT_SIZE)
        return 0;
    memmove(text + at + n, text + at + len, size - at - len);
    memcpy(text + at, word, n);
    return size - len + n;
}

static bool same_span(const char *text, struct span a, struct span b)
{
    return a.len == b.len && !memcmp(text + a.at, text + b.at, a.len);
}

// Replaces a register by another one of the same type.
static size_t change_register(char *text, size_t size, const struct sites *s, struct span line, uint64_t *state)
{
    struct span found[16];
    size_t n = 0;
    for (size_t i = line.at; i < line.at + line.len && n < COUNT_OF(found); i++) {
        if (text[i] != '%' || word_char(text[i - 1]))
            continue;
        found[n].at = i;
        while (word_char(text[i]))
            i++;
        found[n].len = i - found[n].at;
        n++;
    }
    if (!n)
        return 0;
    struct span old = found[below(state, n)], type = {0, 0};
    for (size_t i = 0; i < s->n_registers; i++)
        if (same_span(text, s->registers[i], old))
            type = s->types[i];
    size_t pick = below(state, s->n_registers);
    struct span with = s->registers[pick];
    if (!type.len || !same_span(text, s->types[pick], type) || same_span(text, with, old))
        return 0;
    char word[64];
    snprintf(word, sizeof(word), "%.*s", (int)with.len, text + with.at);
    return replace(text, size, old.at, old.len, word);
}

// Changes an integer by 1 up or down; a multiple of `unit`, if there is one, by a whole unit.
static size_t change_number(char *text, size_t size, struct span line, uint32_t unit, uint64_t *state)
{
    if (begins(text, line, "bar.")) // the number of the barrier has no effect
        return 0;
    struct span found[16];
    size_t n = 0;
    for (size_t i = line.at + 1; i < line.at + line.len && n < COUNT_OF(found); i++) {
        if (!isdigit((unsigned char)text[i]) || !strchr(" +[-,", text[i - 1]))
            continue;
        size_t start = i;
        while (word_char(text[i]))
            i++;
        bool whole = true;
        for (size_t j = start; j < i; j++)
            whole = whole && isdigit((unsigned char)text[j]);
        if (whole && i - start < 10)
            found[n++] = (struct span){start, i - start};
    }
    if (!n)
        return 0;
    struct span old = found[below(state, n)];
    char word[24];
    long v = strtol(text + old.at, NULL, 10);
    // A distance of a butterfly that is a power of two plus 1 gives an equally good butterfly.
    bool up = v == 0 || (random_u64(state) & 1 && !begins(text, line, "shfl.sync.bfly"));
    long by = unit && v && v % (long)unit == 0 ? (long)unit : 1;
    snprintf(word, sizeof(word), "%ld", up ? v + by : v - by);
    return replace(text, size, old.at, old.len, word);
}

static size_t change_word(char *text, size_t size, struct span line, const char *const pairs[][2], size_t n_pairs,
                          uint64_t *state)
{
    size_t pick = below(state, n_pairs);
    const char *from = pairs[pick][0];
    for (size_t i = line.at; i + strlen(from) <= line.at + line.len; i++)
        if (!memcmp(text + i, from, strlen(from)))
            return replace(text, size, i, strlen(from), pairs[pick][1]);
    return 0;
}

// Makes one random change. Returns the new length, 0 if the chosen kind of change does not apply to the chosen line.
static size_t mutate(char *text, size_t size, const struct sites *s, uint32_t unit, uint64_t *state, const char **what,
                     size_t *where)
{
    static const char *const comparisons[][2] = {{".lt.", ".le."}, {".le.", ".lt."}, {".ge.", ".gt."},
                                                 {".gt.", ".ge."}, {".eq.", ".ne."}, {".ne.", ".eq."},
                                                 {".lt.", ".ge."}, {".ge.", ".lt."}};
    static const char *const operations[][2] = {{"add.", "sub."}, {"sub.", "add."}, {"min.", "max."}, {"max.", "min."},
                                                {"and.", "or."},  {"or.", "and."},  {"shl.", "shr."}, {"shr.", "shl."}};
    struct span line = s->lines[below(state, s->n_lines)];
    size_t kind = below(state, 20);
    *where = line.at;
    // These have no effect: hints, and conversions that do not change the address.
    if (begins(text, line, "prefetch") || begins(text, line, "cvta"))
        return 0;
    if (kind < 7) {
        *what = "register";
        return change_register(text, size, s, line, state);
    }
    if (kind < 12) {
        *what = "number";
        return change_number(text, size, line, unit, state);
    }
    if (kind < 14) {
        *what = "comparison";
        return begins(text, line, "setp") ? change_word(text, size, line, comparisons, COUNT_OF(comparisons), state)
                                          : 0;
    }
    if (kind < 17) {
        *what = "operation";
        return change_word(text, size, line, operations, COUNT_OF(operations), state);
    }
    bool barrier = begins(text, line, "bar.") || begins(text, line, "cp.async.wait");
    *what = kind < 19 ? "barrier" : "instruction";
    return barrier == (kind < 19) ? replace(text, size, line.at, line.len, "") : 0;
}

// Makes and runs one change. Returns 1 if it is detected (*fault: by the interpreter), 0 if not, and -1 if it does not
// parse or was not made.
static int try_change(const struct subject *s, const struct sites *sites, uint64_t *state, char *text, size_t *where,
                      const char **what, bool *fault)
{
    uint64_t instructions;
    bool parsed;
    memcpy(text, s->text, s->len);
    size_t size = mutate(text, s->len, sites, s->unit, state, what, where);
    float *got = size ? malloc(s->out_size) : NULL;
    if (!got)
        return -1;
    *fault = run(s, text, size, 8 * s->a_cta + 1000, got, &parsed, &instructions);
    bool found = *fault || !same_numbers(s, got);
    free(got);
    return parsed ? found : -1;
}

struct score {
    int counted, caught, faults;
};

static void change_kernel(int which, int goal, uint64_t *state, struct score *score)
{
    static struct subject s[N_SIZES];
    static struct sites sites[N_SIZES];
    static char text[TEXT_SIZE];
    struct score before = *score;
    for (int i = 0; i < N_SIZES; i++) {
        make_subject(&s[i], which, i);
        find_sites(s[i].text, s[i].len, &sites[i]);
    }
    while (score->counted < goal) {
        uint64_t draw = *state, again;
        const char *what;
        size_t where, elsewhere;
        bool fault;
        int found = try_change(&s[0], &sites[0], state, text, &where, &what, &fault);
        if (found < 0)
            continue;
        size_t changed = strcspn(text + where, "\n");
        char line[128];
        snprintf(line, sizeof(line), "%.*s", (int)changed, text + where);
        for (int i = 1; !found && i < N_SIZES && s[i].len; i++) {
            again = draw;
            if (sites[i].n_lines == sites[0].n_lines)
                found = try_change(&s[i], &sites[i], &again, text, &elsewhere, &what, &fault) > 0;
        }
        score->counted++;
        score->caught += found;
        score->faults += found && fault;
        if (!found)
            printf("  not found in %s: %.*s -> %s\n", s[0].name, (int)strcspn(s[0].text + where, "\n"),
                   s[0].text + where, line);
    }
    printf("%-18s %4d of %4d\n", s[0].name, score->caught - before.caught, score->counted - before.counted);
    for (int i = 0; i < N_SIZES; i++)
        free_subject(&s[i]);
}

Test(ptx_mutations, most_changes_of_a_kernel_are_found, .timeout = 1000)
{
    uint64_t state = SEED;
    struct score score = {0};
    printf("seed %d\n", SEED);
    for (int which = 0; which < N_SUBJECTS; which++)
        change_kernel(which, MUTATIONS * (which + 1) / N_SUBJECTS, &state, &score);
    printf("%d of %d changes were found, %d of them as faults\n", score.caught, score.counted, score.faults);
    cr_assert_geq(score.caught, score.counted * 95 / 100);
}
