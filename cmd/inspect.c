// quern inspect: shows the content of a model file as text or as JSON.
//
// JSON is printed directly instead of being built as a tree, because values may be 64-bit integers and strings with
// NUL bytes, and the file's order is kept.
#include "cmd/catalog.h"
#include "cmd/confine.h"
#include "cmd/load.h"
#include "cmd/terminal/terminal.h"
#include "gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    ARRAY_SHOWN = 8,  // elements of an array, unless the array was asked for by name
    TEXT_SHOWN = 72,  // characters of a value in the table
    KEYS_SHOWN = 256, // rows of the table of keys
    KEY_COLUMN = 44,  // the greatest width of the column of names
    NAME_COLUMN = 63,
};

// ---- Sizes and sums ----

struct usage {
    enum dtype type;
    size_t tensors;
    uint64_t elements, bytes;
};

static uint64_t add_up(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t count_elements(const struct gguf_tensor *t)
{
    return (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]); // cannot overflow: gguf_open has checked it
}

static int larger_first(const void *a, const void *b)
{
    const struct usage *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

// Fills one row for each tensor type in the file, the largest first; *total sums them all. Returns the number of
// rows.
static int sum_types(const struct gguf *g, struct usage rows[DT_COUNT], struct usage *total)
{
    *total = (struct usage){0};
    for (int t = 0; t < DT_COUNT; t++)
        rows[t] = (struct usage){.type = (enum dtype)t};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct usage *both[] = {&rows[t->type], total};
        for (int k = 0; k < 2; k++) {
            both[k]->tensors++;
            both[k]->elements = add_up(both[k]->elements, count_elements(t));
            both[k]->bytes = add_up(both[k]->bytes, t->size);
        }
    }
    qsort(rows, DT_COUNT, sizeof *rows, larger_first);
    int n = 0;
    while (n < DT_COUNT && rows[n].tensors > 0)
        n++;
    return n;
}

struct shown {
    char text[24];
};

static struct shown scaled(double v, double step, const char *const *units, int n)
{
    struct shown s;
    int u = 0;
    for (; v >= step && u < n - 1; u++)
        v /= step;
    snprintf(s.text, sizeof s.text, "%.*f %s", u == 0 ? 0 : v < 10 ? 2 : v < 100 ? 1 : 0, v, units[u]);
    return s;
}

static struct shown bytes_shown(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return scaled((double)bytes, 1024, units, COUNT_OF(units));
}

static struct shown count_shown(uint64_t count)
{
    static const char *const units[] = {"", "thousand", "million", "billion", "trillion"};
    struct shown s = scaled((double)count, 1000, units, COUNT_OF(units));
    if (count < 1000)
        snprintf(s.text, sizeof s.text, "%" PRIu64, count);
    return s;
}

// ---- Values ----

// Prints the fewest digits that read back as the same number.
static void print_real(struct text *out, double v, bool single)
{
    char digits[40];
    for (int precision = single ? 6 : 15; precision <= (single ? 9 : 17); precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, v);
        if (single ? strtof(digits, NULL) == (float)v : strtod(digits, NULL) == v)
            break;
    }
    text_print(out, "%s", digits);
}

// Prints a number; in JSON, NaN and infinity become null, for JSON cannot express them.
static void print_number(struct text *out, const struct gguf_kv *kv, uint64_t i, bool json)
{
    double real = 0;
    uint64_t whole;
    if (kv->element == GGUF_F32)
        real = gguf_array_f32(kv, i);
    else if (kv->element == GGUF_F64)
        memcpy(&real, kv->data + 8 * i, 8);
    if (json && !isfinite(real)) {
        text_print(out, "null");
    } else if (kv->element == GGUF_F32 || kv->element == GGUF_F64) {
        print_real(out, real, kv->element == GGUF_F32);
    } else if (kv->element == GGUF_BOOL) {
        text_print(out, "%s", gguf_array_i64(kv, i) ? "true" : "false");
    } else if (kv->element == GGUF_U64) {
        memcpy(&whole, kv->data + 8 * i, 8);
        text_print(out, "%" PRIu64, whole);
    } else {
        text_print(out, "%" PRId64, gguf_array_i64(kv, i));
    }
}

