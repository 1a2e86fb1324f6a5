// The tests' libcuda: modules, the linker and launches. A "cubin" is a header with size and checksum, then the PTX.
#include "tests/ptx/cuda_state.h"
#include "tests/ptx/simt_machine.h"
#include "tests/ptx/simt_parse.h"

#include <stdio.h>
#include <stdlib.h>

enum { SHARED_DEFAULT = 48 * 1024 };
static const char image_magic[8] = "\177PTXtext";
struct image {
    char magic[8];
    uint64_t size, sum;
    int32_t major, minor;
    char text[];
};
struct cu_link {
    struct image *image;
    char *log; // the caller's
    size_t log_size;
};

static uint64_t sum_of(const char *text, size_t n)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ (uint8_t)text[i]) * 0x100000001b3u;
    return sum;
}

// ---- parsing

static void free_kernels(struct simt_kernel *k)
{
    while (k) {
        struct simt_kernel *older = k->older;
        simt_kernel_free(k);
        k = older;
    }
}

struct placer {
    struct cu_module *module; // NULL: variables have no place yet
};

static uint64_t place(void *ctx, const void *init, size_t size)
{
    struct cu_module *m = ((struct placer *)ctx)->module;
    if (!m)
        return GLOBAL_WINDOW;
    uint64_t at = simt_alloc(m->context->simt, size);
    if (!at || simt_put(m->context->simt, at, init, size, NULL) || !block_add(&m->globals, at, size))
        return 0;
    return at;
}

// Checks the version and target of a text against the driver and the GPU.
static enum cu_result check_target(const char *text, struct error *err)
{
    const struct quern_cuda_setup *s = &cuda_state.setup;
    const char *version = strstr(text, ".version "), *target = strstr(text, ".target sm_");
    unsigned major = 0, minor = 0, sm = 0;
    char family = 0;
    if (version && sscanf(version, ".version %u.%u", &major, &minor) == 2) {
        unsigned served = (unsigned)(s->version / 1000 - 4) * 10 + (unsigned)(s->version % 1000 / 10);
        if (major * 10 + minor > served) {
            fail(err, E_GPU, "line 1: PTX %u.%u, where this driver serves up to %u.%u", major, minor, served / 10,
                 served % 10);
            return CU_UNSUPPORTED_PTX;
        }
    }
    if (target && sscanf(target, ".target sm_%u%c", &sm, &family) >= 1) {
        unsigned card = (unsigned)(s->major * 10 + s->minor);
        if (sm > card || (family == 'a' && sm != card) || (family == 'f' && sm / 10 != card / 10)) {
            fail(err, E_GPU, "line 2: the target sm_%u%c does not run on sm_%u", sm, family == '\n' ? ' ' : family,
                 card);
            return CU_INVALID_PTX;
        }
    }
    return CU_SUCCESS;
}

static enum cu_result parse(const char *text, struct cu_module *m, struct simt_kernel **kernels, struct error *err)
{
    struct placer placer = {m};
    struct simt_parser p = {.place = place, .ctx = &placer, .err = err};
    *kernels = NULL;
    enum cu_result result = check_target(text, err);
    if (result != CU_SUCCESS)
        return result;
    if (!simt_parse(&p, str_from(text), kernels))
        return CU_SUCCESS;
    free_kernels(*kernels);
    *kernels = NULL;
    return err->code == E_MEMORY ? CU_OUT_OF_MEMORY : CU_INVALID_PTX;
}

// Writes the error in the form of the driver's compiler.
static void tell(char *log, size_t size, const struct error *err)
{
    if (log && size)
        snprintf(log, size, "ptxas application ptx input, %s\nptxas fatal   : Ptx assembly aborted due to errors\n",
                 err->text);
}

struct jit_logs {
    char *log;
    size_t size;
};

static struct jit_logs read_options(unsigned n, const enum cu_jit_option *options, void *const *values)
{
    struct jit_logs logs = {0};
    for (unsigned i = 0; i < n; i++) {
        if (options[i] == CU_ERROR_LOG)
            logs.log = values[i];
        if (options[i] == CU_ERROR_LOG_SIZE)
            logs.size = (size_t)(uintptr_t)values[i];
    }
    return logs;
}

