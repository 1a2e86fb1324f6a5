// Tells changes without effect; see ptx_effects.h.
#include "tests/ptx_effects.h"

#include <ctype.h>
#include <stdlib.h>

enum { LINES = 8192, NAMES = 512, WORDS = NAMES / 64, LABEL = 40 };

// An instruction or a label. Sets of registers are bits.
struct line {
    struct str text; // without leading blanks
    uint64_t writes[WORDS], reads[WORDS], live[WORDS];
    bool is_label, effect, guarded, jumps,
        falls; // effect: more than a write of registers; falls: the next line may follow
    int to;    // the line of the label that it jumps to; -1: none is known
};
struct code {
    struct str names[NAMES];
    int n_names, n;
    struct line lines[LINES];
};

static bool begins(struct str s, const char *word)
{
    return s.len >= strlen(word) && !memcmp(s.data, word, strlen(word));
}

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '%' || c == '.';
}

static bool same(struct str a, struct str b)
{
    return a.len == b.len && !memcmp(a.data, b.data, a.len);
}

// Special registers (%tid.x and so on) are no names.
static int name_of(struct code *c, struct str name)
{
    if (memchr(name.data, '.', name.len))
        return -1;
    for (int i = 0; i < c->n_names; i++)
        if (same(c->names[i], name))
            return i;
    if (c->n_names == NAMES)
        return -1;
    c->names[c->n_names] = name;
    return c->n_names++;
}

static void add_names(struct code *c, struct str s, uint64_t *set)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.data[i] != '%')
            continue;
        struct str name = {s.data + i, 0};
        while (i < s.len && in_name(s.data[i]))
            i++, name.len++;
        const int n = name_of(c, name);
        if (n >= 0)
            set[n / 64] |= 1ULL << n % 64;
    }
}

static bool has_effect(struct str s)
{
    static const char *const words[] = {"st.",  "bra",      "ret",   "bar.",           "cp.async", "red.", "atom.",
                                        "trap", "mbarrier", "fence", "griddepcontrol", "prefetch", "exit"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (begins(s, words[i]))
            return true;
    return false;
}

static struct str after(struct str s, size_t n)
{
    return (struct str){s.data + n, s.len - n};
}

// Reads an instruction: the guard, the operation, what it writes (its first operand, unless it has an effect of another
// kind) and what it reads.
static void read_instruction(struct code *c, struct line *l)
{
    struct str s = l->text;
    if ((l->guarded = begins(s, "@"))) {
        size_t n = 0;
        while (n < s.len && s.data[n] != ' ')
            n++;
        add_names(c, (struct str){s.data, n}, l->reads);
        while (n < s.len && s.data[n] == ' ')
            n++;
        s = after(s, n);
    }
    l->effect = has_effect(s);
    l->jumps = begins(s, "bra");
    l->falls = l->guarded || !(l->jumps || begins(s, "ret"));
    size_t n = 0;
    while (n < s.len && s.data[n] != ' ')
        n++;
    s = after(s, n);
    for (n = 0; n < s.len && s.data[n] == ' ';)
        n++;
    s = after(s, n);
    n = 0;
    while (!l->effect && n < s.len && s.data[n] != (s.data[0] == '{' ? '}' : ','))
        n++;
    add_names(c, (struct str){s.data, n}, l->writes);
    add_names(c, after(s, n), l->reads);
}

static bool read_code(struct code *c, struct str text)
{
    c->n = c->n_names = 0;
    for (size_t at = 0, end; at < text.len; at = end + 1) {
        const char *stop = memchr(text.data + at, '\n', text.len - at);
        end = stop ? (size_t)(stop - text.data) : text.len;
        struct str s = {text.data + at, end - at};
        const bool indented = begins(s, " ");
        while (begins(s, " "))
            s = after(s, 1);
        const bool label = !indented && s.len && memchr(s.data, ':', s.len) && isupper((unsigned char)s.data[0]);
        if (!label && (!indented || !s.len || strchr("./{}", s.data[0])))
            continue;
        if (c->n == LINES)
            return false;
        struct line *l = &c->lines[c->n++];
        *l = (struct line){.text = s, .is_label = label, .falls = true, .to = -1};
        if (!label)
            read_instruction(c, l);
    }
    return c->n_names < NAMES;
}

// Finds the lines that branches go to.
static void find_targets(struct code *c)
{
    for (int i = 0; i < c->n; i++) {
        struct line *l = &c->lines[i];
        struct str s = l->text;
        if (!l->jumps)
            continue;
        while (s.len && s.data[s.len - 1] != ';')
            s.len--;
        size_t from = s.len;
        while (from && s.data[from - 1] != ' ')
            from--;
        s = after(s, from);
        for (int j = 0; j < c->n && l->to < 0; j++)
            if (c->lines[j].is_label && c->lines[j].text.len >= s.len &&
                !memcmp(c->lines[j].text.data, s.data, s.len - 1) && c->lines[j].text.data[s.len - 1] == ':')
                l->to = j;
    }
}

static bool overlap(const uint64_t *a, const uint64_t *b)
{
    uint64_t common = 0;
    for (int w = 0; w < WORDS; w++)
        common |= a[w] & b[w];
    return common;
}

// Adds what is live before `to` to what is live after a line that it follows. Returns whether that is new. What a line reads
// is live only if what it writes is, or if it has another effect.
static bool flow(struct line *l, const struct line *to)
{
    const bool used = to->effect || overlap(to->writes, to->live);
    bool changed = false;
    for (int w = 0; w < WORDS; w++) {
        const uint64_t kept = to->guarded ? to->live[w] : to->live[w] & ~to->writes[w];
        const uint64_t live = l->live[w] | kept | (used ? to->reads[w] : 0);
        changed = changed || live != l->live[w];
        l->live[w] = live;
    }
    return changed;
}

// Sets line.live to the registers that are read after the line, before they are written, for what has an effect.
static void find_live(struct code *c)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (int i = c->n; i--;) {
            struct line *l = &c->lines[i];
            if (l->falls && i + 1 < c->n && flow(l, l + 1))
                changed = true;
            if (l->to >= 0 && flow(l, &c->lines[l->to]))
                changed = true;
        }
    }
}