// Prints text from the file in a table: at most `max` characters on one line, without control characters. Returns how
// many were printed.
static int print_clean(struct text *out, struct str s, int max)
{
    int shown = 0;
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int n = utf8_decode(s.data + i, s.len - i, &cp);
        if (n > 0 && !utf8_printable(cp) && cp != '\n' && cp != '\t') {
            i += (size_t)n;
            continue;
        }
        if (shown >= max - 3 && s.len - i > 3) {
            text_print(out, "...");
            return shown + 3;
        }
        if (n == 0)
            text_print(out, "\xEF\xBF\xBD"); // U+FFFD
        else if (cp == '\n' || cp == '\t')
            text_print(out, cp == '\n' ? "\\n" : "\\t");
        else
            text_print(out, "%.*s", n, s.data + i);
        shown += n > 0 && cp < 0x20 ? 2 : 1;
        i += (size_t)MAX(n, 1);
    }
    return shown;
}

static void print_spaces(struct text *out, int n)
{
    text_print(out, "%*s", MAX(n, 0), "");
}

static void print_json_value(struct text *out, const struct gguf_kv *kv, uint64_t i)
{
    if (kv->strings)
        terminal_print_json(out, kv->strings[i]);
    else
        print_number(out, kv, i, true);
}

// ---- One key ----

// Prints the value only: a string verbatim, an array with one element per line.
static void print_key(struct text *out, const struct gguf_kv *kv)
{
    for (uint64_t i = 0; i < kv->count; i++) {
        if (kv->strings)
            text_append(out, kv->strings[i]);
        else
            print_number(out, kv, i, false);
        text_print(out, "\n");
    }
}

// Prints a pair like ,"type":"array","element":"u32","count":3,"value":[1,2,3]. Of an array longer
// than `limit` only that many elements are printed, under "first" instead of "value".
static void print_json_pair(struct text *out, const struct gguf_kv *kv, uint64_t limit)
{
    text_print(out, "\"type\":\"%s\",", gguf_type_name(kv->type));
    if (kv->type != GGUF_ARRAY) {
        text_print(out, "\"value\":");
        print_json_value(out, kv, 0);
        return;
    }
    text_print(out, "\"element\":\"%s\",\"count\":%" PRIu64 ",\"%s\":[", gguf_type_name(kv->element), kv->count,
               kv->count > limit ? "first" : "value");
    for (uint64_t i = 0; i < MIN(kv->count, limit); i++) {
        text_print(out, i > 0 ? "," : "");
        print_json_value(out, kv, i);
    }
    text_print(out, "]");
}

static void print_json_key(struct text *out, const struct gguf_kv *kv)
{
    text_print(out, "{\"key\":");
    terminal_print_json(out, kv->key);
    text_print(out, ",");
    print_json_pair(out, kv, UINT64_MAX);
    text_print(out, "}\n");
}

// ---- The whole file as JSON ----

static void print_json_usage(struct text *out, const struct usage *u)
{
    text_print(out, "\"tensors\":%zu,\"parameters\":%" PRIu64 ",\"bytes\":%" PRIu64, u->tensors, u->elements, u->bytes);
}

static void print_json_summary(struct text *out, const struct gguf *g)
{
    struct usage rows[DT_COUNT], total;
    int n = sum_types(g, rows, &total);
    text_print(out, "{\"parts\":[");
    for (int i = 0; i < gguf_n_shards(g); i++) {
        text_print(out, i > 0 ? "," : "");
        terminal_print_json(out, str_from(gguf_path(g, i)));
    }
    text_print(out, "],\n\"version\":%u,\"alignment\":%" PRIu64 ",\"file_bytes\":%" PRIu64 ",\n\"total\":{",
               gguf_version(g), gguf_alignment(g), gguf_file_bytes(g));
    print_json_usage(out, &total);
    text_print(out, "},\n\"types\":{");
    for (int i = 0; i < n; i++) {
        text_print(out, "%s\n\"%s\":{", i > 0 ? "," : "", dtype_info[rows[i].type].name);
        print_json_usage(out, &rows[i]);
        text_print(out, "}");
    }
    text_print(out, "},\n");
}

