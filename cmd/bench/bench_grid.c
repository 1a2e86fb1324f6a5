// The lists of numbers that bench takes (-p 128,512, -d 0,4096): comma-separated values, and ranges with a step. Each
// value is checked against its limits, and a list holds at most GRID_MAX values.
#include "cmd/bench/bench.h"

static int add(struct grid *g, const char *flag, int64_t value, int64_t least, int64_t most, struct error *err)
{
    if (value < least || value > most)
        return fail(err, E_USAGE, "%s: %lld is not from %lld to %lld", flag, (long long)value, (long long)least,
                    (long long)most);
    if (g->n == GRID_MAX)
        return fail(err, E_USAGE, "%s: more than %d values", flag, GRID_MAX);
    g->at[g->n++] = value;
    return 0;
}

// Parses a number at the beginning of *text, which must be followed by a character of `ends` or the end of the text.
static bool take(char **text, const char *ends, int64_t *value)
{
    char *p = *text, kept;
    size_t n = strcspn(p, ends);
    kept = p[n];
    p[n] = 0;
    bool ok = options_parse_integer(p, value) == 0;
    p[n] = kept;
    *text = p + n;
    return ok;
}

// Adds one item: a number, or first-last with an optional +step or *factor (default: +1).
static int add_item(struct grid *g, const char *flag, char *item, int64_t least, int64_t most, struct error *err)
{
    char *p = item, how = '+';
    int64_t first, last, step = 1;
    bool ok = take(&p, "-", &first);
    last = first;
    if (ok && *p == '-') {
        p++;
        ok = take(&p, "+*", &last);
    }
    if (ok && *p) {
        how = *p++;
        ok = take(&p, "", &step);
    }
    if (!ok || last < first || step < 1 || (how == '*' && (step < 2 || first < 1)))
        return fail(err, E_USAGE, "%s %s: not a number, first-last, first-last+step or first-last*factor", flag, item);
    for (int64_t v = first; v <= last; v = how == '*' ? v * step : v + step)
        if (add(g, flag, v, least, most, err))
            return -1;
    return 0;
}

static int add_list(struct grid *g, const char *flag, const char *list, int64_t least, int64_t most, struct error *err)
{
    char item[64];
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        if (n == 0 || n >= sizeof item)
            return fail(err, E_USAGE, "%s %s: not a list of numbers", flag, list);
        memcpy(item, p, n);
        item[n] = 0;
        if (add_item(g, flag, item, least, most, err))
            return -1;
        p += n;
        if (!*p)
            return 0;
    }
}

int grid_parse(struct grid *g, const struct option_list *list, const char *flag, const char *preset, int64_t least,
               int64_t most, struct error *err)
{
    g->n = 0;
    if (!list->n)
        return add_list(g, flag, preset, least, most, err);
    for (int i = 0; i < list->n; i++)
        if (add_list(g, flag, list->at[i], least, most, err))
            return -1;
    return 0;
}
