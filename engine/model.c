// Opens a model: first the machine, then the file, the tokenizer and the graph, and at the end, for DEVICE_AUTO, the
// choice between CPU and GPU, which needs the size of the model. The weights stay in the mapped file unless the
// caller asks for a copy.
#include "engine/model.h"
#include "engine/clock.h"
#include "engine/device_choice.h"
#include "engine/memory.h"
#include "models/builtin/builtin.h"

#include <stdio.h>
#include <stdlib.h>

bool model_has_builtin(void)
{
    return builtin_image().data;
}

int model_file_open(struct gguf **out, const char *path, unsigned flags, struct error *err)
{
    if (strcmp(path, MODEL_BUILTIN))
        return gguf_open(out, path, flags, err);
    if (!model_has_builtin())
        return fail(err, E_USAGE, "this build has no built-in model; give one with -m FILE.gguf or $QUERN_MODEL");
    return gguf_open_view(out, path, builtin_image(), flags, err);
}

static int open_card(struct model *m, const struct model_options *o, struct error *err)
{
    m->card = o->card;
    struct gpu_options gpu = {
        .device = o->card, .cache = o->kernel_cache, .tune_seconds = o->tune_seconds, .tune_again = o->tune_again};
    m->device = "gpu";
    return machine_open_gpu(&m->machine, &o->machine, &gpu, err);
}

// Opens the machine. DEVICE_AUTO starts with the CPU; choose_device decides once the model is loaded and its size
// known.
static int open_machine(struct model *m, const struct model_options *o, struct error *err)
{
    snprintf(m->device_why, sizeof m->device_why, "asked for");
    if (o->device == DEVICE_GPU)
        return open_card(m, o, err) ? fail_prefix(err, "--device gpu") : 0;
    m->device = o->device == DEVICE_REF ? "ref" : "cpu";
    if (o->device == DEVICE_REF)
        return machine_open_ref(&m->machine, &o->machine, err);
    return machine_open_cpu(&m->machine, &o->machine, err);
}

// For DEVICE_AUTO, once the model is loaded on the CPU: moves it to the GPU if that is the better choice.
static void choose_device(struct model *m, const struct model_options *o)
{
    if (o->device != DEVICE_AUTO)
        return;
    struct device_question question = {
        .cpu = m->machine,
        .machine = &o->machine,
        .graph = m->graph,
        .n_ctx = m->n_ctx,
        .kv_type = {o->kv_type[0], o->kv_type[1]},
        .card = o->card,
        .kernel_cache = o->kernel_cache,
        .tune_seconds = o->tune_seconds,
    };
    struct device_choice choice;
    device_choose(&question, &choice);
    m->device_news = choice.found_gpu;
    snprintf(m->device_why, sizeof m->device_why, "%s", choice.why);
    if (!choice.gpu)
        return;
    m->machine->v->close(m->machine);
    m->machine = choice.gpu;
    m->device = "gpu";
    m->card = o->card;
}

// The vocabulary and the rows of the output matrix must agree, because a token id is an index into both.
static int check_vocabulary(const struct model *m, struct error *err)
{
    int n = tokenizer_n_vocab(m->tokenizer);
    if (tokenizer_kind(m->tokenizer) == TOKENIZER_NONE || n == m->info.n_vocab)
        return 0;
    return fail(err, E_MODEL, "tokenizer.ggml.tokens has %d tokens, but the output of the model has %d rows", n,
                m->info.n_vocab);
}

int model_set_context(struct model *m, int n_ctx, struct error *err)
{
    struct graph *graph;
    const int n_loras = m->n_adapters - m->n_controls;
    const struct arch_options options = {
        .n_ctx = n_ctx,
        .adapters = m->adapters,
        .n_adapters = n_loras,
        .controls = m->adapters ? m->adapters + n_loras : NULL,
        .n_controls = m->n_controls,
        .control_range = m->control_range,
        .hidden = m->hidden,
    };
    if (arch_build(m->file, &options, &graph, &m->info, err))
        return -1;
    graph_free(m->graph);
    m->graph = graph;
    m->n_ctx = n_ctx;
    return 0;
}

