// quern device: what this machine can compute with.
#include "cmd/device_tune.h"
#include "cmd/load.h"
#include "cmd/terminal/terminal.h"
#include "engine/measure/bandwidth.h"
#include "engine/cpu_name.h"
#include "kernels/cpu.h"
#include "kernels/card.h"

#include <stdio.h>
#include <stdlib.h>

enum { CARDS_MAX = 64 };

struct report {
    char cpu[128];
    struct machine_cpu_choice choice;
    struct memory_free memory;
    double bandwidth;        // bytes per second; 0: not measured
    int n_cards;             // GPUs that are shown; those beyond CARDS_MAX are not
    char no_cards[ERR_TEXT]; // why there is no GPU
    struct shown_card {
        struct card card;
        struct card_speed speed; // 0: not measured
        char fault[ERR_TEXT];    // "": no fault
    } * cards;
};

static int measure(const struct report *r, double *out, struct error *err)
{
    size_t size = (size_t)MIN((uint64_t)1 << 30, r->memory.bytes / 4) & ~(size_t)0xfffff;
    if (!size)
        return fail(err, E_MEMORY, "less than 4 MiB of memory are free");
    return bandwidth_measure(r->choice.n_threads, size, out, err);
}

// Looks for GPUs. Having none is not an error, and is reported in one line; nor is a GPU that does not respond while
// others do.
static int look_for_cards(struct report *r, bool with_speed, struct error *err)
{
    struct error why;
    if (card_count(&r->n_cards, &why)) {
        r->n_cards = 0;
        memcpy(r->no_cards, why.text, sizeof r->no_cards);
        return 0;
    }
    r->n_cards = MIN(r->n_cards, CARDS_MAX);
    r->cards = calloc((size_t)r->n_cards, sizeof *r->cards);
    if (!r->cards)
        return fail(err, E_MEMORY, "no memory for a report");
    for (int i = 0; i < r->n_cards; i++) {
        struct shown_card *c = &r->cards[i];
        if (card_query(i, &c->card, &why) || (with_speed && card_measure(i, &c->speed, &why)))
            memcpy(c->fault, why.text, sizeof c->fault);
    }
    return 0;
}

static void print_card(const struct shown_card *c, int i, struct text *out)
{
    const struct card *card = &c->card;
    char free_bytes[24], total[24];
    if (!card->name[0]) {
        text_print(out, "gpu:%d    %s\n", i, c->fault);
        return;
    }
    memory_format(card->free, free_bytes);
    memory_format(card->total, total);
    text_print(out, "gpu:%d    %s, compute capability %d.%d, %d multiprocessors\n", i, card->name, card->major,
               card->minor, card->n_sm);
    text_print(out, "memory   %s free of %s\n", free_bytes, total);
    text_print(out, "driver   CUDA %d.%d%s%s\n", card->driver / 1000, card->driver % 1000 / 10,
               card->link[0] ? ", link " : "", card->link);
    if (card->tier)
        text_print(out, "kernels  those of sm_%d\n", card->tier);
    else
        text_print(out, "kernels  none: compute capability 7.5 is the least\n");
    if (c->speed.copy > 0)
        text_print(out, "copy     %.1f GB/s within the card, %.1f GB/s to it\n", c->speed.copy / 1e9,
                   c->speed.upload / 1e9);
    else if (c->fault[0])
        text_print(out, "copy     %s\n", c->fault);
}

static void print_text(const struct report *r, struct text *out)
{
    char free_bytes[24], total[24];
    memory_format(r->memory.bytes, free_bytes);
    memory_format(r->memory.total, total);
    text_print(out, "cpu      %s\n", r->cpu);
    text_print(out, "isa     ");
    for (int i = 0; machine_cpu_isa(i); i++)
        text_print(out, strcmp(machine_cpu_isa(i), r->choice.isa) ? " %s" : " [%s]", machine_cpu_isa(i));
    text_print(out, "\nthreads  %d (%s)\n", r->choice.n_threads, r->choice.why);
    text_print(out, "memory   %s free of %s (%s)\n", free_bytes, total, r->memory.limit);
    if (r->bandwidth > 0)
        text_print(out, "read     %.1f GB/s with %d threads\n", r->bandwidth / 1e9, r->choice.n_threads);
    for (int i = 0; i < r->n_cards; i++)
        print_card(&r->cards[i], i, out);
    if (!r->n_cards)
        text_print(out, "gpu      none: %s\n", r->no_cards);
}

