// Loads kernels: takes a compiled kernel from the cache folder, or compiles PTX with the driver's compiler. Its log
// becomes a part of the error.
#include "kernels/ptx/driver_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOG_SIZE = 8192, N_OPTIONS = 4 };

// One compilation. The compiler writes to the logs until the link is destroyed.
struct compiler {
    struct cu_link *link;
    enum cu_jit_option options[N_OPTIONS];
    void *values[N_OPTIONS];
    char errors[LOG_SIZE], notes[LOG_SIZE];
};

static void give_logs(struct compiler *c)
{
    const enum cu_jit_option options[N_OPTIONS] = {CU_ERROR_LOG, CU_ERROR_LOG_SIZE, CU_INFO_LOG, CU_INFO_LOG_SIZE};
    memcpy(c->options, options, sizeof(options));
    c->values[0] = c->errors;
    c->values[1] = (void *)(uintptr_t)(LOG_SIZE - 1);
    c->values[2] = c->notes;
    c->values[3] = (void *)(uintptr_t)(LOG_SIZE - 1);
}

// Returns line `number` of a text, counted from 1, without the white space before it.
static struct str ptx_line(struct str ptx, unsigned long number)
{
    const char *p = ptx.data, *end = ptx.data + ptx.len;
    while (number > 1 && p < end)
        number -= *p++ == '\n';
    const char *stop = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    stop = stop ? stop : end;
    while (p < stop && isspace((unsigned char)*p))
        p++;
    return (struct str){p, (size_t)(stop - p)};
}

// Adds the compiler's log to the error, on one line and cut to what an error holds, and the line of PTX that the log
// names first. Returns -1.
static int explain(const struct compiler *c, struct str ptx, struct error *err)
{
    if (!err || !c->errors[0])
        return -1;
    char text[ERR_TEXT], log[240];
    size_t n = 0;
    for (const char *p = c->errors; *p && n + 1 < sizeof(log); p++) {
        char ch = isspace((unsigned char)*p) ? ' ' : *p;
        if (ch != ' ' || (n && log[n - 1] != ' '))
            log[n++] = ch;
    }
    log[n] = 0;
    memcpy(text, err->text, sizeof(text));
    const char *at = strstr(log, "line ");
    unsigned long number = at ? strtoul(at + 5, NULL, 10) : 0;
    if (!number)
        return fail(err, err->code, "%s; the compiler says: %s", text, log);
    struct str line = ptx_line(ptx, number);
    line.len = MIN(line.len, 100u);
    return fail(err, err->code, "%s; the compiler says: %s [line %lu: %.*s]", text, log, number, STR_ARG(line));
}

// Compiles a text. The cubin lives as long as the link.
static int compile(struct driver *d, struct compiler *c, struct str ptx, void **cubin, size_t *size, struct error *err)
{
    const struct cuda *cu = &d->cu;
    char *text = malloc(ptx.len + 1);
    if (!text)
        return fail(err, E_MEMORY, "no memory for a kernel's text");
    memcpy(text, ptx.data, ptx.len);
    text[ptx.len] = 0;
    int status = CUDA_TRY(cu, err, cuLinkCreate_v2, N_OPTIONS, c->options, c->values, &c->link);
    if (!status)
        status =
            CUDA_TRY(cu, err, cuLinkAddData_v2, c->link, CU_INPUT_PTX, text, ptx.len + 1, "quern.ptx", 0, NULL, NULL) ||
            CUDA_TRY(cu, err, cuLinkComplete, c->link, cubin, size);
    free(text);
    return status ? explain(c, ptx, err) : 0;
}

static int load_compiled(struct driver *d, struct driver_module *m, struct cache_key key, struct str ptx,
                         struct error *err)
{
    struct compiler *c = calloc(1, sizeof(*c));
    if (!c)
        return fail(err, E_MEMORY, "no memory to compile a kernel");
    give_logs(c);
    void *cubin = NULL;
    size_t size = 0;
    int status = compile(d, c, ptx, &cubin, &size, err) ||
                 CUDA_TRY(&d->cu, err, cuModuleLoadDataEx, &m->module, cubin, 0, NULL, NULL);
    if (!status) {
        d->cache.compiled++;
        d->cache.unwritten += d->folder && !cache_write(d->folder, key, cubin, size);
    }
    if (c->link)
        d->cu.cuLinkDestroy(c->link);
    free(c);
    return status ? -1 : 0;
}

