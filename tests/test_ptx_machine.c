// Tests whole models on the GPU machine, with the interpreter behind the tests' libcuda.so.1: against the logits of
// llama.cpp and of the reference (ref.c); that a repetition and chunks give the same bits; and the transfers and driver
// calls of a step.
#include "kernels/ptx/gpu.h"
#include "tests/golden.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <math.h>

static struct machine *machine_open(bool exact)
{
    struct machine *m;
    struct machine_options o = {.exact = exact};
    struct gpu_options gpu = {0};
    struct error err = {0};
    cr_assert(machine_open_gpu(&m, &o, &gpu, &err) == 0, "%s", err.text);
    return m;
}

struct model {
    struct gguf *file;
    struct graph *graph;
    struct arch_info info;
};

static struct model model_open(const char *path)
{
    struct model m = {0};
    struct error err = {0};
    struct arch_options o = {0};
    cr_assert(gguf_open(&m.file, path, 0, &err) == 0, "%s", err.text);
    cr_assert(arch_build(m.file, &o, &m.graph, &m.info, &err) == 0, "%s", err.text);
    return m;
}

static void model_close(struct model *m)
{
    graph_free(m->graph);
    gguf_close(m->file);
}

// ---- golden models

struct golden {
    const char *name; // of the file
    double bound;     // of the NMSE
};

// Computes the logits in one step, in chunks of 7, and row by row, which uses another list of launches; with `twice`
// also in one step again. All must have the same bits and be within the bound.
static void check_model(bool exact, enum dtype cache, const char *path, double bound, bool twice)
{
    struct machine *m = machine_open(exact);
    struct model model = model_open(path);
    struct logits want = logits_read(path);
    struct error err = {0};
    size_t n = (size_t)want.n_tokens * (size_t)want.n_vocab, bytes = n * sizeof(float);
    float *whole = malloc(bytes), *again = malloc(bytes), *parts = malloc(bytes), *rows = malloc(bytes);
    cr_assert(whole && again && parts && rows && model.info.n_vocab == want.n_vocab);
    cr_assert(golden_run_cached(m, model.graph, &want, want.n_tokens, cache, whole, &err) == 0, "%s: %s", path,
              err.text);
    cr_assert(!twice || golden_run_cached(m, model.graph, &want, want.n_tokens, cache, again, &err) == 0, "%s: %s",
              path, err.text);
    cr_assert(golden_run_cached(m, model.graph, &want, 7, cache, parts, &err) == 0, "%s: %s", path, err.text);
    cr_assert(golden_run_cached(m, model.graph, &want, 1, cache, rows, &err) == 0, "%s: %s", path, err.text);
    double error = nmse(whole, want.values, n);
    cr_expect(error <= bound, "%s: NMSE %.3g, bound %.3g", path, error, bound);
    cr_expect(!twice || memcmp(whole, again, bytes) == 0, "%s: not the same bits twice", path);
    cr_expect(memcmp(whole, parts, bytes) == 0, "%s: chunks of 7 change bits", path);
    cr_expect(memcmp(whole, rows, bytes) == 0, "%s: rows one by one change bits", path);
    free(whole);
    free(again);
    free(parts);
    free(rows);
    logits_free(&want);
    model_close(&model);
    m->v->close(m);
}

static void check_golden(bool exact, enum dtype cache, const struct golden *cases, size_t n)
{
    size_t missing = 0;
    for (size_t i = 0; i < n; i++) {
        char path[512];
        if (golden_path(cases[i].name, path))
            check_model(exact, cache, path, cases[i].bound, i == 0);
        else
            missing++;
    }
    if (missing == n)
        cr_skip_test("no golden data: set QUERN_SHARED");
    if (missing)
        fprintf(stderr, "skipped: %zu of %zu golden models are not here (QUERN_SHARED)\n", missing, n);
}

