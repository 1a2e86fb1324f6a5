// Prints the rows of `quern bench` as a table in Markdown. The columns are rows of one list: when each is shown, how
// wide it is, and how important. Of those that are shown, the least important ones leave until the table fits.
#include "cmd/bench/bench.h"
#include "cmd/terminal/display.h"

#include <stdio.h>

enum { CELL = 128, MODEL_LEAST = 16, MODEL_MOST = 24, MODEL_MOST_VERBOSE = 30, LABEL_LEAST = 5, SPEED_WIDTH = 18 };

// --- text of a given width ---

// Replaces the words behind the mix of types by the letter with which files are named: "Q4_K - Medium" to "Q4_K_M".
static void abbreviate(char *name)
{
    static const char *const words[] = {" - Medium", " - Small", " - Large"};
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        char *at = strstr(name, words[i]);
        if (!at)
            continue;
        at[0] = '_';
        at[1] = words[i][3];
        memmove(at + 2, at + strlen(words[i]), strlen(at + strlen(words[i])) + 1);
    }
}

// Cuts a text to so many cells; an ellipsis stands for what was cut.
static void cut(char *text, int width)
{
    const struct str all = str_from(text);
    size_t at = 0, kept = 0;
    for (int used = 0, w; at < all.len; used += w) {
        size_t next = display_next(all, at, &w);
        if (used + w > width)
            break;
        kept = used + w < width ? next : kept; // the last cell is for the ellipsis
        at = next;
    }
    if (at < all.len)
        memcpy(text + kept, "…", sizeof "…");
}

void bench_name(const char *type, int width, char out[BENCH_NAME])
{
    snprintf(out, BENCH_NAME - sizeof "…", "%s", type);
    if (display_text_width(str_from(out)) > (size_t)width)
        abbreviate(out);
    cut(out, MAX(width, 1));
}

void bench_name_and_test(const struct bench_row *r, int width, char out[BENCH_NAME + 64])
{
    char name[BENCH_NAME], label[64];
    bench_label(&r->test, label);
    bench_name(r->type, MAX(4, width - 1 - (int)strlen(label)), name);
    snprintf(out, BENCH_NAME + 64, "%s %s", name, label);
}

void bench_print_padded(const char *words, int width, bool right, struct text *out)
{
    int gap = MAX(0, width - (int)display_text_width(str_from(words)));
    text_print(out, "%*s%s%*s", right ? gap : 0, "", words, right ? 0 : gap, "");
}

// --- cells ---

static void cell_size(const struct bench_row *r, char *out)
{
    char size[24];
    memory_format((uint64_t)r->size, size);
    snprintf(out, CELL, "%s", size);
}

static void cell_params(const struct bench_row *r, char *out)
{
    bool billions = r->n_params >= 1000000000;
    snprintf(out, CELL, "%.2f %c", (double)r->n_params / (billions ? 1e9 : 1e6), billions ? 'B' : 'M');
}

static void cell_backend(const struct bench_row *r, char *out)
{
    snprintf(out, CELL, "%s", r->backend);
}

static void cell_threads(const struct bench_row *r, char *out)
{
    snprintf(out, CELL, "%d", r->n_threads);
}

static void cell_batch(const struct bench_row *r, char *out)
{
    snprintf(out, CELL, "%d", r->n_batch);
}

static void cell_ubatch(const struct bench_row *r, char *out)
{
    snprintf(out, CELL, "%d", r->n_ubatch);
}

static void cell_keys(const struct bench_row *r, char *out)
{
    bench_type_text(r->kv_type[KV_KEY], out);
}

static void cell_values(const struct bench_row *r, char *out)
{
    bench_type_text(r->kv_type[KV_VALUE], out);
}

static void cell_test(const struct bench_row *r, char *out)
{
    bench_label(&r->test, out);
}

// Fast runs are printed with fewer decimals, so that they need no more room.
static void cell_speed(const struct bench_row *r, char *out)
{
    for (int digits = 2; digits >= 0; digits--) {
        snprintf(out, CELL, "%.*f ± %.*f", digits, samples_mean(r->ts, r->n), digits, samples_deviation(r->ts, r->n));
        if (display_text_width(str_from(out)) <= SPEED_WIDTH)
            return;
    }
}

static void cell_ceiling(const struct bench_row *r, char *out)
{
    const char *bound = bench_bound(r);
    if (*bound)
        snprintf(out, CELL, "%.0f%% %s", 100 * MAX(r->read_part, r->multiply_part), bound);
}

