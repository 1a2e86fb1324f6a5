// Control vectors: logits beside those of float64 models that are steered (make_control_models.py), on the CPU, on the
// reference machine and on the GPU machine with the interpreter behind it, in one step and in chunks; scales, sums and
// ranges of layers; and files that do not fit.
#include "kernels/ptx/gpu.h"
#include "tests/edited_file.h"
#include "tests/golden.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <unistd.h>

enum { VECTORS_MAX = 3 };

// A graph with control vectors, which are the same file at several scales.
struct steered {
    struct gguf *model, *vector;
    struct graph *graph;
};

static int steer(struct steered *s, const char *base, const char *vector, const float *scales, int n,
                 struct control_range range, struct error *err)
{
    struct adapter vectors[VECTORS_MAX];
    struct arch_info info;
    char path[512];
    *s = (struct steered){0};
    cr_assert(golden_path(base, path), "%s", base);
    cr_assert_eq(gguf_open(&s->model, path, 0, err), 0, "%s", err->text);
    cr_assert_eq(gguf_open(&s->vector, vector, 0, err), 0, "%s", err->text);
    for (int i = 0; i < n; i++)
        vectors[i] = (struct adapter){s->vector, scales[i]};
    const struct arch_options o = {.controls = vectors, .n_controls = n, .control_range = range};
    return arch_build(s->model, &o, &s->graph, &info, err);
}

static void steered_close(struct steered *s)
{
    graph_free(s->graph);
    gguf_close(s->model);
    gguf_close(s->vector);
}

// `wanted`: whose logits are expected, NULL: those of the steered model.
static void check(struct machine *m, const char *name, const float *scales, int n, struct control_range range,
                  const char *wanted)
{
    char base[80], file[80], vector[512], want_path[512];
    struct steered s;
    struct error err = {0};
    snprintf(base, sizeof base, "arch/tiny-%s.gguf", name);
    snprintf(file, sizeof file, "control/tiny-%s.control.gguf", name);
    cr_assert(golden_path(file, vector) && golden_path(wanted ? wanted : file, want_path));
    cr_assert_eq(steer(&s, base, vector, scales, n, range, &err), 0, "%s", err.text);
    golden_check(m, s.graph, want_path, 1e-11, name);
    steered_close(&s);
}

static void check_all(struct machine *m)
{
    const struct control_range all = {0};
    check(m, "smollm3", (float[]){1}, 1, all, NULL);
    check(m, "gptneox", (float[]){1}, 1, all, NULL); // in the last layer alone, where few rows are left
    check(m, "smollm3", (float[]){0.25f, 1.25f, -0.5f}, 3, all, NULL);
    check(m, "smollm3", (float[]){1}, 1, (struct control_range){1, 3}, NULL);
    check(m, "smollm3", (float[]){1}, 1, (struct control_range){2, 2}, "arch/tiny-smollm3.gguf"); // has none there
    m->v->close(m);
}

Test(control, the_cpu_agrees_with_steered_models)
{
    struct machine *m;
    struct error err = {0};
    const struct machine_options o = {.exact = true, .n_threads = 2};
    cr_assert_eq(machine_open_cpu(&m, &o, &err), 0, "%s", err.text);
    check_all(m);
}

Test(control, plain_c_agrees_with_steered_models)
{
    struct machine *m;
    struct error err = {0};
    const struct machine_options o = {.exact = true, .n_threads = 1};
    cr_assert_eq(machine_open_ref(&m, &o, &err), 0, "%s", err.text);
    check_all(m);
}

Test(control, the_gpu_agrees_with_steered_models, .timeout = 120)
{
    struct machine *m;
    struct error err = {0};
    const struct machine_options o = {.exact = true};
    cr_assert_eq(machine_open_gpu(&m, &o, &(struct gpu_options){0}, &err), 0, "%s", err.text);
    check_all(m);
}

// Builds a model with an edited copy of smollm3's vector.
static int steer_edited(const char *base, const char *edits, struct control_range range, struct error *err)
{
    char vector[512], made[] = "/tmp/quern-control-XXXXXX";
    struct steered s;
    struct gguf *original;
    struct edits e = parse_edits(edits);
    cr_assert(golden_path("control/tiny-smollm3.control.gguf", vector));
    close(mkstemp(made));
    cr_assert_eq(gguf_open(&original, vector, 0, err), 0, "%s", err->text);
    cr_assert_eq(write_file(made, original, &e, err), 0, "%s", err->text);
    gguf_close(original);
    const int status = steer(&s, base, made, (float[]){1}, 1, range, err);
    steered_close(&s);
    unlink(made);
    return status;
}

static void expect_refused(const char *base, const char *edits, const char *says)
{
    struct error err = {0};
    cr_expect_eq(steer_edited(base, edits, (struct control_range){0}, &err), -1, "%s %s", base, edits);
    cr_expect(err.code == E_MODEL && strstr(err.text, says), "%s: %s", edits, err.text);
}