// The bound for floats is 1e-5, and rounding activations to 16 bits takes up to a fifth of it. With float activations
// the errors of the GPU's approximations are far below. All golden types but one run only in the long suite, where
// EVERY_MODEL is defined.
#define FLOATS 1e-9
static const struct golden floats[] = {
    {"arch/tiny-llama.gguf", FLOATS},
    {"arch/tiny-llama-moe.gguf", FLOATS},
    {"arch/tiny-qwen3moe.gguf", FLOATS},
    {"arch/tiny-gemma2.gguf", FLOATS},
    {"arch/tiny-gpt2.gguf", FLOATS},
    {"arch/tiny-phi3-long.gguf", FLOATS},
    {"arch/tiny-gemma4-extra.gguf", FLOATS},
    {"arch/tiny-gemma4-moe.gguf", FLOATS},
#ifdef EVERY_MODEL
    {"arch/tiny-gemma4.gguf", FLOATS},
    {"arch/tiny-llama-linear.gguf", FLOATS},
    {"arch/tiny-llama-yarn.gguf", FLOATS},
    {"arch/tiny-qwen2.gguf", FLOATS},
    {"arch/tiny-qwen3.gguf", FLOATS},
    {"arch/tiny-phi3-short.gguf", FLOATS},
    {"arch/tiny-gptneox.gguf", FLOATS},
    {"arch/tiny-stablelm.gguf", FLOATS},
    {"arch/tiny-stablelm-12b.gguf", FLOATS},
    {"arch/tiny-smollm3.gguf", FLOATS},
    {"arch/tiny-olmo.gguf", FLOATS},
    {"arch/tiny-olmo2.gguf", FLOATS},
    {"arch/tiny-deepseek2.gguf", FLOATS},
    {"arch/tiny-deepseek2-heads.gguf", FLOATS},
    {"arch/tiny-deepseek2-growth.gguf", FLOATS},
    {"arch/tiny-nemotron3.gguf", FLOATS},
    {"arch/tiny-nemotron3-latent.gguf", FLOATS},
    {"arch/tiny-mpt.gguf", FLOATS},
    {"arch/tiny-baichuan-7b.gguf", 1e-8},
    {"arch/tiny-baichuan-13b.gguf", 1e-8},
    {"arch/tiny-minicpm3.gguf", FLOATS},
    {"arch/tiny-smallthinker.gguf", FLOATS},
    {"arch/tiny-hy-v3.gguf", FLOATS},
    {"arch/tiny-grovemoe.gguf", FLOATS},
    {"arch/tiny-apertus.gguf", FLOATS},
    {"arch/tiny-afmoe.gguf", FLOATS},
    {"arch/tiny-exaone-moe.gguf", FLOATS},
    {"arch/tiny-cohere2moe.gguf", FLOATS},
    {"arch/tiny-maincoder.gguf", FLOATS},
    {"arch/tiny-plm.gguf", FLOATS},
    {"arch/tiny-plamo3.gguf", FLOATS},
    {"arch/tiny-mimo2.gguf", FLOATS},
    {"arch/tiny-mellum.gguf", FLOATS},
    {"arch/tiny-bitnet.gguf", FLOATS},
    {"arch/tiny-talkie.gguf", FLOATS},
    {"arch/tiny-muse-glimmer.gguf", FLOATS},
    {"arch/tiny-granite-swa.gguf", FLOATS},
    {"arch/tiny-step35.gguf", FLOATS},
    {"arch/tiny-laguna.gguf", FLOATS},
    {"arch/tiny-laguna-full.gguf", FLOATS},
    {"arch/tiny-kimi-linear.gguf", FLOATS},
    {"arch/tiny-kimi-linear-heads.gguf", FLOATS},
    {"arch/tiny-gemma3n.gguf", FLOATS},
#endif
};

Test(ptx_machine, agrees_with_float64)
{
    check_golden(true, DT_F32, floats, COUNT_OF(floats));
}

// Weights of 16 bits and activations of 16 bits.
Test(ptx_machine, agrees_with_float64_but_for_the_rounding_of_activations)
{
    static const struct golden halves[] = {
        {"arch/tiny-llama.gguf", 1e-5},        {"arch/tiny-qwen3moe.gguf", 1e-5},  {"arch/tiny-gpt2.gguf", 1e-5},
        {"arch/tiny-gemma4-moe.gguf", 1e-5},
#ifdef EVERY_MODEL
        {"arch/tiny-llama-moe.gguf", 1e-5},    {"arch/tiny-gemma2.gguf", 1e-5},    {"arch/tiny-phi3-long.gguf", 1e-5},
        {"arch/tiny-gemma4-extra.gguf", 1e-5}, {"arch/tiny-qwen2.gguf", 1e-5},     {"arch/tiny-gptneox.gguf", 1e-5},
        {"arch/tiny-deepseek2.gguf", 1e-5},    {"arch/tiny-nemotron3.gguf", 1e-5},
#endif
    };
    check_golden(false, DT_F32, halves, COUNT_OF(halves));
}