// ---- the linker

enum cu_result cuLinkCreate_v2(unsigned n, enum cu_jit_option *options, void **values, struct cu_link **link)
{
    GATE(cuLinkCreate_v2, NEED_CONTEXT);
    struct cu_link *l = calloc(1, sizeof(*l));
    if (!l)
        return CU_OUT_OF_MEMORY;
    struct jit_logs logs = read_options(n, options, values);
    l->log = logs.log;
    l->log_size = logs.size;
    cuda_state.count.links++;
    *link = l;
    return CU_SUCCESS;
}

enum cu_result cuLinkAddData_v2(struct cu_link *link, enum cu_jit_input type, void *data, size_t size, const char *name,
                                unsigned n, enum cu_jit_option *options, void **values)
{
    GATE(cuLinkAddData_v2, NEED_CONTEXT);
    (void)name, (void)options, (void)values;
    const char *text = data;
    if (!link || type != CU_INPUT_PTX || n || link->image)
        return CU_INVALID_VALUE;
    if (!size || text[size - 1])
        return refuse(CU_INVALID_VALUE, "PTX that does not end with a NUL");
    struct error err;
    struct simt_kernel *kernels;
    enum cu_result result = parse(text, NULL, &kernels, &err);
    free_kernels(kernels);
    if (result != CU_SUCCESS) {
        tell(link->log, link->log_size, &err);
        return result;
    }
    link->image = calloc(1, sizeof(*link->image) + size);
    if (!link->image)
        return CU_OUT_OF_MEMORY;
    memcpy(link->image->magic, image_magic, sizeof(image_magic));
    memcpy(link->image->text, text, size);
    link->image->size = size;
    link->image->sum = sum_of(text, size);
    link->image->major = cuda_state.setup.major;
    link->image->minor = cuda_state.setup.minor;
    return CU_SUCCESS;
}

enum cu_result cuLinkComplete(struct cu_link *link, void **cubin, size_t *size)
{
    GATE(cuLinkComplete, NEED_CONTEXT);
    if (!link || !link->image)
        return CU_INVALID_VALUE;
    *cubin = link->image;
    *size = sizeof(*link->image) + link->image->size;
    return CU_SUCCESS;
}

enum cu_result cuLinkDestroy(struct cu_link *link)
{
    GATE(cuLinkDestroy, NEED_INIT);
    if (!link)
        return CU_INVALID_HANDLE;
    free(link->image);
    free(link);
    cuda_state.count.links--;
    return CU_SUCCESS;
}

// ---- modules

static const char *text_of(const void *image, enum cu_result *result)
{
    struct image head;
    *result = CU_SUCCESS;
    if (*(const char *)image != image_magic[0])
        return image; // PTX itself
    memcpy(&head, image, sizeof(head));
    const char *text = (const char *)image + sizeof(head);
    if (memcmp(head.magic, image_magic, sizeof(image_magic)) || sum_of(text, head.size) != head.sum)
        *result = CU_INVALID_IMAGE;
    else if (head.major != cuda_state.setup.major || head.minor > cuda_state.setup.minor)
        *result = CU_NO_BINARY;
    return text;
}

static void free_module(struct cu_module *m)
{
    while (m->globals) {
        simt_release(m->context->simt, m->globals->at, NULL);
        block_remove(&m->globals, m->globals->at);
    }
    while (m->functions) {
        struct cu_function *next = m->functions->next;
        free(m->functions);
        m->functions = next;
    }
    free_kernels(m->kernels);
    free(m);
}

enum cu_result cuModuleLoadDataEx(struct cu_module **module, const void *image, unsigned n, enum cu_jit_option *options,
                                  void **values)
{
    GATE(cuModuleLoadDataEx, NEED_CONTEXT);
    enum cu_result result = work_still(cuda_current);
    if (result != CU_SUCCESS)
        return result;
    const char *text = text_of(image, &result);
    if (result != CU_SUCCESS)
        return result;
    struct cu_module *m = calloc(1, sizeof(*m));
    if (!m)
        return CU_OUT_OF_MEMORY;
    struct error err;
    m->context = cuda_current;
    result = parse(text, m, &m->kernels, &err);
    if (result != CU_SUCCESS) {
        struct jit_logs logs = read_options(n, options, values);
        tell(logs.log, logs.size, &err);
        free_module(m);
        return result;
    }
    cuda_state.count.modules++;
    *module = m;
    return CU_SUCCESS;
}

