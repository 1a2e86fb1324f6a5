// Measures kernels on a GPU; see device_tune.h.
#include "cmd/device_tune.h"
#include "cmd/load.h"
#include "cmd/terminal/terminal.h"
#include "kernels/card.h"

static const char head[] = "weights      in    out  x     rows  by         us  the others that were measured\n";
static const char legend[] = "by: rows of x that a thread block multiplies; us: the time of the product\n"
                             "step: a whole step of one row, by the variant of its kernels (docs/gpu.md)\n";

static void print_choice(const struct card_choice *c, struct text *out)
{
    const char *comma = "  ";
    if (strcmp(c->type, "step"))
        text_print(out, "%-8s %6u %6u  %-4s", c->type, c->n_in, c->n_out, c->form);
    else
        text_print(out, "%-28s", c->type);
    text_print(out, " %5u %3u %10.1f", c->rows, c->class, c->us);
    for (int i = 0; i < c->n_tried; i++)
        if (c->tried[i].class != c->class) {
            text_print(out, "%s%u: %.1f", comma, c->tried[i].class, c->tried[i].us);
            comma = ", ";
        }
    text_print(out, "\n");
}

static void print_choices(const struct machine *m, struct text *out)
{
    struct card_choice c;
    text_print(out, "%s", head);
    for (int i = 0; card_choice(m, i, &c); i++)
        print_choice(&c, out);
    const struct card_tuning t = card_tuning(m);
    text_print(out, "%s%d measured in %.1f s", legend, t.measured, t.seconds);
    if (t.file && !t.fault)
        text_print(out, ", kept in %s", t.file);
    text_print(out, "\n");
    if (t.no_room)
        text_print(out, "%d not measured, because the card has no memory left for it\n", t.unmeasured);
}

// A model whose choices are lost costs its user the same seconds again at every load.
static int check_kept(const struct machine *m, struct error *err)
{
    const struct card_tuning t = card_tuning(m);
    if (!t.file)
        return fail(err, E_IO, "the choices are not kept: neither XDG_CACHE_HOME nor HOME names a folder");
    return t.fault ? fail(err, E_IO, "the choices are not kept in %s: %s", t.file, strerror(t.fault)) : 0;
}

static int print(const struct machine *m, struct error *err)
{
    struct text out = {0};
    print_choices(m, &out);
    int status = out.failed ? fail(err, E_MEMORY, "no memory for a table")
                            : terminal_write_untrusted((struct str){out.data, out.size}, err);
    text_free(&out);
    return status;
}

int device_tune(const struct options *o, struct error *err)
{
    struct options gpu = *o;
    struct loaded l = {0};
    if (gpu.device == DEVICE_CPU || gpu.device == DEVICE_REF)
        return fail(err, E_USAGE, "--tune measures a GPU, not --device %s", gpu.device == DEVICE_CPU ? "cpu" : "ref");
    gpu.device = MAX(gpu.device, (int)DEVICE_GPU);
    int status = load_model(&l, &gpu, err) || load_session(&l, &gpu, 0, -1, err) || print(l.model->machine, err) ||
                         check_kept(l.model->machine, err)
                     ? -1
                     : 0;
    load_close(&l);
    return status;
}