// llama.cpp computes GELU with a table in half precision.
static const struct golden arch[] = {
    {"arch/llama-dense.gguf", FLOATS},
    {"arch/qwen35-dense.gguf", FLOATS},
    {"arch/gpt-oss-moe.gguf", FLOATS},
    {"arch/jamba-dense.gguf", FLOATS},
    {"arch/llama4-moe.gguf", FLOATS},
#ifdef EVERY_MODEL
    {"arch/lfm2-dense.gguf", FLOATS},
    {"arch/mamba-dense.gguf", FLOATS},
    {"arch/mamba2-dense.gguf", FLOATS},
    {"arch/falcon-h1-dense.gguf", FLOATS},
    {"arch/granitehybrid-dense.gguf", FLOATS},
    {"arch/nemotron_h-dense.gguf", FLOATS},
    {"arch/qwen35moe-moe.gguf", FLOATS},
    {"arch/qwen3next-moe.gguf", FLOATS},
    {"arch/lfm2moe-moe.gguf", FLOATS},
    {"arch/llama-moe.gguf", FLOATS},
    {"arch/qwen2-dense.gguf", FLOATS},
    {"arch/qwen3-dense.gguf", FLOATS},
    {"arch/qwen3moe-moe.gguf", FLOATS},
    {"arch/gemma2-dense.gguf", 1e-8},
    {"arch/gpt2-dense.gguf", 1e-7},
    {"arch/phi3-dense.gguf", FLOATS},
    {"arch/mistral3-dense.gguf", FLOATS},
    {"arch/qwen3vl-dense.gguf", FLOATS},
    {"arch/internlm2-dense.gguf", FLOATS},
    {"arch/seed_oss-dense.gguf", FLOATS},
    {"arch/granite-dense.gguf", FLOATS},
    {"arch/granite-moe.gguf", FLOATS},
    {"arch/granitemoe-moe.gguf", FLOATS},
    {"arch/minicpm-dense.gguf", FLOATS},
    {"arch/chatglm-dense.gguf", FLOATS},
    {"arch/glm4-dense.gguf", FLOATS},
    {"arch/exaone4-dense.gguf", FLOATS},
    {"arch/hunyuan-dense-dense.gguf", FLOATS},
    {"arch/command-r-dense.gguf", FLOATS},
    {"arch/cohere2-dense.gguf", FLOATS},
    {"arch/nemotron-dense.gguf", FLOATS},
    {"arch/phimoe-moe.gguf", FLOATS},
    {"more/arcee-dense.gguf", FLOATS},
    {"arch/gptneox-dense.gguf", 1e-7},
    {"arch/starcoder2-dense.gguf", 1e-7},
    {"arch/stablelm-dense.gguf", FLOATS},
    {"arch/falcon-dense.gguf", 1e-7},
    {"arch/phi2-dense.gguf", 1e-7},
    {"arch/gemma4-dense.gguf", 1e-4},
    {"more/qwen-dense.gguf", FLOATS},
    {"more/xverse-dense.gguf", FLOATS},
    {"more/exaone-dense.gguf", FLOATS},
    {"more/orion-dense.gguf", FLOATS},
    {"more/deci-dense.gguf", FLOATS},
    {"more/openelm-dense.gguf", FLOATS},
    {"more/nanbeige-dense.gguf", FLOATS},
    {"more/pangu-embedded-dense.gguf", FLOATS},
    {"more/plamo-dense.gguf", FLOATS},
    {"more/starcoder-dense.gguf", 1e-7},
    {"more/codeshell-dense.gguf", 1e-7},
    {"more/jais2-dense.gguf", FLOATS},
    {"arch/qwen2moe-moe.gguf", FLOATS},
    {"more/qwen3vlmoe-moe.gguf", FLOATS},
    {"more/qwen2vl-dense.gguf", FLOATS},
    {"arch/glm4moe-moe.gguf", FLOATS},
    {"arch/deepseek2-moe.gguf", FLOATS},
    {"more/deepseek-moe.gguf", FLOATS},
    {"more/dots1-moe.gguf", FLOATS},
    {"more/bailingmoe-moe.gguf", FLOATS},
    {"more/bailingmoe2-moe.gguf", FLOATS},
    {"more/hunyuan-moe-moe.gguf", FLOATS},
    {"arch/olmoe-moe.gguf", FLOATS},
    {"arch/ernie4_5-moe.gguf", FLOATS},
    {"arch/mistral3-moe.gguf", FLOATS},
    {"arch/minicpm-moe.gguf", FLOATS},
    {"more/minimax-m2-moe.gguf", FLOATS},
    {"more/nemotron_h_moe-dense.gguf", FLOATS},
    {"arch/olmo-dense.gguf", FLOATS},
    {"arch/bloom-dense.gguf", 1e-6},
    {"arch/mpt-dense.gguf", 1e-6},
    {"more/jais-dense.gguf", FLOATS},
    {"more/refact-dense.gguf", FLOATS},
    {"more/refact-moe.gguf", FLOATS},
    {"more/baichuan-dense.gguf", FLOATS},
    {"more/dbrx-moe.gguf", FLOATS},
    {"more/minicpm3-dense.gguf", FLOATS},
    {"more/grok-moe.gguf", FLOATS},
    {"more/arctic-moe.gguf", FLOATS},
    {"more/smallthinker-moe.gguf", FLOATS},
    {"more/hy_v3-moe.gguf", FLOATS},
    {"more/minimax-m3-moe.gguf", FLOATS},
    {"more/grovemoe-moe.gguf", FLOATS},
    {"more/plamo2-dense.gguf", FLOATS},
#endif
};

