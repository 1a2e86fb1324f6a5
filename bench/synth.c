// quern-synth: writes a synthetic model. See synth_model.h.
#include "models/synth_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int print_help(FILE *out, int status)
{
    fprintf(out, "usage: quern-synth PRESET MIX OUT.gguf [--vocab VOCAB.gguf] [--n-vocab N] [--seed N]\n"
                 "Writes a model of a real shape with random weights: for speed and agreement, not for sense.\n"
                 "  MIX        any tensor type (F32, BF16, Q8_0, IQ4_XS, ...), Q4_K_M or Q5_K_M\n"
                 "  --vocab    copy the vocabulary of that file; otherwise one is made up\n"
                 "  --n-vocab  tokens of the made-up vocabulary\n"
                 "  --seed     another model of the same shape (1)\n"
                 "  PRESET    ");
    for (size_t i = 0; synth_preset_name(i); i++)
        fprintf(out, " %s", synth_preset_name(i));
    fprintf(out, "\n");
    return status;
}

static int parse_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || end == text || text[0] == '-' || v > max)
        return -1;
    *out = v;
    return 0;
}

// Takes one option and its value. -1 when it is none of ours, or the value is bad.
static int take_option(struct synth_options *o, const char *name, const char *value)
{
    uint64_t n;
    if (!value)
        return -1;
    if (strcmp(name, "--vocab") == 0) {
        o->vocab = value;
        return 0;
    }
    if (strcmp(name, "--seed") == 0)
        return parse_number(value, UINT64_MAX, &o->seed);
    if (strcmp(name, "--n-vocab") != 0 || parse_number(value, INT32_MAX, &n) != 0 || n == 0)
        return -1;
    o->n_vocab = (int64_t)n;
    return 0;
}

int main(int argc, char **argv)
{
    struct synth_options o = {.seed = 1};
    const char *path = NULL;
    const char **places[] = {&o.preset, &o.mix, &path};
    size_t taken = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help(stdout, E_OK);
        if (argv[i][0] != '-' && taken < COUNT_OF(places)) {
            *places[taken++] = argv[i];
        } else if (argv[i][0] != '-' || take_option(&o, argv[i], argv[i + 1]) != 0) {
            fprintf(stderr, "quern-synth: bad argument: %s\n", argv[i]);
            return print_help(stderr, E_USAGE);
        } else {
            i++;
        }
    }
    if (taken < COUNT_OF(places))
        return print_help(stderr, E_USAGE);
    struct error err;
    if (synth_model_write(&o, path, &err) != 0) {
        fprintf(stderr, "quern-synth: %s\n", err.text);
        return (int)err.code;
    }
    return E_OK;
}
