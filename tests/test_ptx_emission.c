// Tests the emission of PTX: marks, full buffers, the same bytes each time, refused sizes; and, if ptxas is found, that
// every kernel assembles without spills for every architecture that its target allows.
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/emission_cases.h"

enum { BUFFER = 1 << 17, GUARD = 64 };

// The sizes of the measurement, and sizes with incomplete tiles in every direction for every path of the emitters.
// clang-format off
#define GEMM(f, ...) {"edge", EMISSION_GEMM, 0, .emit.gemm = f, .of.gemm = {__VA_ARGS__}}
#define ROWS(f, ...) {"edge", EMISSION_ROWS, 0, .emit.rows = f, .of.rows = {__VA_ARGS__}}
#define ATTENTION(...) {"edge", EMISSION_ATTENTION, 0, .emit.attention = ptx_emit_attention, .of.attention = {__VA_ARGS__}}
static const struct emission_case edges[] = {
    GEMM(ptx_emit_gemm_naive, .node = 11, .m = 3, .n = 5, .k = 7),
    GEMM(ptx_emit_gemm_naive, .node = 12, .m = 1, .n = 1, .k = 1),
    GEMM(ptx_emit_gemm_tiled, .node = 13, .m = 37, .n = 72, .k = 83, .tile = 8),
    GEMM(ptx_emit_gemm_tiled, .node = 14, .m = 37, .n = 72, .k = 83, .tile = 16),
    GEMM(ptx_emit_gemm_tiled, .node = 15, .m = 37, .n = 72, .k = 83, .tile = 32),
    GEMM(ptx_emit_gemm_mma, .node = 16, .m = 37, .n = 72, .k = 88),
    GEMM(ptx_emit_gemm_mma, .node = 17, .m = 37, .n = 72, .k = 96, .bf16 = true),
    GEMM(ptx_emit_gemm_wmma, .node = 18, .m = 37, .n = 71, .k = 83),
    GEMM(ptx_emit_gemm_q4_k, .node = 19, .m = 37, .n = 71, .k = 512),
    ROWS(ptx_emit_softmax, .node = 20, .rows = 3, .width = 1),
    ROWS(ptx_emit_softmax, .node = 21, .rows = 3, .width = 1001),
    ROWS(ptx_emit_softmax, .node = 22, .rows = 3, .width = 32768),
    ROWS(ptx_emit_layernorm, .node = 23, .rows = 3, .width = 20),
    ROWS(ptx_emit_layernorm, .node = 24, .rows = 3, .width = 4100, .eps = 1e-6f),
    ATTENTION(.node = 25, .heads = 2, .positions = 45, .dim = 80, .scale = 0.1f, .causal = true),
    ATTENTION(.node = 26, .heads = 2, .positions = 45, .dim = 128, .scale = 0.1f),
    ATTENTION(.node = 27, .heads = 2, .positions = 1, .dim = 32, .scale = 0.1f, .causal = true),
};
#undef GEMM
#undef ROWS
#undef ATTENTION
// clang-format on

enum { N_CASES = COUNT_OF(emission_cases) + COUNT_OF(edges) };

// Returns each case in turn; those of the bench get different nodes.
static struct emission_case case_at(size_t i)
{
    if (i >= COUNT_OF(emission_cases))
        return edges[i - COUNT_OF(emission_cases)];
    struct emission_case c = emission_cases[i];
    uint32_t *node = c.family == EMISSION_GEMM   ? &c.of.gemm.node
                     : c.family == EMISSION_ROWS ? &c.of.rows.node
                                                 : &c.of.attention.node;
    *node = 1 + (uint32_t)i;
    return c;
}

static size_t emit_case(const struct emission_case *c, char *buffer, size_t size)
{
    struct ptx p;
    struct ptx_launch launch;
    struct error err;
    ptx_start(&p, buffer, size);
    cr_assert_eq(emission_emit(c, &p, &launch, &err), 0, "%s: %s", c->name, err.text);
    return p.size;
}

// ---- text