Test(ptx_machine, agrees_with_golden_architectures)
{
    check_golden(true, DT_F32, arch, COUNT_OF(arch));
}

#define QUANT(name)                                                                                                    \
    {                                                                                                                  \
        "quant/" name ".gguf", 2e-4                                                                                    \
    }
#define EXACT(name)                                                                                                    \
    {                                                                                                                  \
        "quant/" name ".gguf", FLOATS                                                                                  \
    }
#ifdef EVERY_MODEL
#define TYPES_OF_256(X)                                                                                                \
    X("IQ3_S"), X("IQ4_XS"), X("Q2_K"), X("Q3_K"), X("Q4_K"), X("Q5_K"), X("Q6_K"), X("TQ1_0"), X("TQ2_0")
#define TYPES_OF_FEWER(X)                                                                                              \
    X("BF16"), X("F16"), X("IQ4_NL"), X("Q1_0"), X("Q2_0"), X("Q4_0"), X("Q4_1"), X("Q5_0"), X("Q5_1"), X("Q8_0")
#define TYPES(X) TYPES_OF_256(X), TYPES_OF_FEWER(X)

Test(ptx_machine, agrees_with_golden_types_of_256_when_exact)
{
    static const struct golden cases[] = {TYPES_OF_256(EXACT)};
    check_golden(true, DT_F32, cases, COUNT_OF(cases));
}

Test(ptx_machine, agrees_with_golden_types_of_fewer_when_exact)
{
    static const struct golden cases[] = {TYPES_OF_FEWER(EXACT)};
    check_golden(true, DT_F32, cases, COUNT_OF(cases));
}
#else
#define TYPES(X) X("Q4_K")
#endif

Test(ptx_machine, agrees_with_golden_types)
{
    static const struct golden cases[] = {TYPES(QUANT)};
    check_golden(false, DT_F32, cases, COUNT_OF(cases));
}

// ---- a step

struct decode {
    struct machine *m;
    struct model model;
    struct plan *plan;
    struct buffer *kv;
    struct text said;
    float logits[4096];
};

static struct decode decode_open(const char *name, bool exact, const enum dtype type, int max_tokens)
{
    char path[512];
    struct decode d = {.m = machine_open(exact)};
    struct error err = {0};
    cr_assert(golden_path(name, path));
    d.model = model_open(path);
    struct compile_options o = {max_tokens, 1, {type, type}, false, NULL};
    cr_assert(d.m->v->compile(d.m, d.model.graph, &o, &d.plan, &err) == 0, "%s", err.text);
    cr_assert(d.m->v->alloc(d.m, kv_page_bytes(d.model.graph, o.kv_type) * 4, &d.kv, &err) == 0, "%s", err.text);
    cr_assert(d.model.info.n_vocab <= 4096);
    return d;
}

static void decode_close(struct decode *d)
{
    d->m->v->free(d->m, d->kv);
    d->m->v->plan_free(d->m, d->plan);
    d->m->v->close(d->m);
    model_close(&d->model);
    text_free(&d->said);
}

