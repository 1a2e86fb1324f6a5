// Tests the three forms of GPU attention on the interpreter: a row has the same bits in every form, with any number of
// CTAs for its splits and any other rows in the step; and they are close to attention computed in double.
#include "tests/ptx_attention.h"

// ---- ptxas, where it is found: no warnings, no spills. Everyday a few texts for the oldest architecture; all of them
// where EVERY_ARCH is defined, in the long suite.
#ifdef EVERY_ARCH
static const int archs[] = {75, 80, 86, 89, 90, 100, 120};
#else
static const int archs[] = {75, 80};
#endif

static void assemble(const char *text, size_t size, int lowest)
{
    char folder[] = "/tmp/quern-ptx-XXXXXX", command[256], path[64], report[4096];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/ptx", folder);
    FILE *f = fopen(path, "w");
    cr_assert(f && fwrite(text, 1, size, f) == size && !fclose(f));
    for (size_t i = 0; i < COUNT_OF(archs); i++) {
        if (archs[i] < lowest || (lowest == 75 && COUNT_OF(archs) == 2 && archs[i] > 75))
            continue;
        snprintf(command, sizeof(command), "ptxas -v -arch=sm_%d -o %s/cubin %s 2>&1", archs[i], folder, path);
        FILE *out = popen(command, "r");
        cr_assert_not_null(out);
        report[fread(report, 1, sizeof(report) - 1, out)] = 0;
        cr_assert_eq(pclose(out), 0, "sm_%d: %s", archs[i], report);
        cr_expect(!strstr(report, "warning") && strstr(report, " 0 bytes spill stores, 0 bytes spill loads"),
                  "sm_%d: %s", archs[i], report);
    }
    snprintf(command, sizeof(command), "%s/cubin", folder);
    remove(command);
    remove(path);
    remove(folder);
}

static void run(struct card *c, const struct inputs *in, enum ptx_attend_form form, uint32_t rows, uint32_t lanes)
{
    static char text[TEXT];
    struct ptx p;
    struct ptx_launch l;
    char entry[64];
    struct ptx_attend a = c->a;
    a.form = form;
    ptx_start(&p, text, TEXT);
    cr_assert_eq(ptx_emit_attend(&p, &a, &l, &c->err), 0, "%s", c->err.text);
    cr_assert_eq(simt_load(c->simt, (struct str){text, p.size}, &c->err), 0, "%s\n%s", c->err.text, text);
    snprintf(entry, sizeof(entry), "%s_7", l.entry);
    const struct simt_kernel *kernel = simt_find(c->simt, entry);
    cr_assert_not_null(kernel);
    cr_assert_eq(launch_form(c, in, kernel, &l, form, rows, lanes, &c->err), 0, "%s", c->err.text);
}

static float *outputs(struct card *c, const struct inputs *in, int rows)
{
    size_t bytes = (size_t)rows * c->h.n * c->h.dim_v * 4;
    float *y = malloc(bytes);
    cr_assert_eq(simt_get(c->simt, in->y, y, bytes, &c->err), 0, "%s", c->err.text);
    return y;
}

// Computes all rows with the form ROWS, with that many CTAs for a KV head.
static float *by_rows(struct card *c, const struct batch *r, uint32_t lanes)
{
    struct inputs in = inputs_of(c, r);
    run(c, &in, PTX_ATTEND_ROWS, (uint32_t)r->n, lanes);
    size_t n = ptx_attend_counters(&c->a, (uint32_t)r->n);
    uint32_t *counters = malloc(n);
    cr_assert_eq(simt_get(c->simt, in.counters, counters, n, &c->err), 0);
    for (size_t i = 0; i < n / 4; i++)
        cr_expect(counters[i] == 0, "a counter is left at %u", counters[i]);
    free(counters);
    float *y = outputs(c, &in, r->n);
    inputs_free(c, &in);
    return y;
}