static void print_json_card(const struct shown_card *c, struct text *out)
{
    const struct card *card = &c->card;
    text_print(out, "{\"name\": ");
    terminal_print_json(out, str_from(card->name));
    text_print(out,
               ", \"compute_capability\": \"%d.%d\", \"multiprocessors\": %d, \"memory_total\": %zu, \"memory_free\": "
               "%zu, \"driver\": \"%d.%d\", \"tier\": %d, \"link\": ",
               card->major, card->minor, card->n_sm, card->total, card->free, card->driver / 1000,
               card->driver % 1000 / 10, card->tier);
    terminal_print_json(out, str_from(card->link));
    if (c->speed.copy > 0)
        text_print(out, ", \"copy_bytes_per_second\": %.0f, \"upload_bytes_per_second\": %.0f", c->speed.copy,
                   c->speed.upload);
    if (c->fault[0]) {
        text_print(out, ", \"error\": ");
        terminal_print_json(out, str_from(c->fault));
    }
    text_print(out, "}");
}

static void print_json_cards(const struct report *r, struct text *out)
{
    text_print(out, ", \"gpus\": [");
    for (int i = 0; i < r->n_cards; i++) {
        text_print(out, i ? ", " : "");
        print_json_card(&r->cards[i], out);
    }
    text_print(out, "]");
    if (r->n_cards)
        return;
    text_print(out, ", \"no_gpu\": ");
    terminal_print_json(out, str_from(r->no_cards));
}

static void print_json(const struct report *r, struct text *out)
{
    text_print(out, "{\"cpu\": ");
    terminal_print_json(out, str_from(r->cpu));
    text_print(out, ", \"isa\": [");
    for (int i = 0; machine_cpu_isa(i); i++)
        text_print(out, "%s\"%s\"", i ? ", " : "", machine_cpu_isa(i));
    text_print(out, "], \"isa_chosen\": \"%s\", \"threads\": %d, \"threads_why\": ", r->choice.isa,
               r->choice.n_threads);
    terminal_print_json(out, str_from(r->choice.why));
    text_print(out, ", \"cpus_allowed\": %d, \"cores\": %d, \"cpu_quota\": ", r->choice.allowed, r->choice.cores);
    text_print(out, r->choice.quota > 0 ? "%g" : "null", r->choice.quota);
    text_print(out, ", \"memory_total\": %llu, \"memory_free\": %llu, \"memory_limit\": \"%s\"",
               (unsigned long long)r->memory.total, (unsigned long long)r->memory.bytes, r->memory.limit);
    if (r->bandwidth > 0)
        text_print(out, ", \"read_bytes_per_second\": %.0f", r->bandwidth);
    print_json_cards(r, out);
    text_print(out, "}\n");
}

static int device(const struct options *o, struct error *err)
{
    if (o->args.n)
        return fail(err, E_USAGE, "%s: device takes no argument but flags", o->args.at[0]);
    if (o->tune && (o->json || o->measure))
        return fail(err, E_USAGE, "--tune takes neither --json nor --measure");
    if (o->tune)
        return device_tune(o, err);
    struct machine *m;
    struct machine_options options = load_machine_options(o);
    if (machine_open_cpu(&m, &options, err))
        return -1;
    struct report r = {0};
    struct text out = {0};
    cpu_name(r.cpu, sizeof r.cpu);
    machine_cpu_choice(m, &r.choice);
    memory_query("", &r.memory);
    int status = o->measure ? measure(&r, &r.bandwidth, err) : 0;
    status = status ? status : look_for_cards(&r, o->measure, err);
    if (!status) {
        (o->json ? print_json : print_text)(&r, &out);
        status = out.failed ? fail(err, E_MEMORY, "no memory for a report")
                            : (o->json ? terminal_write_json
                                       : terminal_write_untrusted)((struct str){out.data, out.size}, err);
    }
    text_free(&out);
    free(r.cards);
    m->v->close(m);
    return status;
}

int cmd_device(int argc, char **argv)
{
    struct error err = {0};
    struct options o;
    if (options_parse(&o, VERB_DEVICE, argc, argv, &err))
        return verb_fail(&err);
    int status = device(&o, &err);
    options_free(&o);
    return status ? verb_fail(&err) : E_OK;
}