static void decode_token(struct decode *d, int position)
{
    static const int32_t pages[] = {2, 0, 3, 1};
    int32_t token = (position * 7 + 3) % d->model.info.n_vocab, seq = 0, output = 0;
    struct step s = {1,     1,         &token, &position, &seq, &output, pages, 4,
                     d->kv, d->logits, 0,      NULL,      NULL, NULL,    NULL,  NULL};
    struct error err = {0};
    cr_assert(d->m->v->run(d->m, d->plan, &s, &err) == 0, "%s", err.text);
}

// Computes n rows of one sequence from a position on; the last one has logits.
static int run_rows(struct decode *d, int position, int n, struct error *err)
{
    static const int32_t pages[] = {2, 0, 3, 1}, zeros[KV_PAGE];
    int32_t tokens[KV_PAGE], positions[KV_PAGE], output = n - 1;
    cr_assert(n <= KV_PAGE);
    for (int i = 0; i < n; i++) {
        positions[i] = position + i;
        tokens[i] = (positions[i] * 7 + 3) % d->model.info.n_vocab;
    }
    struct step s = {n,     1,         tokens, positions, zeros, &output, pages, 4,
                     d->kv, d->logits, 0,      NULL,      NULL,  NULL,    NULL,  NULL};
    return d->m->v->run(d->m, d->plan, &s, err);
}

static void decode_rows(struct decode *d, int position, int n)
{
    struct error err = {0};
    cr_assert(run_rows(d, position, n, &err) == 0, "%s", err.text);
}

Test(ptx_machine, a_step_moves_its_inputs_in_and_its_logits_out)
{
    struct decode d = decode_open("arch/tiny-llama.gguf", false, DT_F16, 1);
    struct quern_cuda_counts before, after;
    decode_token(&d, 0);
    quern_cuda_count(&before);
    for (int i = 1; i <= 10; i++)
        decode_token(&d, i);
    quern_cuda_count(&after);
    cr_expect(after.copies_in - before.copies_in == 10);
    cr_expect(after.copies_out - before.copies_out == 10);
    cr_expect(after.bytes_out - before.bytes_out == 10 * sizeof(float) * (size_t)d.model.info.n_vocab);
    cr_expect(after.replays - before.replays == 10);
    cr_expect(after.allocations == before.allocations && after.bytes == before.bytes);
    cr_expect(after.copies_within == before.copies_within && after.sets == before.sets);
    cr_expect(after.pinned == before.pinned && after.graphs == before.graphs && after.modules == before.modules);
    fprintf(stderr, "launches a step: %.1f, of %zu nodes and %d layers\n",
            (double)(after.launches - before.launches) / 10, (size_t)d.model.graph->n_nodes, d.model.info.n_layer);
    decode_close(&d);
    quern_cuda_count(&after);
    cr_expect(after.blocks == 0 && after.bytes == 0 && after.pinned == 0 && after.modules == 0 && after.graphs == 0);
}

// Each step writes all values of the plan before it reads them, so nothing depends on the step before: a prompt that
// fills its bucket, then single rows.
static void check_own_values(const char *name)
{
    struct decode d = decode_open(name, false, DT_F16, 16);
    float first[4096];
    for (int round = 0; round < 2; round++) {
        decode_rows(&d, 0, 12);
        for (int i = 12; i < 15; i++) {
            if (round)
                cr_assert(quern_cuda_forget(d.plan->values, d.plan->values_bytes) == 0);
            decode_token(&d, i);
        }
        if (round)
            cr_expect(memcmp(first, d.logits, sizeof(float) * (size_t)d.model.info.n_vocab) == 0, "%s", name);
        memcpy(first, d.logits, sizeof first);
        cr_assert(quern_cuda_forget(d.plan->values, d.plan->values_bytes) == 0);
    }
    decode_rows(&d, 15, 7); // in a bucket of 8, so the last row is unused
    decode_close(&d);
}

Test(ptx_machine, a_step_reads_no_value_that_it_has_not_written)
{
    check_own_values("arch/tiny-llama.gguf");
    check_own_values("arch/tiny-llama-moe.gguf");
    check_own_values("arch/tiny-gemma2.gguf");
}