// Formats a rate and its fraction of a ceiling. `of` names the ceiling; NULL where the column's head does.
static void rate(double per_second, double part, const char *of, char *out)
{
    int n = snprintf(out, CELL, "%.1f", per_second / 1e9);
    if (part > 0)
        snprintf(out + n, CELL - (size_t)n, " (%.0f%%%s%s)", 100 * part, of ? " of " : "", of ? of : "");
}

static void cell_bytes(const struct bench_row *r, char *out)
{
    rate(r->bytes, r->read_part, NULL, out);
}

static void cell_products(const struct bench_row *r, char *out)
{
    rate(r->products, r->multiply_part, r->unit_name, out);
}

static void cell_bound(const struct bench_row *r, char *out)
{
    snprintf(out, CELL, "%s", bench_bound(r));
}

static void cell_step(const struct bench_row *r, char *out)
{
    if (r->median_step_ms > 0)
        snprintf(out, CELL, "%.2f (%.2f)", r->median_step_ms, r->p95_step_ms);
}

static void cell_first(const struct bench_row *r, char *out)
{
    if (r->first_ms > 0)
        snprintf(out, CELL, "%.1f", r->first_ms);
}

static void cell_load(const struct bench_row *r, char *out)
{
    snprintf(out, CELL, "%.0f", r->load_ms);
}

static void cell_memory(const struct bench_row *r, char *out)
{
    char size[24];
    memory_format(r->peak_bytes, size);
    snprintf(out, CELL, "%s", size);
}

static void cell_peer(const struct bench_row *r, char *out)
{
    if (r->peer_ts)
        snprintf(out, CELL, "%.2f", samples_mean(r->peer_ts, r->n));
}

static void cell_ratio(const struct bench_row *r, char *out)
{
    double low, high, peer = r->peer_ts ? samples_mean(r->peer_ts, r->n) : 0;
    if (!(peer > 0))
        return;
    samples_compare(r->ts, r->n, r->peer_ts, r->n, 0.95, 1, &low, &high);
    snprintf(out, CELL, "%.2f (%.2f-%.2f)", samples_mean(r->ts, r->n) / peer, low, high);
}

// --- the columns ---

enum { MODEL_WIDTH = -1, LABEL_WIDTH = -2 }; // widths that the layout decides

// Columns with importance KEPT, and those of settings that a flag sets, never leave: without them a row says nothing, or
// cannot be told from another.
enum { KEPT = 100 };

// clang-format off
static const struct {
    const char *name;
    int width;
    bool right;
    int importance;  // those with the lowest leave first
    unsigned shown;  // the column is shown in a view that has one of these bits; BENCH_SHOW_ALWAYS is in every view
    void (*print)(const struct bench_row *r, char *out); // NULL: the model
} columns[] = {
    {"model",       MODEL_WIDTH, false, 90,   BENCH_SHOW_ALWAYS,                          NULL},
    {"size",        8,           true,  50,   BENCH_SHOW_ALWAYS,                          cell_size},
    {"params",      8,           true,  30,   BENCH_SHOW_VERBOSE,                         cell_params},
    {"backend",     7,           false, 38,   BENCH_SHOW_BACKEND | BENCH_SHOW_VERBOSE,    cell_backend},
    {"threads",     7,           true,  38,   BENCH_SHOW_THREADS | BENCH_SHOW_VERBOSE,    cell_threads},
    {"n_batch",     7,           true,  KEPT, BENCH_SHOW_BATCH,                           cell_batch},
    {"n_ubatch",    8,           true,  KEPT, BENCH_SHOW_UBATCH,                          cell_ubatch},
    {"type_k",      6,           true,  KEPT, BENCH_SHOW_KEYS,                            cell_keys},
    {"type_v",      6,           true,  KEPT, BENCH_SHOW_VALUES,                          cell_values},
    {"test",        LABEL_WIDTH, true,  KEPT, BENCH_SHOW_ALWAYS,                          cell_test},
    {"t/s",         SPEED_WIDTH,       true,  KEPT, BENCH_SHOW_ALWAYS,                          cell_speed},
    {"of ceiling",  12,          true,  60,   BENCH_SHOW_CEILING,                         cell_ceiling},
    {"GB/s",        13,          true,  45,   BENCH_SHOW_VERBOSE,                         cell_bytes},
    {"GMAC/s",      28,          true,  40,   BENCH_SHOW_VERBOSE,                         cell_products},
    {"bound by",    8,           true,  46,   BENCH_SHOW_VERBOSE,                         cell_bound},
    {"step ms (95%)", 16,        true,  35,   BENCH_SHOW_VERBOSE,                         cell_step},
    {"first ms",    8,           true,  34,   BENCH_SHOW_VERBOSE,                         cell_first},
    {"load ms",     7,           true,  10,   BENCH_SHOW_VERBOSE,                         cell_load},
    {"memory",      8,           true,  20,   BENCH_SHOW_VERBOSE,                         cell_memory},
    {"peer t/s",    9,           true,  94,   BENCH_SHOW_PEER,                            cell_peer},
    {"ratio (95%)", 16,          true,  95,   BENCH_SHOW_PEER,                            cell_ratio},
};
// clang-format on
_Static_assert(COUNT_OF(columns) <= 32, "a layout has a bit for each column");

