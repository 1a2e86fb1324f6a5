// Draws results: sparklines and a roofline diagram in characters, and the roofline diagram as SVG.
//
// Roofline (Williams, Waterman, Patterson, 2009): the horizontal axis is the number of products per byte that a test
// must read, the vertical axis products per second. A test cannot lie above the roof, which rises with the memory
// bandwidth until it reaches the multiply peak.
#include "kernels/cpu.h"
#include "cmd/bench/bench.h"
#include "engine/file_replace.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

// --- sparklines ---

enum { DEPTH_TITLE = 60, DEPTH_LIST = 40 }; // columns of a title and of a list of depths

static bool same_but_depth(const struct bench_row *a, const struct bench_row *b)
{
    return !strcmp(a->type, b->type) && !strcmp(a->path, b->path) && a->n_threads == b->n_threads &&
           a->n_ubatch == b->n_ubatch && a->kv_type[0] == b->kv_type[0] && a->kv_type[1] == b->kv_type[1] &&
           a->test.n_prompt == b->test.n_prompt && a->test.n_gen == b->test.n_gen && a->test.n_seqs == b->test.n_seqs;
}

static bool is_first_of_kind(const struct bench_row *rows, int i)
{
    for (int j = 0; j < i; j++)
        if (same_but_depth(&rows[j], &rows[i]))
            return false;
    return true;
}

// Prints the depths behind a line of bars: all of them where they fit into so many columns, else the first and last.
static void print_depth_list(const struct bench_row *rows, int n, int first, int room, struct text *out)
{
    struct text list = {0};
    int last = first;
    for (int i = first; i < n; i++)
        if (same_but_depth(&rows[i], &rows[first])) {
            text_print(&list, " %d", rows[i].test.n_depth);
            last = i;
        }
    if (!list.failed && (int)list.size <= room)
        text_append(out, (struct str){list.data, list.size});
    else
        text_print(out, " %d-%d", rows[first].test.n_depth, rows[last].test.n_depth);
    text_free(&list);
}

static void print_sparkline(const struct bench_row *rows, int n, int first, struct text *out)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct bench_row at_none = rows[first];
    char name[BENCH_NAME + 64];
    double most = 0, last = 0;
    for (int i = first; i < n; i++)
        if (same_but_depth(&rows[i], &rows[first]))
            most = fmax(most, samples_mean(rows[i].ts, rows[i].n));
    at_none.test.n_depth = 0;
    bench_name_and_test(&at_none, DEPTH_TITLE, name);
    text_print(out, "\n%s by depth\n  ", name);
    for (int i = first; i < n; i++)
        if (same_but_depth(&rows[i], &rows[first])) {
            last = samples_mean(rows[i].ts, rows[i].n);
            text_print(out, "%s", bars[(int)fmin(7, floor(8 * last / most))]);
        }
    if (last < most)
        text_print(out, "\n  %.2f down to %.2f t/s at", most, last);
    else
        text_print(out, "\n  %.2f t/s at the greatest depth, the most of all, at", last);
    print_depth_list(rows, n, first, DEPTH_LIST, out);
}

void bench_print_depths(const struct bench_row *rows, int n, struct text *out)
{
    bool any = false;
    for (int i = 0; i < n; i++) {
        int alike = 0;
        for (int j = i; j < n; j++)
            alike += same_but_depth(&rows[j], &rows[i]);
        if (alike < 2 || !is_first_of_kind(rows, i))
            continue;
        print_sparkline(rows, n, i, out);
        any = true;
    }
    text_print(out, any ? "\n" : "");
}

// --- the diagram: both axes are logarithmic ---

struct plane {
    double x0, x1, y0, y1;    // limits of the axes, in decades
    double read, multiply;    // the roof
    double lower[UNIT_COUNT]; // the peaks of the units that rows use; 0 for other units
};

static double intensity(const struct bench_row *r)
{
    return r->bytes > 0 ? r->products / r->bytes : 0;
}

static double roof_at(const struct plane *p, double x)
{
    return fmin(p->read * x, p->multiply);
}

static bool is_used(const struct bench_ceilings *c, enum cpu_unit unit, const struct bench_row *rows, int n)
{
    bool used = !rows;
    for (int i = 0; rows && i < n; i++)
        used |= rows[i].unit == unit && intensity(&rows[i]) > 0;
    return used && c->multiply[unit] > 0;
}

void bench_print_units(const struct bench_ceilings *c, const struct bench_row *rows, int n, const char *before,
                       const char *after, struct text *out)
{
    for (int u = 0; u < UNIT_COUNT; u++)
        if (is_used(c, u, rows, n))
            text_print(out, "%s%.0f GMAC/s of %s%s", before, c->multiply[u] / 1e9, c->unit[u], after);
}