// A launch is left out: the fault is reported where its value is read.
Test(ptx_machine, a_read_of_a_value_that_nothing_wrote_names_its_place)
{
    struct decode d = decode_open("arch/tiny-llama.gguf", false, DT_F16, 8);
    static const int32_t tokens[] = {3, 1, 4}, positions[] = {0, 1, 2}, seqs[] = {0, 0, 0}, outputs[] = {2},
                         pages[] = {1};
    struct step s = {3, 1, tokens, positions, seqs, outputs, pages, 1, d.kv, d.logits, 0, NULL, NULL, NULL, NULL, NULL};
    struct error err = {0};
    struct gpu_list *list = &d.plan->lists[GPU_ANY_ROWS];
    memmove(list->launches, list->launches + 1, (size_t)--list->n_launches * sizeof *list->launches);
    cr_assert(d.m->v->run(d.m, d.plan, &s, &err) < 0);
    cr_expect(err.code == E_GPU, "%s", err.text);
    const char *said = quern_cuda_said();
    cr_expect(strstr(said, "kernel ") && strstr(said, ", line ") && strstr(said, ", CTA (0,0,0)") &&
                  strstr(said, ", thread (") && strstr(said, "which nothing has written"),
              "%s", said);
    decode_close(&d);
}

// Computes the same steps with the reference, with a cache of the same type.
static void check_cache(const char *name, enum dtype type, double bound)
{
    struct decode d = decode_open(name, true, type, 1);
    struct machine *ref;
    struct plan *plan;
    struct buffer *kv;
    struct error err = {0};
    struct compile_options o = {1, 1, {type, type}, false, NULL};
    float want[4096];
    cr_assert(machine_open_ref(&ref, NULL, &err) == 0 && ref->v->compile(ref, d.model.graph, &o, &plan, &err) == 0);
    cr_assert(ref->v->alloc(ref, kv_page_bytes(d.model.graph, o.kv_type) * 4, &kv, &err) == 0);
    struct decode reference = d;
    reference.m = ref;
    reference.plan = plan;
    reference.kv = kv;
    for (int i = 0; i < 8; i++) {
        decode_token(&d, i);
        decode_token(&reference, i);
    }
    memcpy(want, reference.logits, sizeof want);
    double error = nmse(d.logits, want, (size_t)d.model.info.n_vocab);
    cr_expect(error <= bound, "%s: NMSE %.3g", dtype_info[type].name, error);
    ref->v->free(ref, kv);
    ref->v->plan_free(ref, plan);
    ref->v->close(ref);
    decode_close(&d);
}

Test(ptx_machine, serves_every_type_of_cache)
{
    check_cache("arch/tiny-llama-yarn.gguf", DT_F32, FLOATS);
    check_cache("arch/tiny-llama-yarn.gguf", DT_F16, 1e-6);
    check_cache("arch/tiny-llama-yarn.gguf", DT_BF16, 1e-6);
}

// Attention on tensor cores, in models with windows, chunks, a soft cap and sinks. Their golden logits are those of an
// F32 cache; rounding keys, values, queries and weights to 16 bits is within N14.
Test(ptx_machine, attention_on_tensor_cores_gives_a_row_the_same_bits)
{
    static const struct golden cases[] = {{"arch/llama-dense.gguf", 1e-6},
                                          {"arch/gemma2-dense.gguf", 1e-6},
                                          {"arch/llama4-moe.gguf", 1e-6},
                                          {"arch/gpt-oss-moe.gguf", 1e-6}};
    check_golden(false, DT_F16, cases, COUNT_OF(cases));
    static const struct golden blocks[] = {{"quant/F16.gguf", 1e-4}};
    check_golden(false, DT_Q8_0, blocks, 1);
}

// The plan tells which arithmetic attention has.
Test(ptx_machine, exact_attention_multiplies_floats)
{
    for (int exact = 0; exact < 2; exact++) {
        struct decode d = decode_open("arch/llama-dense.gguf", exact, DT_F16, 64);
        d.m->v->print(d.plan, &d.said);
        cr_expect((strstr(d.said.data, " attend_half,") != NULL) == !exact, "%s", d.said.data);
        cr_expect((strstr(d.said.data, " attend_half_tiles,") != NULL) == !exact, "%s", d.said.data);
        cr_expect((strstr(d.said.data, " attend_tiles,") != NULL) == exact, "%s", d.said.data);
        decode_close(&d);
    }
}

Test(ptx_machine, attention_with_slopes_multiplies_floats)
{
    char path[512];
    if (!golden_path("arch/bloom-dense.gguf", path))
        cr_skip_test("no golden data: set QUERN_SHARED");
    struct decode d = decode_open("arch/bloom-dense.gguf", false, DT_F16, 64);
    d.m->v->print(d.plan, &d.said);
    cr_expect(!strstr(d.said.data, "attend_half"), "%s", d.said.data);
    cr_expect(strstr(d.said.data, " attend,") && strstr(d.said.data, " attend_tiles,"), "%s", d.said.data);
    decode_close(&d);
}

