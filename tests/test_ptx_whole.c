// Tests the persistent form of a step of one row (kernels/ptx/emit_whole.h) with the tests' libcuda: one cooperative launch
// gives the bits of a launch for each kernel, for models of each kind; mistakes in its barrier are found; what cannot be one
// kernel is launched kernel by kernel; and ptxas accepts its text.
#include "kernels/card.h"
#include "kernels/ptx/gpu.h"
#include "tests/built_model.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 4, PAGES = 2 };

enum { TOP = 4 };
struct run {
    bool profile; // each launch is timed by itself
    int top_k;
    struct candidate top[STEPS][TOP];
    struct machine *m;
    struct plan *plan;
    struct buffer *kv, *states;
    float logits[STEPS][N_VOCAB + 64];
};

static void run_open(struct run *r, const struct built_model *model, int variant, enum dtype type)
{
    struct error err = {0};
    const struct machine_options options = {0};
    const struct compile_options compile = {1, 1, {type, type}, r->profile, NULL};
    const struct graph *g = model->graph;
    *r = (struct run){.profile = r->profile, .top_k = r->top_k};
    cr_assert_eq(machine_open_gpu(&r->m, &options, &(struct gpu_options){.variant = variant}, &err), 0, "%s", err.text);
    cr_assert_eq(r->m->v->compile(r->m, g, &compile, &r->plan, &err), 0, "%s", err.text);
    cr_assert_eq(r->m->v->alloc(r->m, MAX(kv_page_bytes(g, compile.kv_type) * PAGES, (size_t)1), &r->kv, &err), 0);
    cr_assert_eq(r->m->v->alloc(r->m, MAX(state_bytes(g), (size_t)1), &r->states, &err), 0);
}

// Runs steps of one row, the last of them behind the end of the first page. The second has no output.
static int run_steps(struct run *r, struct error *err)
{
    for (int i = 0; i < STEPS; i++) {
        static const int32_t pages[] = {1, 0};
        int32_t token = (37 * i + 5) % N_VOCAB, position = i < STEPS - 1 ? i : KV_PAGE, zero = 0, from = i ? 0 : -1;
        struct step s = {.n_tokens = 1,
                         .n_outputs = i != 1,
                         .tokens = &token,
                         .positions = &position,
                         .seqs = &zero,
                         .outputs = &zero,
                         .pages = pages,
                         .pages_stride = PAGES,
                         .kv = r->kv,
                         .logits = r->logits[i],
                         .top_k = r->top_k,
                         .top = r->top[i],
                         .states = r->states,
                         .state_from = &from,
                         .state_to = &zero};
        if (r->m->v->run(r->m, r->plan, &s, err))
            return -1;
    }
    return 0;
}

static void run_close(struct run *r)
{
    r->m->v->free(r->m, r->kv);
    r->m->v->free(r->m, r->states);
    r->m->v->plan_free(r->m, r->plan);
    r->m->v->close(r->m);
}

// ---- bits

// launches: of a step
static void check_bits(const char *preset, const char *mix, enum dtype type, unsigned launches)
{
    static struct run first, whole;
    struct built_model model = build_model(preset, mix, 11);
    struct error err = {0};
    struct quern_cuda_counts before, after;
    run_open(&first, &model, 0, type);
    run_open(&whole, &model, GPU_WHOLE_STEP, type);
    cr_assert(whole.plan->whole.kernel, "%s, %s: no whole step", preset, mix);
    cr_assert_eq(run_steps(&first, &err), 0, "%s", err.text);
    quern_cuda_count(&before);
    cr_assert_eq(run_steps(&whole, &err), 0, "%s, %s: %s", preset, mix, err.text);
    quern_cuda_count(&after);
    cr_expect_eq(after.launches - before.launches, STEPS * launches, "%s, %s: %d launches", preset, mix,
                 (int)(after.launches - before.launches));
    for (int i = 0; i < STEPS; i++)
        cr_expect(i == 1 || !memcmp(first.logits[i], whole.logits[i], (size_t)model.info.n_vocab * sizeof(float)),
                  "%s, %s: step %d has other bits", preset, mix, i);
    run_close(&first);
    run_close(&whole);
    built_model_free(&model);
}

// The everyday suite has a part of the shapes and cards, the long one all of them.
#ifdef EVERY_ARCH
enum { EVERY_SHAPE = 1 };
#else
enum { EVERY_SHAPE = 0 };
#endif