enum cu_result cuModuleUnload(struct cu_module *module)
{
    GATE(cuModuleUnload, NEED_INIT);
    if (!module)
        return CU_INVALID_HANDLE;
    work_drain_all(module->context);
    free_module(module);
    cuda_state.count.modules--;
    return CU_SUCCESS;
}

enum cu_result cuModuleGetFunction(struct cu_function **function, struct cu_module *module, const char *name)
{
    GATE(cuModuleGetFunction, NEED_CONTEXT);
    const struct simt_kernel *k = module ? module->kernels : NULL;
    while (k && strcmp(k->name, name))
        k = k->older;
    if (!k)
        return module ? CU_NOT_FOUND : CU_INVALID_HANDLE;
    struct cu_function *f = calloc(1, sizeof(*f));
    if (!f)
        return CU_OUT_OF_MEMORY;
    *f = (struct cu_function){.next = module->functions, .module = module, .kernel = k};
    f->dynamic = SHARED_DEFAULT - MIN(k->shared_size, (uint32_t)SHARED_DEFAULT);
    module->functions = f;
    *function = f;
    return CU_SUCCESS;
}

enum cu_result cuFuncGetAttribute(int *value, enum cu_function_attribute what, struct cu_function *function)
{
    GATE(cuFuncGetAttribute, NEED_CONTEXT);
    if (!function)
        return CU_INVALID_HANDLE;
    const struct simt_kernel *k = function->kernel;
    switch (what) {
    case CU_FUNCTION_THREADS:
        *value = k->max_threads ? (int)k->max_threads : 1024;
        return CU_SUCCESS;
    case CU_FUNCTION_SHARED:
        *value = (int)k->shared_size;
        return CU_SUCCESS;
    case CU_FUNCTION_LOCAL:
        *value = (int)k->local_size;
        return CU_SUCCESS;
    case CU_FUNCTION_REGISTERS:
        *value = (int)k->n_slots; // as they are declared: nothing is assigned here
        return CU_SUCCESS;
    case CU_FUNCTION_DYNAMIC_SHARED:
        *value = (int)function->dynamic;
        return CU_SUCCESS;
    }
    return CU_INVALID_VALUE;
}

// Bytes of shared memory that a CTA can have.
static int shared_of_card(void)
{
    static const int optin[] = {[7] = 64, [8] = 99, [9] = 227, [10] = 227, [11] = 227, [12] = 99};
    int major = cuda_state.setup.major, minor = cuda_state.setup.minor;
    return 1024 * (major == 8 && (minor == 0 || minor == 7) ? 163 : optin[MIN(MAX(major, 7), 12)]);
}

enum cu_result cuFuncSetAttribute(struct cu_function *function, enum cu_function_attribute what, int value)
{
    GATE(cuFuncSetAttribute, NEED_CONTEXT);
    const int most = shared_of_card();
    if (!function)
        return CU_INVALID_HANDLE;
    if (what != CU_FUNCTION_DYNAMIC_SHARED || value < 0 || value + (int)function->kernel->shared_size > most)
        return CU_INVALID_VALUE;
    function->dynamic = (uint32_t)value;
    return CU_SUCCESS;
}

// ---- launches

static bool shape_is_fine(const struct simt_kernel *k, const struct work *w)
{
    const struct simt_dim *g = &w->grid, *b = &w->block;
    uint64_t threads = (uint64_t)b->x * b->y * b->z;
    if (!threads || b->x > 1024 || b->y > 1024 || b->z > 64 || threads > (k->max_threads ? k->max_threads : 1024))
        return false;
    if (k->req[0] && (b->x != k->req[0] || b->y != k->req[1] || b->z != k->req[2]))
        return false;
    return g->x && g->y && g->z && g->x <= INT32_MAX && g->y <= 65535 && g->z <= 65535;
}

static bool waits_itself(const struct simt_kernel *k)
{
    for (size_t i = 0; i < k->n_insns; i++)
        if (k->insns[i].op == OP_GRID_WAIT)
            return true;
    return false;
}

