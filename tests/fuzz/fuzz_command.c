// Fuzz target: any words as the arguments of each verb. What is parsed prints its values again, and these values parse
// to the same; what is refused says so in one clean line. Nothing runs.
//
// An input is the number of a verb in its first byte, then the words, each ended by a NUL.
#include "cmd/options.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS_MAX = 64 };

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_command: %s\n", what);
    abort();
}

static void check_error(const struct error *err)
{
    check(err->code == E_USAGE || err->code == E_MEMORY || err->code == E_IO || err->code == E_OK, "an odd error code");
    check(utf8_valid(str_from(err->text)), "an odd error text");
    for (const char *c = err->text; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7F, "a control character in an error");
}

// Each value that was given can be set again.
static void set_again(const struct options *o, unsigned mask)
{
    struct options other;
    struct error err = {0};
    char *argv[] = {(char *)(uintptr_t) "run"};
    if (options_parse(&other, VERB_RUN, 1, argv, &err)) {
        check_error(&err);
        return;
    }
    for (int n = options_next(-1, mask & V_RUN); n >= 0; n = options_next(n, mask & V_RUN)) {
        struct text value = {0};
        if (o->given[n] && options_value(o, (enum option_number)n, 0, &value)) {
            text_append(&value, (struct str){"", 1});
            if (options_set(&other, (enum option_number)n, value.data, &err))
                check_error(&err);
        }
        text_free(&value);
    }
    options_free(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *words = size ? malloc(size) : NULL, *argv[WORDS_MAX + 1] = {0};
    struct options o;
    struct error err = {0};
    int argc = 1;
    if (!words)
        return 0;
    enum verb_number verb = (enum verb_number)(data[0] % VERB_COUNT);
    memcpy(words, data + 1, size - 1);
    words[size - 1] = '\0';
    argv[0] = (char *)(uintptr_t)verbs[verb].name;
    for (char *p = words; argc < WORDS_MAX && p < words + size - 1; p += strlen(p) + 1)
        argv[argc++] = p;
    if (options_parse(&o, verb, argc, argv, &err)) {
        check_error(&err);
    } else {
        set_again(&o, 1u << verb);
        options_free(&o);
    }
    free(words);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    for (int verb = 0; argc > 1 && verb < VERB_COUNT; verb++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%d", argv[1], verb);
        FILE *f = fopen(path, "wb");
        check(f != NULL, "a seed cannot be written");
        fputc(verb, f);
        for (int n = options_next(-1, 1u << verb); n >= 0; n = options_next(n, 1u << verb)) {
            const struct option_info info = options_info((enum option_number)n);
            fprintf(f, "%s%c", info.longer, 0);
            if (info.argument)
                fprintf(f, "%s%c", info.preset ? info.preset : "1.5k", 0);
        }
        check(fclose(f) == 0, "a seed cannot be written");
    }
    return 0;
}
#endif