Test(control, vectors_that_do_not_fit_are_refused)
{
    static const char model[] = "arch/tiny-smollm3.gguf";
    expect_refused("arch/tiny-llama.gguf", "", "of the family smollm3, the model is of llama");
    expect_refused(model, "name:direction.1,direction.0", "direction.0': layer 0 is never steered");
    expect_refused(model, "name:direction.1,direction.x", "is no direction");
    expect_refused(model, "name:direction.1,direction.", "is no direction");
    expect_refused(model, "name:direction.1,direction.-1", "is no direction");
    expect_refused(model, "name:direction.1,directions.1", "is no direction");
    expect_refused(model, "name:direction.3,direction.4", "direction.4 is behind a layer that the model, of 4");
    expect_refused(model, "name:direction.3,direction.99999999999", "is no direction");
    expect_refused(model, "shape:direction.1,16", "its shape is 16 x 1, the model's rows have 32 columns");
    expect_refused(model, "shape:direction.1,16,2", "its shape is 16 x 2");
    expect_refused(model, "dtype:direction.1,F16", "is not F32");
    expect_refused(model, "fill:direction.3,nan", "no number");
    expect_refused("arch/tiny-gemma3n.gguf", "no:controlvector.model_hint", "family gemma3n takes no control vectors");
}

Test(control, a_hint_that_names_no_family_and_layers_out_of_range_do_not_matter)
{
    struct error err = {0};
    const struct control_range near = {1, 2};
    cr_expect_eq(steer_edited("arch/tiny-smollm3.gguf", "str:controlvector.model_hint,smollm", near, &err), 0, "%s",
                 err.text);
    cr_expect_eq(steer_edited("arch/tiny-smollm3.gguf", "name:direction.3,direction.9", near, &err), 0, "%s", err.text);
    cr_expect_eq(steer_edited("arch/tiny-llama.gguf", "no:controlvector.model_hint", near, &err), 0, "%s", err.text);
}

// Writes a vector for layer 1 of a model with rows of n columns.
static void write_vector(const char *path, int n)
{
    struct gguf_writer *w;
    struct error err = {0};
    float *values = calloc((size_t)n, sizeof *values);
    cr_assert(values && gguf_writer_open(&w, path, &err) == 0, "%s", err.text);
    gguf_write_str(w, "general.architecture", STR_LIT("controlvector"));
    cr_assert_eq(gguf_write_tensor_info(w, "direction.1", DT_F32, 1, (int64_t[]){n}, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_write_data(w, values, (size_t)n * sizeof *values, &err), 0, "%s", err.text);
    cr_assert_eq(gguf_writer_close(w, &err), 0, "%s", err.text);
    free(values);
}

// Behind layer 1 the vector is added, and no node of the layer comes later.
static void expect_steered(const char *name, const struct graph *g)
{
    static const char layer[] = "blk.1.", end[] = "blk.1.controlled";
    int last = -1;
    for (int i = 0; i < g->n_nodes; i++)
        if (!strncmp(g->nodes[i]->name, layer, sizeof layer - 1))
            last = i;
    cr_expect(last >= 0 && !strcmp(g->nodes[last]->name, end), "%s: layer 1 ends with %s", name,
              last >= 0 ? g->nodes[last]->name : "nothing");
}

static void check_family(const char *folder, const char *name)
{
    char path[512], made[] = "/tmp/quern-control-XXXXXX";
    struct gguf *model, *vector;
    struct graph *graph;
    struct arch_info info;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    cr_assert_eq(gguf_open(&model, path, 0, &err), 0, "%s", err.text);
    cr_assert_eq(arch_build(model, &(struct arch_options){0}, &graph, &info, &err), 0, "%s", err.text);
    graph_free(graph);
    if (info.n_layer >= 2) {
        close(mkstemp(made));
        write_vector(made, info.n_embd);
        cr_assert_eq(gguf_open(&vector, made, 0, &err), 0, "%s", err.text);
        const struct adapter control = {vector, 1};
        const struct arch_options o = {.controls = &control, .n_controls = 1};
        if (arch_build(model, &o, &graph, &info, &err) == 0) {
            expect_steered(name, graph);
            graph_free(graph);
        } else {
            cr_expect(!strcmp(name, "tiny-gemma3n.gguf"), "%s: %s", name, err.text);
        }
        gguf_close(vector);
        unlink(made);
    }
    gguf_close(model);
}

// Of the golden models, which are of every family but the encoders. Where a layer's end were forgotten, building would fail.
Test(control, every_family_that_answers_is_steered, .timeout = 120)
{
    const char *shared = getenv("QUERN_SHARED"), *tests = getenv("QUERN_TESTS");
    int n = 0;
    for (int i = 0; i < 2; i++) {
        char folder[512];
        snprintf(folder, sizeof folder, i ? "%s/golden/arch" : "%s/data/arch",
                 i ? (shared ? shared : "../shared") : (tests ? tests : "tests"));
        DIR *d = opendir(folder);
        for (struct dirent *e; d && (e = readdir(d));) {
            const size_t len = strlen(e->d_name);
            if (len < 6 || strcmp(e->d_name + len - 5, ".gguf"))
                continue;
            check_family(folder, e->d_name);
            n++;
        }
        if (d)
            closedir(d);
    }
    cr_expect_geq(n, 40, "%d models", n);
}