// Quantised caches need heads of at least 32: this golden model has 64. An element that is rounded differently changes
// a key by one quantisation step.
Test(ptx_machine, serves_caches_of_blocks)
{
    char path[512];
    if (!golden_path("quant/F16.gguf", path))
        cr_skip_test("no golden data: set QUERN_SHARED");
    check_cache("quant/F16.gguf", DT_Q8_0, 1e-5);
    check_cache("quant/F16.gguf", DT_Q4_0, 1e-4);
}

// A prompt has enough rows to be grouped by expert, a single row has not. The golden models check that both give the
// same bits.
Test(ptx_machine, places_of_a_prompt_are_grouped_by_expert)
{
    for (int tokens = 1; tokens <= 64; tokens *= 64) {
        struct decode d = decode_open("arch/tiny-llama-moe.gguf", false, DT_F16, tokens);
        d.m->v->print(d.plan, &d.said);
        cr_expect((strstr(d.said.data, " group,") != NULL) == (tokens > 1), "%s", d.said.data);
        decode_close(&d);
    }
}

// ---- times

// The profile has calls and a time for every node of a step of many rows. Reading the profile resets it.
Test(ptx_machine, a_profile_has_the_time_of_each_node)
{
    char path[512];
    struct machine *m = machine_open(false);
    cr_assert(golden_path("arch/tiny-llama.gguf", path));
    struct model model = model_open(path);
    struct compile_options o = {40, 1, {DT_F16, DT_F16}, true, NULL};
    struct decode d = {.m = m, .model = model};
    struct error err = {0};
    cr_assert(m->v->compile(m, model.graph, &o, &d.plan, &err) == 0, "%s", err.text);
    cr_assert(m->v->alloc(m, kv_page_bytes(model.graph, o.kv_type) * 4, &d.kv, &err) == 0, "%s", err.text);
    for (int n = 1; n <= 40; n += 39) {
        const struct node_time *times;
        int count, n_matmul = 0, n_timed = 0;
        double wait, sum = 0;
        decode_rows(&d, 0, n);
        decode_rows(&d, 0, n);
        m->v->profile(d.plan, &times, &count, &wait);
        for (int i = 0; i < count; i++) {
            cr_expect(times[i].calls % 2 == 0, "%s: %llu", times[i].node->name, (unsigned long long)times[i].calls);
            cr_expect(times[i].calls ? times[i].ns > 0 : times[i].ns == 0, "%s: %g", times[i].node->name, times[i].ns);
            n_matmul += times[i].calls && times[i].node->op == OP_MATMUL;
            n_timed += times[i].calls > 0;
            sum += times[i].ns;
        }
        // with many rows each product has a launch of its own; with one row some are fused
        cr_expect(n_matmul >= (n > 1 ? 7 * model.info.n_layer : 1) && n_timed > n_matmul, "%d products, %d nodes",
                  n_matmul, n_timed);
        cr_expect(sum > 0 && sum < 60e9 && wait == 0, "%g", sum);
        m->v->profile(d.plan, &times, &count, &wait);
        for (int i = 0; i < count; i++)
            cr_expect(times[i].calls == 0 && times[i].ns == 0);
    }
    decode_close(&d);
}

// ---- a step that is ended

static void raise_flag(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
}

Test(ptx_machine, a_step_of_many_rows_ends_between_its_launches)
{
    struct decode d = decode_open("arch/tiny-llama.gguf", false, DT_F16, 40);
    struct quern_cuda_counts before, after;
    atomic_bool cancel = false;
    d.m->v->watch(d.plan, &cancel);
    quern_cuda_count(&before);
    decode_rows(&d, 0, 40); // the flag is not set: the same as without a flag
    quern_cuda_count(&after);
    uint64_t all = after.launches - before.launches;
    float want = d.logits[7];
    d.m->v->watch(d.plan, NULL);
    decode_rows(&d, 0, 40);
    cr_expect(d.logits[7] == want, "watching changes a bit");
    d.m->v->watch(d.plan, &cancel);
    quern_cuda_at("cuEventSynchronize", 1, raise_flag, &cancel);
    quern_cuda_count(&before);
    struct error err = {0};
    cr_expect(run_rows(&d, 0, 40, &err) < 0 && err.code == E_INTERRUPTED, "%s", err.text);
    quern_cuda_count(&after);
    cr_expect(after.launches > before.launches && after.launches - before.launches < all, "%llu of %llu launches",
              (unsigned long long)(after.launches - before.launches), (unsigned long long)all);
    quern_cuda_count(&before);
    cr_expect(run_rows(&d, 0, 40, &err) < 0 && err.code == E_INTERRUPTED, "the flag is up already");
    quern_cuda_count(&after);
    cr_expect(after.launches == before.launches);
    atomic_store(&cancel, false);
    decode_rows(&d, 0, 40); // the interrupt has no lasting effect
    cr_expect(d.logits[7] == want);
    decode_close(&d);
}

