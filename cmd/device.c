// quern device: what this machine can compute with.
#include "cmd/cpu_name.h"
#include "cmd/load.h"
#include "cmd/terminal.h"
#include "engine/bandwidth.h"

#include <stdio.h>

struct report {
    char cpu[128];
    struct machine_cpu_choice choice;
    struct memory_free memory;
    double bandwidth;  // bytes a second, 0 when not measured
};

static int measure(const struct report *r, double *out, struct error *err)
{
    size_t size = (size_t)MIN((uint64_t)1 << 30, r->memory.bytes / 4) & ~(size_t)0xfffff;
    if (!size)
        return fail(err, E_MEMORY, "less than 4 MiB of memory are free");
    return bandwidth_measure(r->choice.n_threads, size, out, err);
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
    text_print(out, "gpu      none: this build has no GPU machine yet\n");
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
    text_print(out, ", \"gpus\": []}\n");
}

static int device(const struct options *o, struct error *err)
{
    if (o->args.n)
        return fail(err, E_USAGE, "%s: device takes no argument but flags", o->args.at[0]);
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
    if (!status) {
        (o->json ? print_json : print_text)(&r, &out);
        status = out.failed ? fail(err, E_MEMORY, "no memory for a report")
                            : terminal_write_untrusted((struct str){out.data, out.size}, err);
    }
    text_free(&out);
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