Test(ptx_whole, gives_the_bits_of_launches)
{
    check_bits("llama-tiny", "Q4_K_M", DT_F16, 1);
    check_bits("phi3-tiny", "F16", DT_F16, 1);
    check_bits("llama-tiny", "IQ2_XXS", DT_F16, 1); // a table that several parts need
    if (!EVERY_SHAPE)
        return;
    check_bits("qwen2-tiny", "Q4_K_M", DT_BF16, 1);
    check_bits("qwen3-tiny", "Q8_0", DT_Q8_0, 1);
    check_bits("gemma3-tiny", "Q4_K_M", DT_F16, 1);
    check_bits("gpt2-tiny", "Q4_0", DT_F32, 1);
}

Test(ptx_whole, gives_the_bits_of_launches_of_states)
{
    check_bits("qwen35-tiny", "Q4_K_M", DT_F16, 3);
}

Test(ptx_whole, gives_the_bits_of_launches_of_experts)
{
    check_bits("qwen3-moe-tiny", "Q4_K_M", DT_F16, 1);
    if (!EVERY_SHAPE)
        return;
    check_bits("llama-moe-tiny", "Q4_K_M", DT_F16, 1);
    check_bits("gpt-oss-tiny", "MXFP4", DT_F16, 1);
    check_bits("qwen35-moe-tiny", "Q4_K_M", DT_F16, 3);
    check_bits("deepseek2-tiny", "Q4_K_M", DT_F16, 17);
}

// Cards without launches that begin early: what a part reads ahead of the barrier is told by a line of its text.
Test(ptx_whole, serves_older_cards)
{
    static const int cards[][2] = {{8, 0}, {8, 6}, {7, 5}, {12, 0}};
    for (size_t i = EVERY_SHAPE ? 0 : 2; i < (EVERY_SHAPE ? COUNT_OF(cards) : 3); i++) {
        quern_cuda_set(&(struct quern_cuda_setup){1, cards[i][0], cards[i][1], 13000, (size_t)1 << 30});
        check_bits("llama-tiny", "Q4_K_M", DT_F16, 1);
        if (EVERY_SHAPE)
            check_bits("qwen3-moe-tiny", "Q4_K_M", DT_F16, 1);
    }
}

// ---- beside the rest of the machine

// The launches that find the greatest logits follow the whole step. A profile launches kernel by kernel.
Test(ptx_whole, finds_the_greatest_logits_and_is_profiled)
{
    static struct run top[2] = {{.top_k = TOP}, {.top_k = TOP}}, plain, profiled = {.profile = true};
    struct built_model model = build_model("llama-tiny", "Q4_K_M", 11);
    struct error err = {0};
    struct quern_cuda_counts before, after;
    for (int i = 0; i < 2; i++) {
        run_open(&top[i], &model, i ? GPU_WHOLE_STEP : 0, DT_F16);
        cr_assert_eq(run_steps(&top[i], &err), 0, "%s", err.text);
    }
    cr_expect_eq(memcmp(top[0].top, top[1].top, sizeof top[0].top), 0);
    run_open(&plain, &model, 0, DT_F16);
    run_open(&profiled, &model, GPU_WHOLE_STEP, DT_F16);
    cr_assert_eq(run_steps(&plain, &err), 0, "%s", err.text);
    quern_cuda_count(&before);
    cr_assert_eq(run_steps(&profiled, &err), 0, "%s", err.text);
    quern_cuda_count(&after);
    cr_expect_gt(after.launches - before.launches, 20 * STEPS);
    cr_expect_eq(memcmp(plain.logits[STEPS - 1], profiled.logits[STEPS - 1], N_VOCAB * sizeof(float)), 0);
    run_close(&top[0]);
    run_close(&top[1]);
    run_close(&plain);
    run_close(&profiled);
    built_model_free(&model);
}

