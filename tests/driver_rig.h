// What the tests of the driver share: an open card, a small kernel, and a folder of compiled kernels.
#ifndef QUERN_DRIVER_RIG_H
#define QUERN_DRIVER_RIG_H

#include "kernels/ptx/driver.h"
#include "tests/ptx/quern_cuda.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline struct driver *open_card(const struct driver_options *o)
{
    struct driver *d = NULL;
    struct error err = {0};
    cr_assert_eq(driver_open(&d, o ? o : &(struct driver_options){0}, &err), 0, "%s", err.text);
    return d;
}

static inline struct quern_cuda_counts counts(void)
{
    struct quern_cuda_counts c;
    quern_cuda_count(&c);
    return c;
}

static inline uint64_t alive(void)
{
    struct quern_cuda_counts c = counts();
    return c.contexts + c.streams + c.events + c.links + c.modules + c.graphs + c.execs + c.blocks + c.pinned;
}

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

// y[i] = x[i] * factor, 32 numbers; the factor is a parameter of its own.
static const char scale_text[] = ".version 6.3\n"
                                 ".target sm_75\n"
                                 ".address_size 64\n"
                                 ".visible .entry scale(.param .u64 px, .param .u64 py, .param .u32 pf)\n"
                                 "{\n"
                                 "    .reg .b64 %x, %y, %o;\n"
                                 "    .reg .b32 %i, %v, %f;\n"
                                 "    ld.param.u64 %x, [px];\n"
                                 "    ld.param.u64 %y, [py];\n"
                                 "    ld.param.u32 %f, [pf];\n"
                                 "    mov.u32 %i, %tid.x;\n"
                                 "    mul.wide.u32 %o, %i, 4;\n"
                                 "    add.s64 %x, %x, %o;\n"
                                 "    add.s64 %y, %y, %o;\n"
                                 "    ld.global.u32 %v, [%x];\n"
                                 "    mul.lo.u32 %v, %v, %f;\n"
                                 "    st.global.u32 [%y], %v;\n"
                                 "    ret;\n"
                                 "}\n";
#define SCALE ((struct str){scale_text, sizeof(scale_text) - 1})
enum { N = 32 };

static inline int run_scale(struct driver *d, struct driver_kernel *k, uint64_t x, uint64_t y, uint32_t f,
                            struct error *err)
{
    void *params[] = {&x, &y, &f};
    struct driver_launch l = {.grid = {1, 1, 1}, .block = {N, 1, 1}, .params = params};
    return driver_run(d, k, &l, err);
}

static inline struct driver_kernel *load_scale(struct driver *d)
{
    struct error err = {0};
    struct driver_module *m;
    struct driver_kernel *k = NULL;
    OK(driver_load(d, SCALE, &m, &err));
    OK(driver_find(d, m, "scale", &k, &err));
    return k;
}

// ---- compiled kernels on disk

static inline void make_folder(char folder[64])
{
    strcpy(folder, "/tmp/quern-driver-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    strcat(folder, "/a/b");
}

// Calls see for each file below `folder`, then removes it where `remove` is set; returns their number.
static inline int each_file(const char *folder, void (*see)(const char *path), bool remove)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char path[512];
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        if (e->d_name[0] == '.')
            continue;
        n++;
        if (see)
            see(path);
        if (remove)
            unlink(path);
    }
    if (dir)
        closedir(dir);
    return n;
}

static inline void remove_folder(char *folder)
{
    each_file(folder, NULL, true);
    for (int i = 0; i < 3; i++) {
        rmdir(folder);
        *strrchr(folder, '/') = 0;
    }
}

#endif
