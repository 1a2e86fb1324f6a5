// Implements the interpreter's interface on a real GPU, as far as the tests of kernels use it. Linked instead of the
// interpreter, the same tests check the same kernels on a machine with a driver. Faults that only the interpreter
// detects, such as races, are not found here.
#include "kernels/ptx/driver.h"
#include "tests/ptx/interpreter.h"
#include "tests/ptx/simt_isa.h"

#include <stdio.h>
#include <stdlib.h>

enum { PARAMS = 32 };

struct card_module {
    struct card_module *older;
    struct driver_module *module;
    char *text;
};
struct simt {
    struct driver *driver;
    bool dependent, cooperative; // the next launch is so
    struct card_module *modules;
    struct simt_kernel *kernels; // those that were asked for
};

struct simt *simt_new(void)
{
    struct error err;
    struct simt *s = calloc(1, sizeof(*s));
    if (s && driver_open(&s->driver, &(struct driver_options){0}, &err)) {
        fprintf(stderr, "%s\n", err.text);
        free(s);
        return NULL;
    }
    return s;
}

void simt_free(struct simt *s)
{
    if (!s)
        return;
    while (s->kernels) {
        struct simt_kernel *older = s->kernels->older;
        free(s->kernels->name);
        free(s->kernels->params);
        free(s->kernels);
        s->kernels = older;
    }
    while (s->modules) {
        struct card_module *older = s->modules->older;
        free(s->modules->text);
        free(s->modules);
        s->modules = older;
    }
    driver_close(s->driver); // with the context goes what was allocated
    free(s);
}

int simt_load(struct simt *s, struct str text, struct error *err)
{
    struct card_module *m = calloc(1, sizeof(*m));
    if (!m || !(m->text = strndup(text.data, text.len))) {
        free(m);
        return fail(err, E_MEMORY, "no memory for a module");
    }
    if (driver_load(s->driver, text, &m->module, err)) {
        free(m->text);
        free(m);
        return -1;
    }
    m->older = s->modules;
    s->modules = m;
    return 0;
}

// Reads the offsets of the parameters from a kernel's declaration: each is aligned to its own size.
static bool read_params(const char *head, struct simt_kernel *k)
{
    const char *end = strchr(head, ')');
    k->params = calloc(PARAMS, sizeof(*k->params));
    for (const char *p = head; k->params && end && (p = strstr(p, ".param .")) && p < end; p++) {
        unsigned bits = (unsigned)strtoul(p + strlen(".param .") + 1, NULL, 10);
        if (k->n_params == PARAMS || (bits != 32 && bits != 64))
            return false;
        uint32_t at = (uint32_t)align_up(k->params_size, bits / 8);
        k->params[k->n_params++] = (struct simt_param){.offset = at, .size = bits / 8};
        k->params_size = at + bits / 8;
    }
    return k->params && end;
}

const struct simt_kernel *simt_find(const struct simt *s, const char *name)
{
    char entry[128];
    int n = snprintf(entry, sizeof(entry), ".entry %s(", name);
    for (const struct card_module *m = s->modules; m; m = m->older) {
        const char *head = strstr(m->text, entry);
        struct simt_kernel *k = head ? calloc(1, sizeof(*k)) : NULL;
        if (!k)
            continue;
        struct simt *owner;
        memcpy(&owner, &s, sizeof(owner)); // what is found is kept with the machine
        k->older = owner->kernels;
        owner->kernels = k;
        k->name = strdup(name);
        return read_params(head + n, k) ? k : NULL;
    }
    return NULL;
}

uint64_t simt_alloc(struct simt *s, size_t size)
{
    uint64_t at;
    return driver_alloc(s->driver, size, &at, NULL) ? 0 : at;
}

int simt_release(struct simt *s, uint64_t address, struct error *err)
{
    (void)err;
    driver_free(s->driver, address);
    return 0;
}

// A GPU does not count instructions.
struct simt_counters simt_count(const struct simt *s)
{
    (void)s;
    return (struct simt_counters){0};
}

// What was written stays readable on a GPU, and a kernel may run as long as it likes.
int simt_forget(struct simt *s, uint64_t address, size_t size, struct error *err)
{
    (void)s, (void)address, (void)size, (void)err;
    return 0;
}

void simt_set_limit(struct simt *s, uint64_t instructions)
{
    (void)s, (void)instructions;
}

void simt_set_dependent(struct simt *s)
{
    s->dependent = true;
}

void simt_set_cooperative(struct simt *s)
{
    s->cooperative = true;
}

int simt_put(struct simt *s, uint64_t address, const void *data, size_t size, struct error *err)
{
    return driver_put(s->driver, address, data, size, err);
}

int simt_get(struct simt *s, uint64_t address, void *data, size_t size, struct error *err)
{
    return driver_get(s->driver, data, address, size, err);
}

int simt_launch(struct simt *s, const struct simt_kernel *kernel, struct simt_dim grid, struct simt_dim block,
                uint32_t shared, const void *params, size_t params_size, struct error *err)
{
    struct card_module *m = s->modules;
    struct driver_kernel *k = NULL;
    unsigned char bytes[PARAMS * 8];
    void *pointers[PARAMS];
    if (params_size != kernel->params_size)
        return fail(err, E_GPU, "kernel %s: %zu bytes of parameters where it has %u", kernel->name, params_size,
                    kernel->params_size);
    memcpy(bytes, params, params_size);
    for (size_t i = 0; i < kernel->n_params; i++)
        pointers[i] = bytes + kernel->params[i].offset;
    while (m && driver_find(s->driver, m->module, kernel->name, &k, err))
        m = m->older;
    const struct driver_launch l = {.grid = {grid.x, grid.y, grid.z},
                                    .block = {block.x, block.y, block.z},
                                    .shared = shared,
                                    .params = pointers,
                                    .dependent = s->dependent,
                                    .cooperative = s->cooperative};
    s->dependent = s->cooperative = false;
    return !m || driver_run(s->driver, k, &l, err) || driver_wait(s->driver, err) ? -1 : 0;
}