static void print_json_tensor(struct text *out, const struct gguf_tensor *t)
{
    text_print(out, "{\"name\":");
    terminal_print_json(out, t->name);
    text_print(out, ",\"type\":\"%s\",\"shape\":[", dtype_info[t->type].name);
    for (int i = 0; i < t->n_dims; i++)
        text_print(out, "%s%" PRId64, i > 0 ? "," : "", t->ne[i]);
    text_print(out, "],\"bytes\":%" PRIu64 ",\"part\":%d,\"offset\":%" PRIu64 "}", t->size, t->shard, t->offset);
}

static void print_json(struct text *out, const struct gguf *g)
{
    print_json_summary(out, g);
    text_print(out, "\"keys\":{");
    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        text_print(out, i > 0 ? ",\n" : "\n");
        terminal_print_json(out, kv->key);
        text_print(out, ":{");
        print_json_pair(out, kv, ARRAY_SHOWN);
        text_print(out, "}");
    }
    text_print(out, "},\n\"tensors\":[");
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        text_print(out, i > 0 ? ",\n" : "\n");
        print_json_tensor(out, gguf_tensor_at(g, i));
    }
    text_print(out, "]}\n");
}

// ---- The whole file as text ----

static void print_summary(struct text *out, const struct gguf *g)
{
    struct usage rows[DT_COUNT], total;
    int n = sum_types(g, rows, &total);
    print_clean(out, str_from(gguf_path(g, 0)), 1000);
    text_print(out, "\n  file         GGUF version %u, %s", gguf_version(g), bytes_shown(gguf_file_bytes(g)).text);
    if (gguf_n_shards(g) > 1)
        text_print(out, " in %d parts", gguf_n_shards(g));
    text_print(out, ", aligned to %" PRIu64 " B\n", gguf_alignment(g));
    struct str arch;
    if (gguf_get_str(g, "general.architecture", &arch, NULL) == 1) {
        text_print(out, "  architecture ");
        print_clean(out, arch, TEXT_SHOWN);
        text_print(out, "\n");
    }
    text_print(out, "  parameters   %s in %zu tensors, %s", count_shown(total.elements).text, total.tensors,
               bytes_shown(total.bytes).text);
    if (total.elements > 0)
        text_print(out, ", %.2f bits each", 8.0 * (double)total.bytes / (double)total.elements);
    text_print(out, "\n");
    for (int i = 0; i < n; i++)
        text_print(out, "  %-12s %6zu tensors  %14s  %10s  %5.1f %%\n", dtype_info[rows[i].type].name, rows[i].tensors,
                   count_shown(rows[i].elements).text, bytes_shown(rows[i].bytes).text,
                   100.0 * (double)rows[i].bytes / (double)total.bytes);
}

static void print_value(struct text *out, const struct gguf_kv *kv)
{
    if (kv->type == GGUF_STRING) {
        print_clean(out, kv->strings[0], TEXT_SHOWN);
        return;
    }
    struct text row = {0};
    uint64_t n = kv->type == GGUF_ARRAY ? MIN(kv->count, (uint64_t)ARRAY_SHOWN) : 1;
    for (uint64_t i = 0; i < n; i++) {
        text_print(&row, i > 0 ? " " : "");
        if (kv->strings) {
            text_print(&row, "\"");
            print_clean(&row, kv->strings[i], 24);
            text_print(&row, "\"");
        } else {
            print_number(&row, kv, i, false);
        }
    }
    if (row.size > 0)
        print_clean(out, (struct str){row.data, row.size}, TEXT_SHOWN);
    if (n < kv->count)
        text_print(out, " ...");
    text_free(&row);
}

