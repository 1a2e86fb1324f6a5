// Fuzz target: any bytes as a file of tasks of choice; the first byte says of which kind. Every text of a task that is
// read lies within the bytes, a part can be drawn, and an error says what is wrong in one clean line.
//
// With -DFUZZ_SEEDS it is a program that writes a sound file of each kind into the directory that it is given.
#include "engine/measure/choice_tasks.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_choice: %s\n", what);
    abort();
}

static void check_error(const struct error *err)
{
    check(err->code == E_USAGE, "an odd error code");
    check(strlen(err->text) > 0 && utf8_valid(str_from(err->text)), "an odd error text");
    for (const char *c = err->text; *c; c++)
        check((unsigned char)*c >= 0x20 && *c != 0x7F, "a control character in an error");
}

static void check_view(struct str view, struct str file)
{
    check(!view.len || (view.data >= file.data && view.data + view.len <= file.data + file.len), "a text outside");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choice_tasks t;
    struct error err = {0};
    if (!size)
        return 0;
    struct str file = {(const char *)data + 1, size - 1};
    if (choice_tasks_read(&t, (enum choice_kind)(data[0] % CHOICE_KINDS), file, &err)) {
        check_error(&err);
        return 0;
    }
    for (int i = 0; i < t.n; i++) {
        check(t.tasks[i].n > 0 && t.tasks[i].n <= CHOICES_MAX, "an odd number of choices");
        check_view(t.tasks[i].head, file);
        check_view(t.tasks[i].tail, file);
        for (int k = 0; k < t.tasks[i].n; k++)
            check_view(t.tasks[i].choices[k], file);
    }
    check(choice_tasks_select(&t, (t.n + 1) / 2, &err) == 0, "no part can be drawn");
    choice_tasks_free(&t);
    return 0;
}

#ifdef FUZZ_SEEDS
int main(int argc, char **argv)
{
    static const struct str seeds[] = {
        STR_LIT("\0a: b\n2\nc\nd\ne\nf\ng\n0\nh\ni\nj\nk\n"),
        STR_LIT("\1"
                "0,a _ b.,c,d,1\n1,\"e, _ f\",g,h,2\n"),
        STR_LIT("\2\1\0\0\0\10\0\0\0\1\0\0\0q\2\0\0\0\1\0\0\0a\1\0\0\0b\1\0\0\0\0\0\0\0\0\0\0\0"),
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(seeds); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        FILE *f = fopen(path, "wb");
        check(f && fwrite(seeds[i].data, 1, seeds[i].len, f) == seeds[i].len && fclose(f) == 0, "no seed is written");
    }
    return 0;
}
#endif