static bool is_shown(const struct bench_layout *l, size_t i)
{
    return l->columns >> i & 1;
}

static int width_of(const struct bench_layout *l, size_t i)
{
    return columns[i].width == MODEL_WIDTH   ? l->model_width
           : columns[i].width == LABEL_WIDTH ? l->label_width
                                             : columns[i].width;
}

// Each column has three characters beside its cells, "| " and " ", and the last one a bar behind it.
static int table_width(const struct bench_layout *l)
{
    int width = 1;
    for (size_t i = 0; i < COUNT_OF(columns); i++)
        width += is_shown(l, i) ? width_of(l, i) + 3 : 0;
    return width;
}

// The least important column that may leave; COUNT_OF(columns) if there is none.
static size_t least_important(const struct bench_layout *l)
{
    size_t least = COUNT_OF(columns);
    for (size_t i = 0; i < COUNT_OF(columns); i++)
        if (is_shown(l, i) && !(l->kept >> i & 1) &&
            (least == COUNT_OF(columns) || columns[i].importance < columns[least].importance))
            least = i;
    return least;
}

// Where not all columns have room, one column says which ceiling binds, as in the table without -v, in place of three.
static void bind_in_one(struct bench_layout *l)
{
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        if (columns[i].print == cell_bytes || columns[i].print == cell_products || columns[i].print == cell_bound)
            l->columns &= ~(1u << i);
        if (columns[i].print == cell_ceiling)
            l->columns |= 1u << i;
    }
}

struct bench_layout bench_layout_choose(const struct bench_view *v)
{
    struct bench_layout l = {.model_width = MODEL_LEAST, .label_width = MAX(v->label_width, LABEL_LEAST)};
    int most = v->shown & BENCH_SHOW_VERBOSE ? MODEL_MOST_VERBOSE : MODEL_MOST;
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        bool kept = columns[i].importance == KEPT || (columns[i].shown & v->shown & BENCH_SHOW_SETTINGS);
        l.columns |= (columns[i].shown & (v->shown | BENCH_SHOW_ALWAYS)) ? 1u << i : 0;
        l.kept |= kept ? 1u << i : 0;
    }
    if (v->shown & BENCH_SHOW_VERBOSE && v->limit && table_width(&l) > v->limit)
        bind_in_one(&l);
    for (size_t i; v->limit && table_width(&l) > v->limit && (i = least_important(&l)) < COUNT_OF(columns);) {
        // only the model's own name is left: it is cut further before it leaves
        if (!columns[i].print && l.model_width > LABEL_LEAST)
            l.model_width--;
        else
            l.columns &= ~(1u << i);
    }
    if (l.model_width == MODEL_LEAST)
        l.model_width = v->limit ? MIN(most, MODEL_LEAST + v->limit - table_width(&l)) : most;
    return l;
}

// --- the table ---

// Prints the line between the head and the rows; a colon marks a column that is aligned to the right.
static void print_rule(const struct bench_layout *l, struct text *out)
{
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        if (!is_shown(l, i))
            continue;
        text_print(out, "| ");
        for (int k = columns[i].right; k < width_of(l, i); k++)
            text_print(out, "-");
        text_print(out, columns[i].right ? ": " : " ");
    }
    text_print(out, "|\n");
}

void bench_print_table_head(const struct bench_layout *l, struct text *out)
{
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        if (!is_shown(l, i))
            continue;
        text_print(out, "| ");
        bench_print_padded(columns[i].name, width_of(l, i), columns[i].right, out);
        text_print(out, " ");
    }
    text_print(out, "|\n");
    print_rule(l, out);
}

void bench_print_table_row(const struct bench_layout *l, const struct bench_row *r, struct text *out)
{
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        char cell[CELL] = "";
        if (!is_shown(l, i))
            continue;
        if (columns[i].print)
            columns[i].print(r, cell);
        else
            bench_name(r->type, l->model_width, cell);
        text_print(out, "| ");
        bench_print_padded(cell, width_of(l, i), columns[i].right, out);
        text_print(out, " ");
    }
    text_print(out, "|\n");
}