static void print_keys(struct text *out, const struct gguf *g)
{
    size_t n = MIN(gguf_n_kv(g), (size_t)KEYS_SHOWN);
    int width = 0;
    for (size_t i = 0; i < n; i++)
        width = MAX(width, (int)MIN(gguf_kv_at(g, i)->key.len, (size_t)KEY_COLUMN));
    text_print(out, "\n%zu keys\n", gguf_n_kv(g));
    for (size_t i = 0; i < n; i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        char type[48];
        if (kv->type == GGUF_ARRAY)
            snprintf(type, sizeof type, "%s[%" PRIu64 "]", gguf_type_name(kv->element), kv->count);
        else
            snprintf(type, sizeof type, "%s", gguf_type_name(kv->type));
        text_print(out, "  ");
        print_spaces(out, width - print_clean(out, kv->key, KEY_COLUMN));
        text_print(out, "  %-14s  ", type);
        print_value(out, kv);
        text_print(out, "\n");
    }
    if (n < gguf_n_kv(g))
        text_print(out, "  and %zu more; --json shows them\n", gguf_n_kv(g) - n);
}

static void print_tensors(struct text *out, const struct gguf *g)
{
    int width = 0;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        width = MAX(width, (int)gguf_tensor_at(g, i)->name.len);
    text_print(out, "\n%zu tensors\n", gguf_n_tensors(g));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        char shape[96];
        int len = snprintf(shape, sizeof shape, "%" PRId64, t->ne[0]);
        for (int d = 1; d < t->n_dims; d++)
            len += snprintf(shape + len, sizeof shape - (size_t)len, " x %" PRId64, t->ne[d]);
        text_print(out, "  ");
        print_spaces(out, width - print_clean(out, t->name, NAME_COLUMN));
        text_print(out, "  %-7s  %-24s  %10s", dtype_info[t->type].name, shape, bytes_shown(t->size).text);
        if (gguf_n_shards(g) > 1)
            text_print(out, "  part %d", t->shard + 1);
        text_print(out, "  at %" PRIu64 "\n", t->offset);
    }
}

// ---- The verb ----

static int print_what_was_asked(struct text *out, const struct gguf *g, const struct options *o, struct error *err)
{
    if (o->key) {
        const struct gguf_kv *kv = gguf_find(g, o->key);
        if (!kv)
            return fail(err, E_MODEL, "%s: there is no key '%s'", gguf_path(g, 0), o->key);
        (o->json ? print_json_key : print_key)(out, kv);
    } else if (o->json) {
        print_json(out, g);
    } else {
        print_summary(out, g);
        print_keys(out, g);
        if (o->tensors)
            print_tensors(out, g);
    }
    return out->failed ? fail(err, E_MEMORY, "out of memory: more than %zu bytes for what is printed", out->size) : 0;
}

static int inspect(const struct options *o, struct error *err)
{
    if (o->args.n + (o->model != NULL) > 1)
        return fail(err, E_USAGE, "inspect takes one model; see `quern help inspect`");
    if (o->key && o->tensors)
        return fail(err, E_USAGE, "--key and --tensors exclude each other");
    char *named = NULL;
    if (o->args.n > 0 && catalog_resolve(o->args.at[0], &named, NULL, err))
        return -1;
    const char *path = named ? named : load_path(o, err);
    struct gguf *g;
    int opened = path ? model_file_open(&g, path, GGUF_METADATA_ONLY, err) : -1;
    free(named);
    if (opened)
        return -1;
    struct text out = {0};
    int status = print_what_was_asked(&out, g, o, err);
    if (status == 0 && out.size > 0)
        status = (o->json  ? terminal_write_json
                  : o->key ? terminal_write_untrusted
                           : terminal_write_table)((struct str){out.data, out.size}, err);
    text_free(&out);
    gguf_close(g);
    return status;
}

int cmd_inspect(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_INSPECT, argc, argv, &err) != 0)
        return verb_fail(&err);
    confine(&o);
    int status = inspect(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
