// Counts the instructions of annotated loops in one pass over the lines of the text, with a stack of open scopes.
#include "kernels/ptx/loop_cost.h"

#include <stdio.h>

enum { DEEPEST = 8, NAME = 32 };

// A scope is a loop, which ends at the branch back to its label, or code that a forward branch skips, which ends at the
// label of the branch.
struct scope {
    char label[NAME];
    bool ahead;      // code that a forward branch skips
    double times;    // struct count.times outside of the scope
    double before;   // of a loop of products: the instructions counted before it
    double products; // of a loop of products: products of one turn; 0: another scope
};

struct count {
    struct scope open[DEEPEST];
    int depth;
    double times;        // how often an instruction at this place is executed, in one turn of the loop of products
    double instructions; // sum of `times` over the instructions so far
    double dearest;      // instructions per product of the most expensive loop so far
};

static struct scope *open_scope(struct count *c, const char *label, bool ahead)
{
    if (c->depth == DEEPEST)
        return NULL;
    struct scope *s = &c->open[c->depth++];
    *s = (struct scope){.ahead = ahead, .times = c->times};
    memcpy(s->label, label, NAME);
    return s;
}

// Closes the innermost scope if it has this kind and label. Returns whether it was closed.
static bool close_scope(struct count *c, const char *label, bool ahead)
{
    const struct scope *s = c->depth ? &c->open[c->depth - 1] : NULL;
    if (!s || s->ahead != ahead || strcmp(s->label, label))
        return false;
    if (s->products > 0)
        c->dearest = MAX(c->dearest, (c->instructions - s->before) / s->products);
    c->times = s->times;
    c->depth--;
    return true;
}

static void at_label(struct count *c, const char *label, const char *note)
{
    unsigned n;
    int end = 0;
    struct scope *s;
    while (close_scope(c, label, true))
        ;
    if (sscanf(note, "// %u products a turn%n", &n, &end) == 1 && end && n && (s = open_scope(c, label, false)))
        s->products = n, s->before = c->instructions;
    else if (sscanf(note, "// %u turns%n", &n, &end) == 1 && end && open_scope(c, label, false))
        c->times *= n;
}

static void at_branch(struct count *c, const char *label, const char *note)
{
    unsigned taken, of;
    int end = 0;
    if (close_scope(c, label, false))
        return;
    if (sscanf(note, "// %u of %u times%n", &taken, &of, &end) == 2 && end && taken < of && open_scope(c, label, true))
        c->times *= (double)(of - taken) / of;
}

// Takes a line of the text. A label stands at the beginning of a line without indentation. Each instruction has a line
// of its own, which is indented; lines that begin with a directive, a comment or a brace are none.
static void at_line(struct count *c, const char *line)
{
    char label[NAME] = "";
    const char *note = strstr(line, "//"), *branch = strstr(line, " bra ");
    const char *first = line + strspn(line, " ");
    if (!note)
        note = "";
    if (first == line && sscanf(line, "%31[A-Z0-9_]:", label) == 1 && line[strlen(label)] == ':') {
        at_label(c, label, note);
        return;
    }
    if (first == line || strchr("./{}", *first))
        return;
    c->instructions += c->times;
    if (branch && sscanf(branch, " bra %31[A-Z0-9_];", label) == 1)
        at_branch(c, label, note);
}

double ptx_loop_cost(struct str text)
{
    struct count c = {.times = 1};
    char line[256];
    for (size_t at = 0, n; at < text.len; at += n + 1) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        n = end ? (size_t)(end - text.data) - at : text.len - at;
        snprintf(line, sizeof line, "%.*s", (int)MIN(n, sizeof line - 1), text.data + at);
        at_line(&c, line);
    }
    return c.dearest;
}