// ---- what is shared, shown and refused

Test(ptx_machine, equal_shapes_share_a_kernel)
{
    struct decode d = decode_open("arch/tiny-llama.gguf", false, DT_F16, 1);
    struct gpu *g = (struct gpu *)d.m;
    int launches = d.plan->lists[GPU_ANY_ROWS].n_launches;
    cr_expect(d.model.info.n_layer == 2 && g->n_kernels < launches, "%d kernels, %d launches", g->n_kernels, launches);
    for (int i = 0; i < g->n_kernels; i++)
        for (int j = 0; j < i; j++)
            cr_expect(g->kernels[i]->key_size != g->kernels[j]->key_size ||
                      memcmp(g->kernels[i]->key, g->kernels[j]->key, g->kernels[i]->key_size) != 0);
    d.m->v->describe(d.m, NULL, &d.said);
    d.m->v->describe(d.m, d.plan, &d.said);
    d.m->v->print(d.plan, &d.said);
    cr_expect(strstr(d.said.data, "compute capability") && strstr(d.said.data, "attend"), "%s", d.said.data);
    decode_close(&d);
}

Test(ptx_machine, refuses_old_cards_and_options_of_the_cpu)
{
    struct machine *m;
    struct error err = {0};
    cr_expect(machine_open_gpu(&m, &(struct machine_options){.isa = "avx2"}, &(struct gpu_options){0}, &err) < 0);
    cr_expect(machine_open_gpu(&m, &(struct machine_options){.blas = true}, &(struct gpu_options){0}, &err) < 0);
    quern_cuda_set(&(struct quern_cuda_setup){1, 7, 0, 13000, 1 << 20});
    cr_expect(machine_open_gpu(&m, &(struct machine_options){0}, &(struct gpu_options){0}, &err) < 0);
    cr_expect(strstr(err.text, "7.5"), "%s", err.text);
    cr_expect(machine_open_gpu(&m, &(struct machine_options){0}, &(struct gpu_options){.library = "/nowhere"}, &err) <
              0);
    cr_expect(err.code == E_GPU, "%s", err.text);
}

// A GPU with too little memory, and every driver call failing in turn: each gives an error and leaks nothing.
Test(ptx_machine, a_failing_driver_is_an_error_and_leaves_nothing)
{
    static const char *const calls[] = {"cuMemAlloc_v2", "cuLaunchKernel", "cuStreamBeginCapture_v2", "cuGraphLaunch",
                                        "cuMemHostAlloc"};
    char path[512];
    cr_assert(golden_path("arch/tiny-llama.gguf", path));
    struct model model = model_open(path);
    for (size_t c = 0; c < COUNT_OF(calls); c++)
        for (uint64_t n = 1; n < 40; n = 2 * n + 1) {
            struct machine *m = machine_open(false);
            struct compile_options o = {1, 1, {DT_F16, DT_F16}, false, NULL};
            struct plan *plan = NULL;
            struct error err = {0};
            quern_cuda_fail(calls[c], n, 2);
            if (m->v->compile(m, model.graph, &o, &plan, &err) < 0)
                cr_expect(err.code == E_MEMORY || err.code == E_GPU, "%s", err.text);
            if (plan)
                m->v->plan_free(m, plan);
            quern_cuda_fail(NULL, 0, 0);
            m->v->close(m);
            struct quern_cuda_counts left;
            quern_cuda_count(&left);
            cr_expect(left.blocks == 0 && left.modules == 0 && left.pinned == 0 && left.contexts == 0, "%s %llu",
                      calls[c], (unsigned long long)n);
        }
    model_close(&model);
}
