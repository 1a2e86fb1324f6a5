// Times tokenizers on one core: bench_tokenize [-r REPEATS] TEXT [MODEL...]
//
// For each model it prints the time to load its vocabulary, and the median, worst and best speed of encoding the text
// in 10^6 bytes per second of CPU time, which other programs disturb little. Without models it prints the speed of each
// pre-tokenizer alone, which splits the text into words.
#include "engine/text/split.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MAX_REPEATS = 1000 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static char *read_text(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long end = f != NULL && fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    char *data = end >= 0 ? malloc((size_t)end + 1) : NULL;
    if (data == NULL || fseek(f, 0, SEEK_SET) != 0 || fread(data, 1, (size_t)end, f) != (size_t)end) {
        fprintf(stderr, "bench_tokenize: %s cannot be read\n", path);
        exit(E_IO);
    }
    fclose(f);
    *size = (size_t)end;
    return data;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_speeds(double *took, int n, size_t bytes)
{
    qsort(took, (size_t)n, sizeof *took, by_value);
    double megabytes = (double)bytes / 1e6;
    printf("  %7.1f MB/s (%.1f to %.1f)", megabytes / took[n / 2], megabytes / took[n - 1], megabytes / took[0]);
}

static int time_model(const char *path, struct str text, int repeats)
{
    double took[MAX_REPEATS], start = seconds();
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct error err = {0};
    int status = gguf_open(&g, path, GGUF_METADATA_ONLY, &err);
    double opened = seconds();
    if (status == 0)
        status = tokenizer_load(&t, g, 0, &err);
    double loaded = seconds();
    for (int i = 0; i < repeats && status == 0; i++) {
        token_list_free(&ids);
        double before = seconds();
        status = tokenizer_encode(t, text, 0, &ids, &err);
        took[i] = seconds() - before;
    }
    if (status == 0) {
        printf("%-44s open %5.1f ms  load %5.1f ms", path, (opened - start) * 1e3, (loaded - opened) * 1e3);
        print_speeds(took, repeats, text.len);
        printf("  %zu tokens\n", ids.n);
    } else {
        fprintf(stderr, "bench_tokenize: %s\n", err.text);
    }
    token_list_free(&ids);
    tokenizer_free(t);
    gguf_close(g);
    return status;
}

static int count_word(void *ctx, const char *word, size_t len)
{
    (void)word;
    (void)len;
    ++*(size_t *)ctx;
    return 0;
}

static void time_splitters(struct str text, int repeats)
{
    static const char *const names[] = {
#define PRE(name, family, flags) name,
#include "engine/text/pretokenizers.def"
#undef PRE
    };
    bool done[SPLIT_FAMILY_COUNT] = {false};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        enum split_family family = pretokenizer_find(str_from(names[i]))->family;
        if (done[family])
            continue;
        done[family] = true;
        double took[MAX_REPEATS];
        size_t words = 0;
        for (int k = 0; k < repeats; k++) {
            double before = seconds();
            words = 0;
            split_text(family, text, count_word, &words);
            took[k] = seconds() - before;
        }
        printf("%-16s", names[i]);
        print_speeds(took, repeats, text.len);
        printf("  %zu words\n", words);
    }
}

int main(int argc, char **argv)
{
    int repeats = 11;
    for (int c; (c = getopt(argc, argv, "r:")) != -1;) {
        repeats = c == 'r' ? atoi(optarg) : 0;
        if (repeats < 1 || repeats > MAX_REPEATS) {
            fprintf(stderr, "usage: bench_tokenize [-r REPEATS] TEXT [MODEL...]\n");
            return E_USAGE;
        }
    }
    if (optind >= argc) {
        fprintf(stderr, "usage: bench_tokenize [-r REPEATS] TEXT [MODEL...]\n");
        return E_USAGE;
    }
    size_t size;
    char *data = read_text(argv[optind], &size);
    struct str text = {data, size};
    int status = 0;
    if (optind + 1 == argc)
        time_splitters(text, repeats);
    for (int i = optind + 1; i < argc; i++)
        status |= time_model(argv[i], text, repeats);
    free(data);
    return status != 0 ? E_MODEL : E_OK;
}