// Loads the module from the cache folder. Returns 1 if it is loaded, 0 if it has to be compiled, and -1 on error.
static int load_kept(struct driver *d, struct driver_module *m, struct cache_key key, struct error *err)
{
    size_t size;
    bool corrupt;
    void *cubin = d->folder ? cache_read(d->folder, key, &size, &corrupt) : NULL;
    if (!cubin) {
        d->cache.corrupt += d->folder && corrupt;
        return 0;
    }
    enum cu_result result = d->cu.cuModuleLoadDataEx(&m->module, cubin, 0, NULL, NULL);
    free(cubin);
    if (result == CU_INVALID_IMAGE || result == CU_NO_BINARY || result == CU_INVALID_SOURCE) {
        d->cache.corrupt++;
        return 0;
    }
    if (cuda_check(&d->cu, "cuModuleLoadDataEx", result, err))
        return -1;
    d->cache.hits++;
    return 1;
}

int driver_load(struct driver *d, struct str ptx, struct driver_module **out, struct error *err)
{
    if (driver_enter_not_recording(d, "load kernels", err))
        return -1;
    struct driver_module *m = calloc(1, sizeof(*m));
    if (!m)
        return fail(err, E_MEMORY, "no memory for a module");
    struct cache_key key = cache_key_of(ptx, &d->card);
    int kept = load_kept(d, m, key, err);
    if (kept < 0 || (!kept && load_compiled(d, m, key, ptx, err))) {
        free(m);
        return -1;
    }
    m->next = d->modules;
    m->link = &d->modules;
    if (m->next)
        m->next->link = &m->next;
    *out = d->modules = m;
    return 0;
}

void driver_unload(struct driver *d, struct driver_module *m)
{
    if (!m)
        return;
    driver_enter(d, NULL);
    d->cu.cuModuleUnload(m->module);
    *m->link = m->next;
    if (m->next)
        m->next->link = m->link;
    while (m->kernels) {
        struct driver_kernel *next = m->kernels->next;
        free(m->kernels);
        m->kernels = next;
    }
    free(m);
}

int driver_find(struct driver *d, struct driver_module *m, const char *name, struct driver_kernel **out,
                struct error *err)
{
    if (driver_enter(d, err))
        return -1;
    struct driver_kernel *k = calloc(1, sizeof(*k));
    if (!k)
        return fail(err, E_MEMORY, "no memory for a kernel");
    if (CUDA_TRY(&d->cu, err, cuModuleGetFunction, &k->function, m->module, name)) {
        free(k);
        return fail_prefix(err, name);
    }
    k->next = m->kernels;
    *out = m->kernels = k;
    return 0;
}

int driver_kernel_facts(struct driver *d, const struct driver_kernel *k, struct driver_kernel_facts *out,
                        struct error *err)
{
    struct cu_function *f = k->function;
    return driver_enter(d, err) || CUDA_TRY(&d->cu, err, cuFuncGetAttribute, &out->threads, CU_FUNCTION_THREADS, f) ||
                   CUDA_TRY(&d->cu, err, cuFuncGetAttribute, &out->registers, CU_FUNCTION_REGISTERS, f) ||
                   CUDA_TRY(&d->cu, err, cuFuncGetAttribute, &out->shared, CU_FUNCTION_SHARED, f) ||
                   CUDA_TRY(&d->cu, err, cuFuncGetAttribute, &out->local, CU_FUNCTION_LOCAL, f)
               ? -1
               : 0;
}

const char *driver_folder(const struct driver *d)
{
    return d->folder;
}

const struct driver_cache *driver_cache_facts(const struct driver *d)
{
    return &d->cache;
}