// Whether all CTAs of a launch have room on the card at the same time, by their threads and shared memory; what registers
// they take is not known.
static bool all_resident(const struct simt_kernel *k, const struct work *w)
{
    enum { CTAS = 32, THREADS = 2048, OF_EACH = 1 << 10 }; // of a multiprocessor
    uint64_t threads = (uint64_t)w->block.x * w->block.y * w->block.z;
    uint64_t shared = (uint64_t)shared_of_card() + OF_EACH;
    uint64_t each = MIN(MIN((uint64_t)CTAS, THREADS / threads), shared / (k->shared_size + w->shared + OF_EACH));
    return (uint64_t)w->grid.x * w->grid.y * w->grid.z <= each * CARD_MULTIPROCESSORS;
}

static enum cu_result launch(struct cu_stream *stream, struct cu_function *f, struct work w, void **params)
{
    const struct simt_kernel *k = f->kernel;
    if (!shape_is_fine(k, &w) || w.shared > f->dynamic)
        return refuse(CU_INVALID_VALUE, "kernel %s: a grid of %u x %u x %u, blocks of %u x %u x %u, %u bytes of %u",
                      k->name, w.grid.x, w.grid.y, w.grid.z, w.block.x, w.block.y, w.block.z, w.shared, f->dynamic);
    if (w.dependent && !waits_itself(k))
        return refuse(CU_ILLEGAL_ADDRESS, "kernel %s may start before its predecessor ends and never waits for it",
                      k->name);
    if (w.cooperative && !all_resident(k, &w))
        return refuse(CU_TOO_MANY_BLOCKS, "kernel %s: %u x %u x %u CTAs of %u threads are not there at the same time",
                      k->name, w.grid.x, w.grid.y, w.grid.z, w.block.x * w.block.y * w.block.z);
    if (k->n_params && !params)
        return CU_INVALID_VALUE;
    w.kind = WORK_LAUNCH;
    w.function = f;
    w.bytes = k->params_size;
    char *block = calloc(1, w.bytes + 1);
    if (!block)
        return CU_OUT_OF_MEMORY;
    for (size_t i = 0; i < k->n_params; i++)
        memcpy(block + k->params[i].offset, params[i], k->params[i].size);
    w.own = block;
    return work_add(stream, w);
}

enum cu_result cuLaunchKernel(struct cu_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                              struct cu_stream *stream, void **params, void **extra)
{
    GATE(cuLaunchKernel, NEED_CONTEXT);
    if (!function || !stream || extra)
        return CU_INVALID_HANDLE;
    return launch(
        stream, function,
        (struct work){.grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}, .shared = shared},
        params);
}

enum cu_result cuLaunchCooperativeKernel(struct cu_function *function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                                         unsigned shared, struct cu_stream *stream, void **params)
{
    GATE(cuLaunchCooperativeKernel, NEED_CONTEXT);
    if (!function || !stream)
        return CU_INVALID_HANDLE;
    return launch(stream, function,
                  (struct work){.grid = {grid_x, grid_y, grid_z},
                                .block = {block_x, block_y, block_z},
                                .shared = shared,
                                .cooperative = true},
                  params);
}

enum cu_result cuLaunchKernelEx(const struct cu_launch_config *config, struct cu_function *function, void **params,
                                void **extra)
{
    GATE(cuLaunchKernelEx, NEED_CONTEXT);
    if (!function || !config->stream || extra)
        return CU_INVALID_HANDLE;
    struct work w = {.grid = {config->grid[0], config->grid[1], config->grid[2]},
                     .block = {config->block[0], config->block[1], config->block[2]},
                     .shared = config->shared};
    for (unsigned i = 0; i < config->n_attributes; i++) {
        const struct cu_launch_attribute *a = &config->attributes[i];
        if (a->id != CU_LAUNCH_DEPENDENT)
            return refuse(CU_INVALID_VALUE, "attribute %d of a launch is not served", (int)a->id);
        if (a->value.dependent && cuda_state.setup.major < 9)
            return CU_INVALID_VALUE;
        w.dependent = a->value.dependent != 0;
    }
    return launch(config->stream, function, w, params);
}