// A card on which the blocks have no room at the same time refuses the launch. While kernels are chosen that is no error,
// and another variant is taken.
Test(ptx_whole, a_card_without_room_for_it_takes_another_variant)
{
    struct built_model model = build_model("llama-tiny", "Q4_K_M", 11);
    struct error err = {0};
    struct machine *m;
    struct plan *p;
    const struct machine_options options = {0};
    const struct compile_options compile = {1, 1, {DT_F16, DT_F16}, false, NULL};
    for (unsigned refused = 0; refused < 2; refused++) {
        struct card_choice c = {0};
        cr_assert_eq(machine_open_gpu(&m, &options, &(struct gpu_options){.tune_seconds = 1e9}, &err), 0, "%s",
                     err.text);
        quern_cuda_fail(refused ? "cuLaunchCooperativeKernel" : NULL, refused, refused ? 720 : 0);
        cr_assert_eq(m->v->compile(m, model.graph, &compile, &p, &err), 0, "%s", err.text);
        quern_cuda_fail(NULL, 0, 0);
        for (int i = 0; card_choice(m, i, &c) && strcmp(c.type, "step") != 0; i++)
            ;
        cr_assert_eq(strcmp(c.type, "step"), 0);
        cr_expect_eq(c.n_tried, refused ? GPU_WHOLE_STEP : GPU_STEP_VARIANTS, "%d variants", c.n_tried);
        cr_expect(!refused || !p->whole.kernel);
        m->v->plan_free(m, p);
        m->v->close(m);
    }
    built_model_free(&model);
}

// Asked for by its number, it is launched or refused.
Test(ptx_whole, a_launch_that_is_refused_is_an_error)
{
    static struct run r;
    struct built_model model = build_model("llama-tiny", "Q4_K_M", 11);
    struct error err = {0};
    run_open(&r, &model, GPU_WHOLE_STEP, DT_F16);
    quern_cuda_fail("cuLaunchCooperativeKernel", 1, 720);
    cr_expect_eq(run_steps(&r, &err), -1);
    quern_cuda_fail(NULL, 0, 0);
    cr_expect(strstr(err.text, "a whole step: cuLaunchCooperativeKernel"), "%s", err.text);
    cr_expect_eq(run_steps(&r, &err), 0, "%s", err.text);
    run_close(&r);
    built_model_free(&model);
}

// ---- ptxas, where it is found: no warnings, and no spills

static void assemble(const struct built_model *model, int arch, const char *what)
{
    struct machine *m;
    struct plan *p;
    struct error err = {0};
    char folder[] = "/tmp/quern-whole-ptx-XXXXXX", path[64], command[256], report[4096];
    const struct machine_options options = {0};
    const struct compile_options compile = {1, 1, {DT_F16, DT_F16}, false, NULL};
    cr_assert_eq(machine_open_gpu(&m, &options, &(struct gpu_options){.paper = arch, .variant = GPU_WHOLE_STEP}, &err),
                 0, "%s", err.text);
    cr_assert_eq(m->v->compile(m, model->graph, &compile, &p, &err), 0, "%s", err.text);
    cr_assert(p->whole.kernel, "%s, sm_%d", what, arch);
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/ptx", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(p->whole.kernel->text, 1, p->whole.kernel->text_size, f) == p->whole.kernel->text_size);
    fclose(f);
    snprintf(command, sizeof command, "ptxas -v -arch=sm_%d -o /dev/null %s 2>&1; rm -r %s", arch, path, folder);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    report[fread(report, 1, sizeof report - 1, out)] = 0;
    pclose(out);
    const char *used = strstr(report, "Used ");
    cr_expect(strstr(report, " 0 bytes spill stores, 0 bytes spill loads"), "%s, sm_%d: %s", what, arch, report);
    cr_expect(!strstr(report, "warning"), "%s, sm_%d: %s", what, arch, report);
    fprintf(stderr, "%s, sm_%d: %d parts, %d registers, %u bytes of shared memory\n", what, arch,
            p->whole.parts->n_parts, used ? atoi(used + 5) : 0, p->whole.kernel->launch.shared);
    m->v->plan_free(m, p);
    m->v->close(m);
}

Test(ptx_whole, assembles_without_spills)
{
#ifdef EVERY_ARCH
    static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
    static const char *const models[] = {"llama-tiny", "llama-135m",     "qwen2-0.5b", "gemma3-tiny", "qwen35-tiny",
                                         "phi3-tiny",  "qwen3-moe-tiny", "gpt2-tiny",  "gpt-oss-tiny"};
#else
    static const int archs[] = {80, 90};
    static const char *const models[] = {"llama-tiny", "qwen3-moe-tiny"};
#endif
    if (system("ptxas --version >/dev/null 2>&1"))
        cr_skip_test("ptxas is not installed");
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        struct built_model model = build_model(models[i], "Q4_K_M", 11);
        for (size_t a = 0; a < COUNT_OF(archs); a++)
            assemble(&model, archs[a], models[i]);
        built_model_free(&model);
    }
}
