// Prints the tables that ptx_stats.h describes. Launches that are alike share a line.
#include "cmd/ptx_stats.h"
#include "cmd/ptxas.h"
#include "kernels/card.h"
#include "kernels/card_time.h"

#include <stdlib.h>

struct stats {
    const struct machine *card;
    const struct plan *plan;
    char assembler[4096]; // its path; "" if there is none
    int arch, n_kernels;
    struct ptxas_facts *facts; // [n_kernels]; with an assembler
    struct text *out;
};

// ---- the kernels

static int count_in(struct str text, char c)
{
    int n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += text.data[i] == c;
    return n;
}

// The entry name of a kernel in its PTX text.
static struct str entry_of(struct str text)
{
    static const char word[] = ".entry ";
    const char *p = memmem(text.data, text.len, word, sizeof word - 1);
    if (!p)
        return STR_LIT("?");
    p += sizeof word - 1;
    size_t n = 0, left = (size_t)(text.data + text.len - p);
    while (n < left && p[n] != '(' && p[n] != '\n' && p[n] != ' ')
        n++;
    return (struct str){p, n};
}

// Prints a number that is known if it is more than 0.
static void print_known(struct text *out, int width, int digits, double x)
{
    if (x > 0)
        text_print(out, " %*.*f", width, digits, x);
    else
        text_print(out, " %*s", width, "-");
}

static struct card_use use_of(const struct card_kernel *k, const struct ptxas_facts *f)
{
    return (struct card_use){
        .threads = (int)k->threads, .registers = f->registers, .shared = f->shared + (int)k->shared};
}

static void print_kernel(const struct stats *s, int i, const struct card_kernel *k)
{
    struct str name = entry_of(k->text);
    text_print(s->out, "%-24.*s %8d %7u %8zu %6d", STR_ARG(name), k->users, k->threads, k->text.len,
               count_in(k->text, '\n'));
    print_known(s->out, 8, 3, k->per_product);
    if (s->facts) {
        const struct ptxas_facts *f = &s->facts[i];
        struct card_use use = use_of(k, f);
        int ctas = card_resident(&use);
        text_print(s->out, " %9d %7d %6d %4d %5d", f->registers, use.shared, f->spills, ctas,
                   ctas * ((use.threads + 31) / 32));
    }
    text_print(s->out, "\n");
}

static void print_kernels(const struct stats *s)
{
    struct card_kernel k;
    long bytes = 0;
    text_print(s->out, "%-24s %8s %7s %8s %6s %8s", "kernel", "launches", "threads", "bytes", "lines", "a weight");
    text_print(s->out, s->facts ? " %9s %7s %6s %4s %5s\n" : "\n", "registers", "shared", "spills", "CTAs", "warps");
    for (int i = 0; card_kernel(s->card, i, &k); i++, bytes += (long)k.text.len)
        print_kernel(s, i, &k);
    text_print(s->out, "%d kernels, %ld bytes of PTX", s->n_kernels, bytes);
    text_print(s->out, s->facts ? ", assembled by %s for sm_%d\n" : "; ptxas is not installed: no registers are told\n",
               s->assembler, s->arch);
    text_print(s->out,
               "a weight: instructions of PTX that a thread executes for a weight times a row of activations, in the"
               " kernel's dearest loop of products; -: it has none\n");
    if (s->facts)
        text_print(s->out, "CTAs, warps: what fits on a multiprocessor at the same time\n");
}

static int assemble(struct stats *s, struct error *err)
{
    struct card_kernel k;
    if (!s->assembler[0])
        return 0;
    if (!(s->facts = calloc((size_t)s->n_kernels + 1, sizeof *s->facts)))
        return fail(err, E_MEMORY, "no memory for %d kernels", s->n_kernels);
    for (int i = 0; card_kernel(s->card, i, &k); i++)
        if (ptxas_run(s->assembler, k.text, s->arch, &s->facts[i], err))
            return -1;
    return 0;
}

// ---- the launches of a step

// Launches that are alike.
struct alike {
    struct card_launch launch;
    struct card_time time;
    int n;
    bool beside; // the launch before lets them begin before it ends
};

static int predict(const struct stats *s, struct alike *a, struct error *err)
{
    const struct card_launch *l = &a->launch;
    struct card_kernel k;
    const int used = l->whole < 0 ? l->kernel : l->whole;
    card_kernel(s->card, used, &k);
    const struct card_use use = use_of(&k, &s->facts[used]);
    card_kernel(s->card, l->kernel, &k);
    struct card_work work = {.use = use,
                             .ctas = l->ctas,
                             .most_ctas = l->most_ctas,
                             .bytes = l->weight_bytes,
                             .ahead = k.ahead,
                             .turns = k.turns,
                             .ring = k.ring,
                             .early = k.early && a->beside,
                             .stays = l->whole >= 0 && !l->begins,
                             .instructions = k.per_product * l->products};
    return card_predict(&work, &a->time, err) ? fail_prefix(err, k.name) : 0;
}