// Adding %nothing, which is 0 and hides a number from ptxas, changes nothing.
static bool adds_nothing(const struct line *l)
{
    return l->text.len > 9 && !memcmp(l->text.data + l->text.len - 9, "%nothing;", 9);
}

// Whether line i writes what its register has already: all lines that write it are this one, the first of them comes before
// it, and what they read never changes either.
static bool is_same_again(const struct code *c, int i, int depth)
{
    const struct line *l = &c->lines[i];
    bool before = depth > 0;
    if (l->guarded || l->effect || begins(l->text, "ld.") || begins(l->text, "shfl") || depth > 8)
        return false;
    if (overlap(l->writes, l->reads))
        return false;
    for (int j = 0; j < c->n; j++) {
        const struct line *other = &c->lines[j];
        if (overlap(other->writes, l->writes) && !adds_nothing(other)) {
            if (!same(other->text, l->text))
                return false;
            before = before || j < i;
        }
        if (overlap(other->writes, l->reads) && !adds_nothing(other) && !is_same_again(c, j, depth + 1))
            return false;
    }
    return before;
}

static int line_at(const struct code *c, const char *at)
{
    for (int i = 0; i < c->n; i++)
        if (c->lines[i].text.data == at)
            return i;
    return -1;
}

static bool is_idle(const struct code *c, int i)
{
    const struct line *l = &c->lines[i];
    return !l->effect && !l->is_label && (adds_nothing(l) || !overlap(l->writes, l->live));
}

// Whether the line multiplies a register by 1.
static bool is_times_one(struct str s)
{
    static const char by[] = ", 0f3F800000;";
    const size_t n = sizeof by - 1;
    const char *comma = memchr(s.data, ',', s.len);
    if (!begins(s, "mul.rn.f32 ") || s.len < n || memcmp(s.data + s.len - n, by, n) || !comma)
        return false;
    const size_t at = strlen("mul.rn.f32 "), len = (size_t)(comma - s.data) - at;
    return s.len == at + 2 * len + 2 + n && !memcmp(s.data + at, comma + 2, len);
}

// Whether the lines differ in that one adds 0 and the other subtracts it.
static bool is_plus_none(struct str a, struct str b)
{
    return a.len == b.len && a.len > 8 && !memcmp(a.data + a.len - 4, ", 0;", 4) &&
           ((begins(a, "add.") && begins(b, "sub.")) || (begins(a, "sub.") && begins(b, "add."))) &&
           !memcmp(a.data + 4, b.data + 4, a.len - 4);
}

bool effects_are_none(struct str text, struct str changed, size_t where)
{
    struct code *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    bool none = false;
    if (a && b && read_code(a, text) && read_code(b, changed)) {
        const int i = line_at(a, text.data + where), j = line_at(b, changed.data + where);
        find_targets(a);
        find_live(a);
        find_targets(b);
        find_live(b);
        const bool removed = b->n < a->n;
        none = i >= 0 && (is_idle(a, i) || is_same_again(a, i, 0)) && (removed || (j >= 0 && is_idle(b, j)));
        if (i >= 0 && is_times_one(a->lines[i].text))
            none = none || removed || (j >= 0 && is_idle(b, j));
        none = none || (i >= 0 && j >= 0 && is_plus_none(a->lines[i].text, b->lines[j].text));
    }
    free(a);
    free(b);
    return none;
}