Test(ptx_emission, marks_become_decimal_and_hexadecimal_numbers)
{
    char buffer[256];
    struct ptx p;
    ptx_start(&p, buffer, sizeof(buffer));
    PTX_FILL(&p, "$0,$1,$2,$3,$4,$5,$6,$7,$8,$9;", 0, 9, 10, 99, 100, 999, 1000, 9999, 10000, UINT32_MAX);
    PTX_FILL(&p, "0f$x0 and $x1$1", 0x3f800000, 0xabcdef);
    PTX_FILL(&p, "without any mark, longer than a word", 1);
    PTX_LINES(&p, "$0 stays\n");
    cr_assert_eq(ptx_finish(&p, NULL), 0);
    cr_assert_str_eq(buffer, "0,9,10,99,100,999,1000,9999,10000,4294967295;"
                             "0f3F800000 and 00ABCDEF11259375without any mark, longer than a word$0 stays\n");
}

// Eight bytes are copied at a time, near the end of the buffer one; the text must be the same.
Test(ptx_emission, text_is_the_same_wherever_marks_lie)
{
    static char far_from_end[1024], near_end[64];
    for (int before = 0; before < 20; before++)
        for (int behind = 0; behind < 20; behind++) {
            char text[64 + PTX_PAD] = {0};
            int len = snprintf(text, 64, "%.*s$0%.*s", before, "abcdefghijklmnopqrstuvwxyz", behind,
                               "#%%&ABCDEFGHIJKLMNOPQRSTUVWXYZ");
            struct ptx p, q;
            ptx_start(&p, far_from_end, sizeof(far_from_end));
            ptx_fill(&p, text, (size_t)len, &(uint32_t){1234567}, 1);
            ptx_start(&q, near_end, (size_t)len + 6);
            ptx_fill(&q, text, (size_t)len, &(uint32_t){1234567}, 1);
            cr_assert_eq(ptx_finish(&p, NULL), 0);
            cr_assert_eq(ptx_finish(&q, NULL), 0);
            cr_assert_str_eq(far_from_end, near_end);
            cr_assert_eq(p.size, (size_t)len + 5);
        }
}

Test(ptx_emission, a_mark_without_a_value_is_an_error)
{
    char buffer[256];
    const char *const texts[] = {"$1", "$", "a $x1", "$x", "$a", "b$"};
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        for (size_t size = 8; size <= sizeof(buffer); size += sizeof(buffer) - 8) {
            char padded[16] = {0};
            struct ptx p;
            struct error err;
            memcpy(padded, texts[i], strlen(texts[i]));
            ptx_start(&p, buffer, size);
            ptx_fill(&p, padded, strlen(texts[i]), &(uint32_t){1}, 1);
            cr_assert_eq(ptx_finish(&p, &err), -1, "%s", texts[i]);
            cr_assert_eq(err.code, E_GPU);
        }
}

Test(ptx_emission, a_full_buffer_is_one_error_and_nothing_is_written_behind_it)
{
    static char whole[BUFFER], small[BUFFER + GUARD];
    for (size_t i = 0; i < N_CASES; i++) {
        const struct emission_case c = case_at(i);
        size_t size = emit_case(&c, whole, sizeof(whole));
        for (size_t n = 0; n <= size + 1; n += n + 64 < size ? 61 : 1) {
            struct ptx p;
            struct ptx_launch launch;
            struct error err;
            memset(small + n, '!', GUARD);
            ptx_start(&p, small, n);
            int rc = emission_emit(&c, &p, &launch, &err);
            cr_assert_eq(rc, n > size ? 0 : -1, "case %zu, %zu of %zu bytes", i, n, size);
            if (rc)
                cr_assert_eq(err.code, E_GPU);
            for (int g = 0; g < GUARD; g++)
                cr_assert_eq(small[n + (size_t)g], '!', "case %zu: byte %d behind %zu", i, g, n);
            cr_assert_eq(memcmp(small, whole, rc ? MIN(p.size, size) : size + 1), 0);
        }
    }
}