// Whether the model is made for embeddings: it sees whole texts, or the file says how rows become a vector.
static bool is_meant_to_embed(const struct model *m)
{
    const enum pooling kind = m->info.pooling.kind;
    return m->info.encoder || kind == POOLING_MEAN || kind == POOLING_FIRST || kind == POOLING_LAST;
}

static int choose_result(struct model *m, const struct model_options *o, struct error *err)
{
    if (m->hidden || !o->hidden_if_meant || !is_meant_to_embed(m))
        return 0;
    m->hidden = true;
    return model_set_context(m, m->n_ctx, err);
}

static int check_answers(const struct model *m, struct error *err)
{
    if (!m->info.encoder || m->hidden)
        return 0;
    return fail(err, E_USAGE, "a model of the family %s makes embeddings, not answers: quern embed", m->info.name);
}

// Checks that the weights fit into memory, before they are read into it.
static int check_weights_fit(const char *path, struct error *err)
{
    struct gguf *file;
    struct memory_free free_now;
    if (gguf_open(&file, path, GGUF_METADATA_ONLY, err))
        return -1;
    uint64_t bytes = gguf_file_bytes(file);
    gguf_close(file);
    memory_query("", &free_now);
    char need[24], have[24];
    memory_format(bytes, need);
    memory_format(MIN(free_now.bytes, free_now.address_space), have);
    if (bytes > MIN(free_now.bytes, free_now.address_space))
        return fail(err, E_MEMORY, "%s: %s needed for the weights, %s free; without --no-mmap they are not copied",
                    path, need, have);
    return 0;
}

static int open_adapters(struct model *m, const struct model_options *o, struct error *err)
{
    if (!o->n_adapters)
        return 0;
    m->adapters = calloc((size_t)o->n_adapters, sizeof *m->adapters);
    m->adapter_files = calloc((size_t)o->n_adapters, sizeof *m->adapter_files);
    if (!m->adapters || !m->adapter_files)
        return fail(err, E_MEMORY, "no memory for %d adapters", o->n_adapters);
    for (; m->n_adapters < o->n_adapters; m->n_adapters++) {
        struct gguf **file = &m->adapter_files[m->n_adapters];
        if (gguf_open(file, o->adapters[m->n_adapters].path, 0, err))
            return -1;
        m->adapters[m->n_adapters] = (struct adapter){*file, o->adapters[m->n_adapters].scale};
    }
    m->n_controls = o->n_controls;
    m->control_range = o->control_range;
    return 0;
}

static int load(struct model *m, const struct model_options *o, struct error *err)
{
    bool copied = o->no_mmap && strcmp(o->path, MODEL_BUILTIN);
    if (copied && check_weights_fit(o->path, err))
        return -1;
    if (model_file_open(&m->file, o->path, copied ? GGUF_NO_MMAP : 0, err))
        return -1;
    m->weights_are_mapped = !copied;
    if (o->set_keys && o->set_keys(o->set_keys_arg, m->file, err))
        return -1;
    if (open_adapters(m, o, err) || tokenizer_load(&m->tokenizer, m->file, o->any_pre ? TOKENIZER_ANY_PRE : 0, err) ||
        model_set_context(m, o->n_ctx ? o->n_ctx : N_CTX_DEFAULT, err) || choose_result(m, o, err) ||
        check_answers(m, err) || check_vocabulary(m, err))
        return -1;
    if (!o->n_ctx && m->info.n_ctx_train < N_CTX_DEFAULT)
        return model_set_context(m, m->info.n_ctx_train, err);
    return 0;
}

int model_open(struct model **out, const struct model_options *o, struct error *err)
{
    double start = clock_ms();
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return fail(err, E_MEMORY, "no memory for a model");
    m->hidden = o->hidden;
    // the machine is opened first, so that an invalid flag is reported before the file is read
    if (open_machine(m, o, err) || load(m, o, err)) {
        model_close(m);
        return -1;
    }
    choose_device(m, o);
    m->load_ms = clock_ms() - start;
    *out = m;
    return 0;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    if (m->machine)
        m->machine->v->close(m->machine);
    graph_free(m->graph);
    tokenizer_free(m->tokenizer);
    gguf_close(m->file);
    for (int i = 0; i < m->n_adapters; i++)
        gguf_close(m->adapter_files[i]);
    free(m->adapters);
    free(m->adapter_files);
    free(m);
}