// Kernels without weights that differ only in their constants, such as a layer's place in the cache, count as alike.
static bool are_alike(const struct stats *s, const struct card_launch *a, const struct card_launch *b)
{
    struct card_kernel k, m;
    if (a->ctas != b->ctas || a->weight_bytes != b->weight_bytes || a->whole != b->whole || a->begins != b->begins)
        return false;
    if (a->weight_bytes > 0 || a->kernel == b->kernel)
        return a->kernel == b->kernel;
    return card_kernel(s->card, a->kernel, &k) && card_kernel(s->card, b->kernel, &m) && !strcmp(k.name, m.name);
}

// Whether the launch after this one may begin beside it.
static bool lets_begin(const struct stats *s, const struct card_launch *l)
{
    struct card_kernel k;
    return card_kernel(s->card, l->kernel, &k) && k.early;
}

// Finds the launches of a step, of many rows only those with products. Returns how many differ, or -1.
static int find_launches(const struct stats *s, int n_rows, struct alike **out, struct error *err)
{
    struct card_launch l;
    int n = 0, most = 0;
    while (card_launch(s->plan, n_rows, most, &l))
        most++;
    struct alike *all = *out = calloc((size_t)most + 1, sizeof *all);
    if (!all)
        return fail(err, E_MEMORY, "no memory for %d launches", most);
    bool beside = false;
    for (int i = 0, j; card_launch(s->plan, n_rows, i, &l); i++) {
        if (l.kernel < 0 || (n_rows > 1 && !(l.products > 0)))
            continue;
        for (j = 0; j < n && (all[j].beside != beside || !are_alike(s, &all[j].launch, &l)); j++)
            ;
        n = MAX(n, j + 1);
        all[j] = (struct alike){.launch = all[j].n ? all[j].launch : l, .n = all[j].n + 1, .beside = beside};
        beside = lets_begin(s, &l);
    }
    return n;
}

static void print_launch(const struct stats *s, const struct alike *a)
{
    struct card_kernel k;
    card_kernel(s->card, a->launch.kernel, &k);
    struct str name = entry_of(k.text);
    const struct card_time *t = &a->time;
    text_print(s->out, "%-24.*s %8d %7.0f %4.0f %8.2f", STR_ARG(name), a->n, a->launch.ctas, t->multiprocessors,
               a->launch.weight_bytes * 1e-6);
    print_known(s->out, 9, 1, t->in_flight / 1024);
    text_print(s->out, " %9.1f %9.1f %9.1f %9.1f\n", t->memory * 1e6, t->issue * 1e6, t->whole * 1e6,
               a->n * t->whole * 1e6);
}

// What a step takes by its launches, some of which may be steps of a kernel that stays on the card. For a step of many rows
// the products alone are known.
static void print_sum(const struct stats *s, int n_rows, int launches, int steps, double seconds)
{
    if (steps)
        text_print(s->out, "%d steps without a launch, with a barrier of 1.2 us that was not measured; ", steps);
    text_print(s->out, "%s%d launches, %.0f us: %.0f tokens/s\n", n_rows == 1 ? "" : "products alone: ", launches,
               seconds * 1e6, n_rows / seconds);
}

static int print_step(const struct stats *s, int n_rows, struct error *err)
{
    struct alike *all;
    int n = find_launches(s, n_rows, &all, err), launches = 0, steps = 0, status = n < 0 ? -1 : 0;
    double seconds = 0;
    text_print(s->out, "\na step of %d row%s on an H200, as predicted from these counts\n%-24s %8s %7s %4s %8s", n_rows,
               n_rows == 1 ? "" : "s", "kernel", "launches", "CTAs", "on", "MB");
    text_print(s->out, " %9s %9s %9s %9s %9s\n", "in flight", "memory", "issue", "us", "us in all");
    for (int i = 0; !status && i < n; i++) {
        if ((status = predict(s, &all[i], err)))
            break;
        print_launch(s, &all[i]);
        seconds += all[i].n * all[i].time.whole;
        const struct card_launch *l = &all[i].launch;
        *(l->whole >= 0 && !l->begins ? &steps : &launches) += all[i].n;
    }
    if (!status && launches)
        print_sum(s, n_rows, launches, steps, seconds);
    free(all);
    return status;
}

static const char legend[] =
    "CTAs: pieces of work; on: multiprocessors that have some; MB: of weights; in flight: KiB that a multiprocessor can"
    " have requested at once; memory, issue: us of reading and of instructions; us: with the start of a launch. Launches"
    " without weights, such as attention, count as their start alone. kernels/card_time.h describes the model,"
    " bench/results/ptx.md how far it was off.\n";

int ptx_stats_print(const struct machine *card, const struct plan *p, int arch, int n_rows, struct text *out,
                    struct error *err)
{
    struct stats s = {.card = card, .plan = p, .arch = arch, .out = out};
    struct card_kernel k;
    while (card_kernel(card, s.n_kernels, &k))
        s.n_kernels++;
    if (!ptxas_find(s.assembler))
        s.assembler[0] = 0;
    int status = assemble(&s, err);
    if (!status)
        print_kernels(&s);
    if (!status && s.facts)
        status = print_step(&s, 1, err) || (n_rows > 1 && print_step(&s, n_rows, err)) ? -1 : 0;
    if (!status && s.facts)
        text_print(out, "%s", legend);
    free(s.facts);
    return status;
}