Test(ptx_emission, the_same_sizes_give_the_same_bytes)
{
    static char a[BUFFER], b[BUFFER];
    memset(b, 0xa5, sizeof(b));
    for (size_t i = 0; i < N_CASES; i++) {
        const struct emission_case c = case_at(i);
        size_t size = emit_case(&c, a, sizeof(a));
        cr_assert_eq(emit_case(&c, b, sizeof(b)), size);
        cr_assert_eq(memcmp(a, b, size + 1), 0, "case %zu", i);
    }
}

// The text is plain ASCII with at most one instruction per line, no mark is left, and a comment names the node.
Test(ptx_emission, text_is_readable)
{
    static char text[BUFFER];
    for (size_t i = 0; i < N_CASES; i++) {
        const struct emission_case c = case_at(i);
        emit_case(&c, text, sizeof(text));
        char node[32];
        snprintf(node, sizeof(node), "\n// node %u: ", c.of.gemm.node);
        cr_assert_not_null(strstr(text, node), "case %zu has no comment with its node", i);
        for (const char *line = text, *end; *line; line = end + 1) {
            end = strchr(line, '\n');
            cr_assert_not_null(end, "case %zu: the last line has no end", i);
            int semicolons = 0;
            for (const char *at = line; at < end; at++) {
                cr_assert(isprint((unsigned char)*at) && *at != '$', "case %zu: %.*s", i, (int)(end - line), line);
                semicolons += *at == ';' && !memchr(line, '/', (size_t)(at - line));
            }
            cr_assert_leq(semicolons, 1, "case %zu: %.*s", i, (int)(end - line), line);
        }
    }
}

// ---- sizes

static int try_case(const struct emission_case *c)
{
    static char text[BUFFER];
    struct ptx p;
    struct ptx_launch launch;
    struct error err = {.code = E_OK};
    ptx_start(&p, text, sizeof(text));
    int rc = emission_emit(c, &p, &launch, &err);
    cr_assert(rc == 0 || (err.code == E_GPU && p.size == 0), "nothing is written where a size is refused");
    return rc;
}

Test(ptx_emission, sizes_that_a_kernel_has_not_are_refused)
{
    // clang-format off
#define REFUSED(f, kind, upper, ...) \
    cr_assert_eq(try_case(&(struct emission_case){"", upper, 0, .emit.kind = f, .of.kind = {__VA_ARGS__}}), -1, #__VA_ARGS__)
    REFUSED(ptx_emit_gemm_naive, gemm, EMISSION_GEMM, .m = 0, .n = 1, .k = 1);
    REFUSED(ptx_emit_gemm_naive, gemm, EMISSION_GEMM, .m = 1, .n = 1, .k = 0);
    REFUSED(ptx_emit_gemm_naive, gemm, EMISSION_GEMM, .m = 1, .n = (1 << 20) + 1, .k = 1);
    REFUSED(ptx_emit_gemm_naive, gemm, EMISSION_GEMM, .m = 1, .n = 65536, .k = 32768);
    REFUSED(ptx_emit_gemm_naive, gemm, EMISSION_GEMM, .m = 1 << 20, .n = 1, .k = 1);
    REFUSED(ptx_emit_gemm_tiled, gemm, EMISSION_GEMM, .m = 1, .n = 1, .k = 1, .tile = 0);
    REFUSED(ptx_emit_gemm_tiled, gemm, EMISSION_GEMM, .m = 1, .n = 1, .k = 1, .tile = 64);
    REFUSED(ptx_emit_gemm_mma, gemm, EMISSION_GEMM, .m = 1, .n = 12, .k = 8);
    REFUSED(ptx_emit_gemm_mma, gemm, EMISSION_GEMM, .m = 1, .n = 8, .k = 4);
    REFUSED(ptx_emit_gemm_q4_k, gemm, EMISSION_GEMM, .m = 1, .n = 8, .k = 128);
    REFUSED(ptx_emit_softmax, rows, EMISSION_ROWS, .rows = 0, .width = 8);
    REFUSED(ptx_emit_softmax, rows, EMISSION_ROWS, .rows = 1, .width = 0);
    REFUSED(ptx_emit_softmax, rows, EMISSION_ROWS, .rows = 1, .width = 8193);
    REFUSED(ptx_emit_softmax, rows, EMISSION_ROWS, .rows = 1, .width = 32772);
    REFUSED(ptx_emit_softmax, rows, EMISSION_ROWS, .rows = UINT32_MAX, .width = 8);
    REFUSED(ptx_emit_layernorm, rows, EMISSION_ROWS, .rows = 1, .width = UINT32_MAX);
    REFUSED(ptx_emit_layernorm, rows, EMISSION_ROWS, .rows = 1, .width = 8, .eps = -1);
    REFUSED(ptx_emit_layernorm, rows, EMISSION_ROWS, .rows = 1, .width = 8, .eps = __builtin_nanf(""));
    REFUSED(ptx_emit_attention, attention, EMISSION_ATTENTION, .heads = 1, .positions = 1, .dim = 28, .scale = 1);
    REFUSED(ptx_emit_attention, attention, EMISSION_ATTENTION, .heads = 1, .positions = 1, .dim = 66, .scale = 1);
    REFUSED(ptx_emit_attention, attention, EMISSION_ATTENTION, .heads = 1, .positions = 1, .dim = 132, .scale = 1);
    REFUSED(ptx_emit_attention, attention, EMISSION_ATTENTION, .heads = 0, .positions = 1, .dim = 64, .scale = 1);
    REFUSED(ptx_emit_attention, attention, EMISSION_ATTENTION, .heads = 1, .positions = 1, .dim = 64, .scale = __builtin_inff());
#undef REFUSED
    // clang-format on
}

// ---- ptxas

// Joins the kernels of one target to a module: the header once, then each kernel's text from its first comment on.
static void write_module(const char *path, const char *header)
{
    static char text[BUFFER];
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(header, f);
    int kernels = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        const struct emission_case c = case_at(i);
        emit_case(&c, text, sizeof(text));
        if (strncmp(text, header, strlen(header)) != 0)
            continue;
        fputs(text + strlen(header), f);
        kernels++;
    }
    cr_assert_gt(kernels, 0, "no kernel begins with %s", header);
    cr_assert_eq(fclose(f), 0);
}

