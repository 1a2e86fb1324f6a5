// Reads the lines of each loop of products from its label to the branch back.
#include "kernels/ptx/loads_ahead.h"

#include <stdio.h>
#include <stdlib.h>

enum { LINE = 256 };

// Copies the line at *text and steps behind it. Returns false behind the last.
static bool next_line(struct str *text, char line[LINE])
{
    if (!text->len)
        return false;
    const char *end = memchr(text->data, '\n', text->len);
    size_t n = end ? (size_t)(end - text->data) : text->len, step = MIN(n + 1, text->len);
    snprintf(line, LINE, "%.*s", (int)MIN(n, LINE - 1), text->data);
    *text = (struct str){text->data + step, text->len - step};
    return true;
}

// The bytes that a load such as ld.global.nc.v4.u32 brings: its vector times the bits of its type.
static int bytes_of(const char *load)
{
    size_t len = strcspn(load, " "), digits = 0;
    const char *vector = memmem(load, len, ".v", 2);
    while (digits < len && load[len - 1 - digits] >= '0' && load[len - 1 - digits] <= '9')
        digits++;
    return (vector ? vector[2] - '0' : 1) * atoi(load + len - digits) / 8;
}

// Whether a stretch ends at the line: at a label, a branch or a barrier.
static bool ends_stretch(const char *line)
{
    return (*line >= 'A' && *line <= 'Z') || strstr(line, " bra ") || strstr(line, " bar.");
}

// Describes the loop whose label is given. The text begins behind the line of the label.
static struct ptx_loads loads_of(struct str text, const char *label)
{
    struct ptx_loads l = {0};
    char line[LINE], back[LINE];
    bool first = true, later = false, copies = false;
    snprintf(back, sizeof back, " bra %.*s;", (int)strcspn(label, ":"), label);
    while (next_line(&text, line) && !strstr(line, back)) {
        const char *load = strstr(line, "[%entry]") ? NULL : strstr(line, "ld.global");
        first = first && !ends_stretch(line);
        l.ahead += load && first ? bytes_of(load) : 0;
        later = later || (load && !first);
        copies = copies || strstr(line, "cp.async");
        l.turns = l.turns || strstr(line, " bar.sync");
    }
    l.ahead = later || copies ? 0 : l.ahead;
    l.turns = l.turns && !copies;
    return l;
}

struct ptx_loads ptx_loads_ahead(struct str text)
{
    struct ptx_loads least = {0};
    char line[LINE];
    for (bool any = false; next_line(&text, line);) {
        unsigned bytes;
        if (sscanf(line, " // a ring of %u bytes", &bytes) == 1)
            least.ring = (int)bytes;
        least.early = least.early || strstr(line, "griddepcontrol.launch_dependents");
        if (!strstr(line, " products a turn"))
            continue;
        struct ptx_loads l = loads_of(text, line);
        if (!any || l.ahead < least.ahead)
            least.ahead = least.ring ? 0 : l.ahead;
        least.turns = least.turns || l.turns;
        any = true;
    }
    return least;
}