// Sets up the axes. False if there are no ceilings to compare the rows with.
static bool plane_of(struct plane *p, const struct bench_row *rows, int n, const struct bench_ceilings *c)
{
    double least = INFINITY, most = 0, lowest = INFINITY;
    *p = (struct plane){.read = c->read};
    for (int u = 0; u < UNIT_COUNT; u++) {
        p->lower[u] = is_used(c, u, rows, n) ? c->multiply[u] : 0;
        p->multiply = fmax(p->multiply, p->lower[u]);
    }
    for (int i = 0; i < n; i++) {
        if (intensity(&rows[i]) <= 0)
            continue;
        least = fmin(least, intensity(&rows[i]));
        most = fmax(most, intensity(&rows[i]));
        lowest = fmin(lowest, rows[i].products);
    }
    if (!(most > 0) || p->read <= 0 || p->multiply <= 0)
        return false;
    double ridge = p->multiply / p->read;
    p->x0 = floor(log10(fmin(least, ridge / 10)));
    p->x1 = ceil(log10(fmax(most, ridge * 10)));
    p->y0 = floor(log10(fmin(lowest, roof_at(p, pow(10, p->x0)))));
    p->y1 = ceil(log10(p->multiply));
    return true;
}

// The position of a value between two decades, from 0 to 1.
static double along(double value, double from, double to)
{
    return fmax(0, fmin(1, (log10(value) - from) / (to - from)));
}

// --- in characters ---

enum { WIDTH = 62, HEIGHT = 18, POINT_NAME = 43 }; // with the names of its axes 80 columns wide

static void draw_at(const struct plane *p, char cells[HEIGHT][WIDTH], int x, double value, char what)
{
    int y = (int)lround((HEIGHT - 1) * along(value, p->y0, p->y1));
    cells[HEIGHT - 1 - y][x] = what;
}

// Draws the slope of the memory bandwidth up to the highest peak, and each unit's own peak where the slope lies above
// it.
static void draw_roof(const struct plane *p, char cells[HEIGHT][WIDTH])
{
    for (int x = 0; x < WIDTH; x++) {
        double by_memory = p->read * pow(10, p->x0 + (p->x1 - p->x0) * x / (WIDTH - 1));
        if (by_memory < p->multiply)
            draw_at(p, cells, x, by_memory, '/');
        for (int u = 0; u < UNIT_COUNT; u++)
            if (p->lower[u] > 0 && p->lower[u] <= by_memory)
                draw_at(p, cells, x, p->lower[u], '-');
    }
}

void bench_print_roofline(const struct bench_row *rows, int n, const struct bench_ceilings *c, struct text *out)
{
    struct plane p;
    char cells[HEIGHT][WIDTH];
    if (!plane_of(&p, rows, n, c))
        return;
    memset(cells, ' ', sizeof cells);
    draw_roof(&p, cells);
    for (int i = 0; i < n && i < 26; i++) {
        int x = (int)lround((WIDTH - 1) * along(intensity(&rows[i]), p.x0, p.x1));
        int y = (int)lround((HEIGHT - 1) * along(rows[i].products, p.y0, p.y1));
        cells[HEIGHT - 1 - y][x] = (char)('a' + i);
    }
    text_print(out, "\nroofline: GMAC/s by products a byte, on logarithmic axes\n  %.1f GB/s\n", p.read / 1e9);
    bench_print_units(c, rows, n, "  ", "\n", out);
    for (int y = 0; y < HEIGHT; y++) {
        if (y == 0 || y == HEIGHT - 1)
            text_print(out, "%8.3g GMAC/s │", pow(10, y == 0 ? p.y1 : p.y0) / 1e9);
        else
            text_print(out, "%16s│", "");
        for (int x = 0; x < WIDTH; x++) {
            char at = cells[y][x];
            text_print(out, "%s", at == '/' ? "╱" : at == '-' ? "─" : (char[2]){at, 0});
        }
        text_print(out, "\n");
    }
    text_print(out, "                └");
    for (int x = 0; x < WIDTH; x++)
        text_print(out, "─");
    text_print(out, "\n%17s%-8.3g%*.3g\n", "", pow(10, p.x0), WIDTH - 8, pow(10, p.x1));
    for (int i = 0; i < n && i < 26; i++) {
        char name[BENCH_NAME + 64];
        bench_name_and_test(&rows[i], POINT_NAME, name);
        double roof = fmin(p.read * intensity(&rows[i]), p.lower[rows[i].unit]);
        text_print(out, "  %c  ", 'a' + i);
        bench_print_padded(name, POINT_NAME, false, out);
        text_print(out, " %3.0f%% of the roof, %s\n", 100 * rows[i].products / roof, rows[i].unit_name);
    }
}

// --- as SVG ---

enum { SVG_WIDTH = 900, SVG_HEIGHT = 560, LEFT = 90, RIGHT = 870, TOP = 40, BOTTOM = 480 };