// Computes runs of rows with the form TILES, and the other rows with the form LONE.
static float *by_tiles(struct card *c, const struct batch *r)
{
    struct inputs in = inputs_of(c, r);
    run(c, &in, PTX_ATTEND_LONE, (uint32_t)r->n, 1);
    run(c, &in, PTX_ATTEND_TILES, (uint32_t)r->n, 1);
    float *y = outputs(c, &in, r->n);
    inputs_free(c, &in);
    return y;
}

static void expect_bits(const struct card *c, const struct batch *r, const float *a, const float *b, const char *what)
{
    size_t width = c->h.n * c->h.dim_v;
    for (size_t i = 0; i < (size_t)r->n * width; i++)
        if (memcmp(&a[i], &b[i], 4) != 0) {
            cr_expect(false, "%s, %s %u/%u heads of %u/%u: row %zu at %d, element %zu: %.9g and %.9g", what,
                      dtype_info[c->h.k_type].name, c->h.n, c->h.n_kv, c->h.dim_k, c->h.dim_v, i / width,
                      r->positions[i / width], i % width, (double)a[i], (double)b[i]);
            return;
        }
}

static void expect_near(const struct card *c, const struct batch *r, int row, const float *y)
{
    const struct heads *h = &c->h;
    const double bound = 3e-6 * sqrt(MAX(h->dim_k, 64u) / 64.0);
    double error = 0, size = 0;
    for (uint32_t head = 0; head < h->n; head++) {
        const struct errors e = errors_of_head(c, r, row, head, y);
        error += e.error;
        size += e.size;
        cr_expect(c->a.halves || e.worst <= bound * e.largest, "%s, %u/%u heads of %u/%u, position %d: off by %g of %g",
                  dtype_info[h->k_type].name, h->n, h->n_kv, h->dim_k, h->dim_v, r->positions[row], e.worst, e.largest);
    }
    cr_expect(!c->a.halves || error <= 1e-9 * ROW_OF_HALVES * size, "%s, %u/%u heads of %u/%u, position %d: %g",
              dtype_info[h->k_type].name, h->n, h->n_kv, h->dim_k, h->dim_v, r->positions[row], error / size);
}

// ---- the cases

static void check_card(struct card *c, const struct batch *r)
{
    spoil_free_slots(c, r);
    float *one = by_rows(c, r, 1), *splits = by_rows(c, r, c->h.splits + 1), *two = by_rows(c, r, 2),
          *tiles = by_tiles(c, r);
    expect_bits(c, r, one, splits, "splits on CTAs of their own");
    expect_bits(c, r, one, two, "splits on two CTAs");
    expect_bits(c, r, one, tiles, "tiles");
    for (int row = 0; row < r->n; row += 1 + r->n / 8)
        expect_near(c, r, row, one);
    free(one);
    free(splits);
    free(two);
    free(tiles);
    card_free(c);
}

static void check_arithmetic(struct heads h, const struct batch *r, bool halves)
{
    struct card *c = card_new(h, halves);
    if (halves && !ptx_attend_takes_halves(&c->a, 80))
        card_free(c);
    else
        check_card(c, r);
}

// With slopes of up to `size` by distance, floats alone.
static void check_slopes(struct heads h, const struct batch *r, double size)
{
    struct card *c = card_new(h, false);
    c->slopes = random_floats(&c->state, h.n, size);
    c->slopes_at = to_card(c, c->slopes, h.n * sizeof(float));
    c->a.slopes = true;
    cr_expect(!ptx_attend_takes_halves(&c->a, 80));
    check_card(c, r);
}

static void check(struct heads h, const struct batch *r)
{
    check_arithmetic(h, r, false);
    check_arithmetic(h, r, true);
}

#define F32 DT_F32, DT_F32, 0, false, false, 0
#define F16 DT_F16, DT_F16, 0, false, false, 0
#define Q8 DT_Q8_0, DT_Q8_0, 0, false, false, 0
#define Q4 DT_Q4_0, DT_Q4_0, 0, false, false, 0

