// Low-rank adapters: logits beside those of float64 models whose matrices were changed (make_lora_models.py), on the CPU
// and on the reference machine, in one step and in chunks; scales; and adapters that do not fit.
#include "kernels/machine.h"
#include "tests/edited_file.h"
#include "tests/golden.h"

#include <criterion/criterion.h>
#include <unistd.h>

enum { ADAPTERS_MAX = 3 };

// A graph with adapters, which are the same file at several scales.
struct adapted {
    struct gguf *model, *lora;
    struct graph *graph;
};

static int adapt(struct adapted *a, const char *base, const char *lora, const float *scales, int n, struct error *err)
{
    struct adapter adapters[ADAPTERS_MAX];
    struct arch_info info;
    char path[512];
    *a = (struct adapted){0};
    cr_assert(golden_path(base, path), "%s", base);
    cr_assert_eq(gguf_open(&a->model, path, 0, err), 0, "%s", err->text);
    cr_assert_eq(gguf_open(&a->lora, lora, 0, err), 0, "%s", err->text);
    for (int i = 0; i < n; i++)
        adapters[i] = (struct adapter){a->lora, scales[i]};
    return arch_build(a->model, &(struct arch_options){.adapters = adapters, .n_adapters = n}, &a->graph, &info, err);
}

static void adapted_close(struct adapted *a)
{
    graph_free(a->graph);
    gguf_close(a->model);
    gguf_close(a->lora);
}

static void check(struct machine *m, const char *name, const float *scales, int n, const char *wanted)
{
    char base[80], file[80], lora[512], want_path[512];
    struct adapted a;
    struct error err = {0};
    snprintf(base, sizeof base, "arch/tiny-%s.gguf", name);
    snprintf(file, sizeof file, "lora/tiny-%s.lora.gguf", name);
    cr_assert(golden_path(file, lora) && golden_path(wanted ? wanted : file, want_path));
    cr_assert_eq(adapt(&a, base, lora, scales, n, &err), 0, "%s", err.text);
    golden_check(m, a.graph, want_path, 1e-11, name);
    adapted_close(&a);
}

static void check_all(bool ref)
{
    struct machine *m;
    struct error err = {0};
    const struct machine_options o = {.exact = true, .n_threads = ref ? 1 : 2};
    cr_assert_eq((ref ? machine_open_ref : machine_open_cpu)(&m, &o, &err), 0, "%s", err.text);
    check(m, "qwen3", (float[]){1}, 1, NULL);
    check(m, "gpt2", (float[]){1}, 1, NULL); // adapts a fused matrix, of which three parts are multiplied
    check(m, "qwen3", (float[]){0.25f, 0.5f, 0.25f}, 3, NULL);
    check(m, "qwen3", (float[]){0}, 1, "arch/tiny-qwen3.gguf");
    m->v->close(m);
}

Test(lora, the_cpu_agrees_with_changed_matrices)
{
    check_all(false);
}

Test(lora, plain_c_agrees_with_changed_matrices)
{
    check_all(true);
}

static void expect_refused(const char *base, const char *edits, const char *says)
{
    char lora[512], made[] = "/tmp/quern-lora-XXXXXX";
    struct adapted a;
    struct error err = {0};
    cr_assert(golden_path("lora/tiny-qwen3.lora.gguf", lora));
    close(mkstemp(made));
    struct gguf *base_lora;
    struct edits e = parse_edits(edits);
    cr_assert_eq(gguf_open(&base_lora, lora, 0, &err), 0, "%s", err.text);
    cr_assert_eq(write_file(made, base_lora, &e, &err), 0, "%s", err.text);
    gguf_close(base_lora);
    cr_expect_eq(adapt(&a, base, made, (float[]){1}, 1, &err), -1, "%s %s", base, edits);
    cr_expect(err.code == E_MODEL && strstr(err.text, says), "%s: %s", edits, err.text);
    adapted_close(&a);
    unlink(made);
}

Test(lora, adapters_that_do_not_fit_are_refused)
{
    expect_refused("arch/tiny-gpt2.gguf", "", "family qwen3");
    expect_refused("arch/tiny-qwen3.gguf", "str:general.type,model", "no LoRA adapter");
    expect_refused("arch/tiny-qwen3.gguf", "f32:adapter.lora.alpha,nan", "alpha");
    expect_refused("arch/tiny-qwen3.gguf", "drop:blk.0.attn_q.weight.lora_b", "attn_q.weight.lora_b': is missing");
    expect_refused("arch/tiny-qwen3.gguf", "drop:blk.0.attn_q.weight.lora_a", "attn_q.weight.lora_b': this adapter");
    expect_refused("arch/tiny-qwen3.gguf", "name:blk.1.ffn_up.weight.lora_a,token_embd.weight.lora_a", "token_embd");
    expect_refused("arch/tiny-qwen3.gguf", "name:blk.1.ffn_up.weight.lora_a,blk.1.ffn_down.weight.lora_c", "lora");
}