// Returns the number of kernels that ptxas reports; fails if it does not assemble or a kernel spills.
static int assemble(const char *folder, const char *module, int arch)
{
    char command[512], line[512];
    snprintf(command, sizeof(command), "ptxas -v -arch=sm_%d -o %s/cubin %s/%s 2>&1", arch, folder, folder, module);
    FILE *out = popen(command, "r");
    cr_assert_not_null(out);
    int reports = 0;
    while (fgets(line, sizeof(line), out)) {
        const char *spill = strstr(line, "bytes stack frame, ");
        cr_assert(!strstr(line, "error") && !strstr(line, "warning"), "sm_%d, %s: %s", arch, module, line);
        if (!spill)
            continue;
        reports++;
        cr_assert(strstr(line, " 0 bytes spill stores, 0 bytes spill loads"), "sm_%d, %s: %s", arch, module, line);
    }
    cr_assert_eq(pclose(out), 0, "sm_%d, %s", arch, module);
    return reports;
}

Test(ptx_emission, every_kernel_assembles_without_spills, .timeout = 240)
{
    if (system("command -v ptxas > /dev/null 2>&1") != 0)
        cr_skip_test("ptxas is not found: kernels are not assembled");
    static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
    char folder[] = "/tmp/quern-ptx-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/75.ptx", folder);
    write_module(path, ".version 6.3\n.target sm_75\n.address_size 64\n");
    snprintf(path, sizeof(path), "%s/80.ptx", folder);
    write_module(path, ".version 7.0\n.target sm_80\n.address_size 64\n");
    const int on_80 = 3;
    for (size_t i = 0; i < COUNT_OF(archs); i++) {
        cr_assert_eq(assemble(folder, "75.ptx", archs[i]), N_CASES - on_80);
        if (archs[i] >= 80)
            cr_assert_eq(assemble(folder, "80.ptx", archs[i]), on_80);
    }
    static const char *const files[] = {"75.ptx", "80.ptx", "cubin"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}