// A run, single rows of other sequences, a run that crosses the end of a tile, and rows in reverse order.
Test(ptx_attend, a_row_has_the_same_bits_in_every_form)
{
    static const struct heads cases[] = {
        {4, 2, 64, 64, 0, 4, 0, F16},
        {4, 1, 128, 128, 0, 2, 0, F16},
        {3, 1, 32, 32, 0, 4, 0, F32},
        {8, 1, 64, 64, 70, 2, 30, Q8},
        {2, 2, 96, 160, 0, 4, 0, Q4},
        {7, 1, 80, 80, 0, 4, 0, DT_BF16, DT_BF16, 0, false, false, 0},
        {2, 1, 256, 256, 100, 2, 50, F16},
        {12, 1, 64, 32, 1, 1, 0, DT_Q8_0, DT_F16, 0, false, false, 0},
        {2, 1, 10, 6, 0, 4, 0, F16},
        {2, 1, 8, 8, 5, 2, 0, F32},
        {1, 1, 512, 576, 0, 4, 0, F16},
        {1, 1, 24, 40, 0, 4, 0, DT_F32, DT_BF16, 0, false, false, 0},
        {8, 1, 64, 64, 0, 4, 0, DT_F16, DT_F16, 20, false, false, 0},
        {6, 2, 64, 64, 70, 2, 0, DT_F16, DT_F16, 20, false, false, 0},
        {4, 2, 64, 64, 128, 2, 0, DT_F16, DT_F16, 0, true, false, 0},
        {3, 1, 32, 32, 125, 4, 0, DT_F32, DT_F32, 0, true, false, 0},
        {24, 2, 32, 32, 0, 4, 30, DT_Q8_0, DT_Q8_0, 40, false, false, 0},
        {3, 1, 80, 80, 0, 2, 0, DT_F32, DT_F32, 30, false, false, 0},
        {5, 1, 96, 64, 0, 4, 0, DT_F16, DT_F16, 0, false, true, 0},
        {4, 2, 64, 32, 70, 2, 0, DT_Q8_0, DT_Q8_0, 0, false, true, 0},
        {2, 1, 96, 32, 0, 4, 0, DT_Q4_0, DT_Q4_0, 0, false, true, 0},
        {3, 1, 20, 16, 0, 2, 0, DT_F32, DT_F32, 0, false, true, 0},
        {3, 1, 20, 8, 0, 2, 0, DT_BF16, DT_BF16, 0, false, true, 0},
        {9, 1, 48, 112, 0, 4, 0, F16},
        {20, 1, 128, 16, 0, 2, 0, F16},
        {3, 1, 192, 128, 0, 4, 0, F16},
        {2, 1, 32, 224, 66, 4, 0, DT_Q4_0, DT_Q8_0, 1, false, false, 0},
        {2, 1, 160, 96, 0, 4, 50, DT_Q8_0, DT_F16, 0, false, false, 0},
        {2, 1, 64, 192, 0, 4, 0, DT_F16, DT_Q4_0, 0, false, false, 0},
#ifdef EVERY_ARCH // DeepSeek's heads, which take long
        {4, 1, 576, 512, 0, 4, 0, DT_F16, DT_F16, 0, false, true, 0},
        {3, 1, 576, 512, 0, 4, 0, DT_Q8_0, DT_Q8_0, 0, false, true, 0},
#endif
    };
    struct batch r = {0};
    add_rows(&r, 1, 120, 10);
    add_rows(&r, 0, 5, 1);
    add_rows(&r, 0, 300, 1);
    add_rows(&r, 2, 62, 3);
    add_rows(&r, 2, 70, 2);
    add_rows(&r, 0, 301, 1);
    add_rows(&r, 0, 0, 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check(cases[i], &r);
}

// Heads in one block and in several, an odd number of them, a window, a soft cap and sinks.
Test(ptx_attend, slopes_lower_the_scores_of_far_keys)
{
    static const struct heads cases[] = {
        {4, 2, 64, 64, 0, 4, 0, F16},
        {7, 1, 80, 80, 0, 4, 0, DT_BF16, DT_BF16, 0, false, false, 0},
        {24, 2, 32, 32, 0, 4, 30, DT_Q8_0, DT_Q8_0, 10, false, false, 0},
        {20, 1, 128, 16, 70, 2, 0, F16},
        {2, 1, 10, 6, 0, 4, 0, F32},
        {3, 1, 192, 128, 0, 4, 0, F16},
    };
    struct batch r = {0};
    add_rows(&r, 1, 120, 10);
    add_rows(&r, 0, 300, 2);
    add_rows(&r, 2, 62, 3);
    add_rows(&r, 0, 0, 1);
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_slopes(cases[i], &r, i % 2 ? 0.02 : 0.5);
}

// Positions at the borders of pages and splits: with 2 splits a split has 1, 2, 4, ... pages from 128, 256, ... on.
Test(ptx_attend, borders_of_pages_and_splits)
{
    static const int32_t at[] = {0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 700};
    struct batch r = {0};
    for (size_t i = 0; i < COUNT_OF(at); i++)
        add_rows(&r, (int32_t)i % N_SEQS, at[i], 1);
    check((struct heads){4, 2, 32, 32, 0, 2, 0, F16}, &r);
    check((struct heads){2, 1, 32, 32, 129, 2, 0, F16}, &r);
    struct batch deep = {0}; // one split, of up to three rounds of four pages
    add_rows(&deep, 0, 255, 1);
    add_rows(&deep, 1, 256, 1);
    add_rows(&deep, 2, 700, 3);
    check((struct heads){2, 1, 64, 64, 0, 1, 0, F16}, &deep);
    check((struct heads){2, 1, 128, 128, 0, 1, 0, F16}, &deep);
    check((struct heads){1, 1, 256, 256, 300, 1, 0, F16}, &deep);
    check((struct heads){1, 1, 96, 128, 0, 1, 0, Q8}, &deep);
    struct batch over = {0};
    add_rows(&over, 0, 126, 5);
    add_rows(&over, 1, 254, 5);
    add_rows(&over, 2, 510, 4);
    check((struct heads){4, 2, 32, 32, 0, 2, 0, F16}, &over);
    check((struct heads){4, 2, 32, 64, 65, 2, 0, Q8}, &over);
    check((struct heads){4, 2, 32, 64, 128, 2, 0, DT_F16, DT_F16, 0, true, false, 0}, &over);
    check((struct heads){4, 2, 32, 32, 1, 4, 0, DT_F16, DT_F16, 9, true, false, 0}, &over);
}

// Queries far outside of the range of f16.
Test(ptx_attend, queries_of_any_size)
{
    struct batch r = {0};
    add_rows(&r, 1, 60, 6);
    add_rows(&r, 0, 130, 1);
    check((struct heads){4, 2, 64, 64, 0, 2, 0, DT_F16, DT_F16, 0, false, false, 1e30f}, &r);
    check((struct heads){4, 2, 64, 64, 0, 2, 30, DT_F16, DT_F16, 0, false, false, 1e-30f}, &r);
    check((struct heads){4, 2, 64, 64, 0, 2, 0, DT_Q8_0, DT_Q8_0, 0, false, false, 7e4f}, &r);
}

Test(ptx_attend, a_prompt_by_tiles)
{
    struct batch r = {0};
    add_rows(&r, 1, 0, 64);
    check((struct heads){2, 1, 32, 64, 0, 16, 0, F16}, &r);
    struct batch later = {0};
    add_rows(&later, 0, 200, 40);
    check((struct heads){2, 2, 64, 32, 96, 16, 0, Q4}, &later);
}

// The bytes that each form reads: the keys and values of a page once for all query heads of a KV head, and in the form
// TILES also once for all rows of a tile.
Test(ptx_attend, keys_are_read_once_for_a_group)
{
    struct card *c = card_new((struct heads){4, 1, 64, 64, 0, 4, 0, F16}, false);
    struct batch r = {0};
    add_rows(&r, 0, 448, 16); // 8 pages of 64, 16 KB each
    struct inputs in = inputs_of(c, &r);
    const double pages = 8 * 2 * 64 * 64 * 2;
    uint64_t before = simt_count(c->simt).global_read;
    run(c, &in, PTX_ATTEND_ROWS, 16, 1);
    double rows = (double)(simt_count(c->simt).global_read - before);
    before = simt_count(c->simt).global_read;
    run(c, &in, PTX_ATTEND_TILES, 16, 1);
    double tile = (double)(simt_count(c->simt).global_read - before);
    fprintf(stderr, "bytes read for 16 rows of 4 heads, in pages seen: %.2f a row one by one, %.2f in a tile\n",
            rows / 16 / pages, tile / pages);
    inputs_free(c, &in);
    card_free(c);
    if (rows == 0)
        cr_skip_test("a card does not count what it reads");
    cr_expect(rows / 16 >= 0.9 * pages && rows / 16 < 1.1 * pages);
    cr_expect(tile >= pages && tile < 5 * pages); // the queries again for each page
}

// Shapes of well known models.
Test(ptx_attend, every_form_is_assembled_without_spills)
{
    static const struct heads cases[] = {
        {32, 8, 128, 128, 0, 32, 0, F16},
        {64, 8, 64, 64, 128, 32, 0, DT_F16, DT_F16, 1, false, false, 0},
        {8, 4, 256, 256, 4096, 64, 50, Q8},
#ifdef EVERY_ARCH
        {40, 8, 128, 128, 8192, 32, 0, DT_F16, DT_F16, 0, true, false, 0},
        {32, 8, 64, 64, 0, 32, 0, F16},
        {32, 8, 128, 128, 4096, 32, 0, F16},
        {64, 8, 128, 128, 0, 32, 0, Q8},
        {32, 8, 128, 128, 0, 32, 0, Q4},
        {28, 4, 128, 128, 0, 64, 0, F16},
        {8, 4, 256, 256, 4096, 64, 50, F16},
        {32, 16, 128, 128, 4096, 16, 50, F16},
        {32, 32, 80, 80, 0, 16, 0, F16},
        {32, 32, 96, 96, 0, 16, 0, Q4},
        {16, 16, 112, 112, 0, 16, 0, F16},
        {16, 1, 256, 128, 0, 64, 0, Q4},
        {40, 8, 192, 128, 0, 32, 0, F16},
        {32, 32, 96, 96, 0, 16, 0, F32},
        {12, 12, 64, 64, 0, 16, 0, DT_BF16, DT_BF16, 0, false, false, 0},
        {16, 1, 192, 128, 0, 64, 0, F16},
        {16, 1, 576, 512, 0, 64, 0, F16},
#endif
    };
    if (system("command -v ptxas > /dev/null 2>&1") != 0)
        cr_skip_test("no ptxas");
    static char text[TEXT];
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int form = PTX_ATTEND_ROWS; form <= PTX_ATTEND_TILES; form++)
            for (int kind = 0; kind < 3; kind++) { // floats, halves, floats with slopes
                const bool halves = kind == 1;
                if (kind == 2 && i % 3) // their text differs from that of floats in one place
                    continue;
                struct card *c = card_new(cases[i], halves);
                struct ptx p;
                struct ptx_launch l;
                c->a.form = form;
                c->a.slopes = kind == 2;
                ptx_start(&p, text, TEXT);
                if (!halves || ptx_attend_takes_halves(&c->a, 80)) {
                    cr_assert_eq(ptx_emit_attend(&p, &c->a, &l, &c->err), 0, "%s", c->err.text);
                    cr_expect(l.shared <= 98 << 10, "%u bytes of shared memory", l.shared);
                    assemble(text, p.size, halves ? 80 : 75);
                }
                card_free(c);
            }
}