static double svg_x(const struct plane *p, double x)
{
    return LEFT + (RIGHT - LEFT) * along(x, p->x0, p->x1);
}

static double svg_y(const struct plane *p, double y)
{
    return BOTTOM - (BOTTOM - TOP) * along(y, p->y0, p->y1);
}

static void svg_text(struct text *out, double x, double y, const char *anchor, const char *words)
{
    text_print(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    for (const char *p = words; *p; p++)
        text_print(out, *p == '<' ? "&lt;" : *p == '&' ? "&amp;" : "%c", *p);
    text_print(out, "</text>\n");
}

static void svg_axes(const struct plane *p, struct text *out)
{
    char words[48];
    for (int d = (int)p->x0; d <= p->x1; d++) {
        double x = svg_x(p, pow(10, d));
        text_print(out, "<path class=\"grid\" d=\"M%.1f %d V%d\"/>\n", x, TOP, BOTTOM);
        snprintf(words, sizeof words, "%g", pow(10, d));
        svg_text(out, x, BOTTOM + 18, "middle", words);
    }
    for (int d = (int)p->y0; d <= p->y1; d++) {
        double y = svg_y(p, pow(10, d));
        text_print(out, "<path class=\"grid\" d=\"M%d %.1f H%d\"/>\n", LEFT, y, RIGHT);
        snprintf(words, sizeof words, "%g", pow(10, d - 9));
        svg_text(out, LEFT - 8, y + 4, "end", words);
    }
    svg_text(out, (LEFT + RIGHT) / 2.0, BOTTOM + 44, "middle", "products for each byte that must be read");
    svg_text(out, LEFT, TOP - 14, "middle", "GMAC/s");
}

static void svg_roof(const struct plane *p, const struct bench_ceilings *c, struct text *out)
{
    char words[96];
    double from = pow(10, p->x0), to = pow(10, p->x1);
    text_print(out, "<path class=\"roof\" d=\"M%.1f %.1f L%.1f %.1f\"/>\n", svg_x(p, from), svg_y(p, roof_at(p, from)),
               svg_x(p, p->multiply / p->read), svg_y(p, p->multiply));
    snprintf(words, sizeof words, "%.1f GB/s read", p->read / 1e9);
    svg_text(out, svg_x(p, from) + 12, svg_y(p, roof_at(p, from)) - 8, "start", words);
    for (int u = 0; u < UNIT_COUNT; u++) {
        if (!(p->lower[u] > 0))
            continue;
        text_print(out, "<path class=\"roof\" d=\"M%.1f %.1f H%.1f\"/>\n", svg_x(p, p->lower[u] / p->read),
                   svg_y(p, p->lower[u]), svg_x(p, to));
        snprintf(words, sizeof words, "%.0f GMAC/s, %s", p->lower[u] / 1e9, c->unit[u]);
        svg_text(out, RIGHT, svg_y(p, p->lower[u]) - 8, "end", words);
    }
}

static void svg_points(const struct plane *p, const struct bench_row *rows, int n, struct text *out)
{
    for (int i = 0; i < n; i++) {
        char label[64], words[192];
        if (intensity(&rows[i]) <= 0)
            continue;
        double x = svg_x(p, intensity(&rows[i])), y = svg_y(p, rows[i].products);
        bench_label(&rows[i].test, label);
        snprintf(words, sizeof words, "%s %s: %.1f t/s", rows[i].type, label, samples_mean(rows[i].ts, rows[i].n));
        text_print(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", x, y);
        svg_text(out, x + (x > (LEFT + RIGHT) / 2.0 ? -9 : 9), y + 4, x > (LEFT + RIGHT) / 2.0 ? "end" : "start",
                 words);
    }
}

static int write_picture(const char *path, struct str picture, struct error *err)
{
    struct file_replace f;
    if (file_replace_output(&f, path, err))
        return -1;
    if (!file_replace_write(&f, picture.data, picture.len, err))
        return file_replace_end(&f, err);
    file_replace_abort(&f);
    return -1;
}

int bench_plot(const char *path, const struct bench_row *rows, int n, const struct bench_ceilings *c, struct error *err)
{
    struct plane p;
    struct text out = {0};
    if (!plane_of(&p, rows, n, c))
        return fail(err, E_USAGE, "--plot: there are no ceilings to draw a roof from; leave out --no-ceilings");
    text_print(&out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n<style>text { font: 13px "
               "sans-serif; fill: #222 } .grid { stroke: #ddd } .roof { stroke: #222; stroke-width: 2; fill: none } "
               "circle { fill: #c33 }</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
               SVG_WIDTH, SVG_HEIGHT);
    svg_axes(&p, &out);
    svg_roof(&p, c, &out);
    svg_points(&p, rows, n, &out);
    text_print(&out, "</svg>\n");
    int status = out.failed ? fail(err, E_MEMORY, "no memory for a picture")
                            : write_picture(path, (struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}
