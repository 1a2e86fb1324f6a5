// quern-kernels: checks the kernels of each ISA level, and compares their speed with the machine's ceilings.
//
// Every operation of a level, for each type or kind, is compared with ref.c, and bit for bit with the scalar level.
// Inputs end at a guard page, and the gaps between outputs are poisoned. With --check it does only that, with odd
// shapes.
//
// Each speed is printed beside its ceiling: the bytes that one thread can read or copy, or the products that it can
// compute when it does nothing else. Ceiling and kernel are timed alternately and medians are printed, because the
// speed of a shared machine changes from second to second. Times are CPU times of the thread, so the time that other
// programs take is left out.
#include "bench/kernel_cases.h"
#include "kernels/cpu.h"
#include "kernels/cpu/ceilings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS_MAX = 101, ENOUGH_REPEATS = 3 };
// The least seconds of a sample; the seconds after which a case with ENOUGH_REPEATS samples is done.
static const double TURN_SECONDS = 1e-3, ENOUGH_SECONDS = 3;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
    return values[n / 2];
}

// ---- numbers and memory

uint64_t noise_u64(struct noise *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

float noise_normal(struct noise *r)
{
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (float)(noise_u64(r) >> 40) * 0x1p-24f;
    return sum;
}

void *must(void *p)
{
    if (!p) {
        fprintf(stderr, "quern-kernels: out of memory\n");
        exit(E_MEMORY);
    }
    return p;
}

struct room room_new(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = align_up(size, page) + page;
    struct room r = {.size = size, .mapped = whole + page};
    r.base = mmap(NULL, r.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(r.base == MAP_FAILED || mprotect((uint8_t *)r.base + whole, page, PROT_NONE) != 0 ? NULL : r.base);
    memset(r.base, POISON, whole);
    r.data = (uint8_t *)r.base + whole - size;
    return r;
}

struct room room_of_noise(struct noise *r, int64_t n)
{
    struct room x = room_new((size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        room_floats(&x)[i] = noise_normal(r);
    return x;
}

// Makes a random block whose largest magnitude is between 1e-3 and 1e3.
static void random_block(struct noise *r, enum dtype type, uint8_t *block)
{
    const struct dtype_info *info = &dtype_info[type];
    float x[256], most;
    do {
        for (int i = 0; i < info->bytes; i++)
            block[i] = (uint8_t)(noise_u64(r) >> 32);
        dtype_decode[type](block, x, info->block);
        most = 0;
        for (int i = 0; i < info->block; i++)
            most = isfinite(x[i]) ? MAX(most, fabsf(x[i])) : INFINITY;
    } while (!(most > 1e-3f && most < 1e3f));
}

// Repeats the same thousand random blocks.
struct room room_of_blocks(enum dtype type, size_t size)
{
    struct noise r = {SEED};
    struct room w = room_new(size);
    size_t bytes = (size_t)dtype_info[type].bytes, own = MIN(1000 * bytes, size / bytes * bytes);
    for (size_t i = 0; i < own; i += bytes)
        random_block(&r, type, w.data + i);
    for (size_t at = own; at < size; at += own)
        memcpy(w.data + at, w.data, MIN(own, size - at));
    return w;
}

void room_free(struct room *r)
{
    if (r->base)
        munmap(r->base, r->mapped);
    *r = (struct room){0};
}

// ---- ceilings

// Bytes are read in pieces of four cache lines, from 1 or 16 rows alternately. They are prefetched `ahead` bytes before
// they are read; past the end of a row, the start of the row that is read after it is prefetched.
enum { PIECE = 256, STREAM_ROW = 16 * PIECE };

static uint64_t read_piece(const uint8_t *p)
{
    uint64_t words[PIECE / 8], sum = 0;
    memcpy(words, p, sizeof(words));
    for (size_t i = 0; i < COUNT_OF(words); i++)
        sum ^= words[i];
    return sum;
}

// Returns the bytes read per second.
static double read_speed(const uint8_t *data, size_t size, size_t rows, size_t ahead)
{
    size_t group = rows * STREAM_ROW, n = size / group * group;
    uint64_t sum = 0;
    double before = seconds();
    for (size_t g = 0; g < n; g += group)
        for (size_t at = 0; at < STREAM_ROW; at += PIECE) {
            size_t next = at + ahead < STREAM_ROW ? at + ahead : at + ahead - STREAM_ROW + group;
            for (size_t r = 0; r < group; r += STREAM_ROW) {
                for (size_t line = 0; ahead && line < PIECE; line += 64)
                    __builtin_prefetch(data + g + r + next + line, 0, 2);
                sum ^= read_piece(data + g + r + at);
            }
        }
    double took = seconds() - before;
    __asm__ volatile("" ::"r"(sum));
    return (double)n / took;
}

// Returns the best speed of several ways to read.
static double read_ceiling(const uint8_t *data, size_t size)
{
    double plain = read_speed(data, size, 1, 0), one = read_speed(data, size, 1, 2048);
    double many = size < 16 * STREAM_ROW ? 0 : read_speed(data, size, 16, 1024);
    return MAX(plain, MAX(one, many));
}

// Returns the bytes read and written per second.
static double copy_ceiling(const struct timing *t)
{
    double before = seconds(), spent;
    long turns = 0;
    do {
        memcpy(t->to, t->from, t->size);
        __asm__ volatile("" ::"r"(t->to) : "memory");
    } while (turns++, (spent = seconds() - before) < TURN_SECONDS);
    return 2 * (double)t->size * (double)turns / spent;
}

static double product_ceiling(const char *level, enum cpu_unit unit)
{
    double before = seconds(), n = ceiling_run(level, unit, 100000);
    return n > 0 ? n / (seconds() - before) : 0;
}

// What the thread can do in a second at most.
struct ceilings {
    double bytes, macs; // bytes read or copied; multiplications, 0: not known
};

static struct ceilings ceilings_of(const struct kernels *k, const struct timing *t)
{
    if (t->to)
        return (struct ceilings){copy_ceiling(t), 0};
    return (struct ceilings){read_ceiling(t->from, t->size), t->share * product_ceiling(k->name, t->unit)};
}

// ---- whether a case is right

static const char *compare_row(const struct kernel_case *c, const uint8_t *y, const uint8_t *reference, double *error,
                               double *power)
{
    for (size_t i = 0; i < c->exact_from; i += sizeof(float)) {
        float a, b;
        memcpy(&a, y + i, sizeof(a));
        memcpy(&b, reference + i, sizeof(b));
        *error += ((double)a - (double)b) * ((double)a - (double)b);
        *power += (double)b * (double)b;
    }
    return memcmp(y + c->exact_from, reference + c->exact_from, c->row_bytes - c->exact_from)
               ? "not the bits of the reference"
               : NULL;
}

static const char *compare_with_reference(const struct kernel_case *c)
{
    const char *fault = NULL;
    double error = 0, power = 0;
    for (int64_t r = 0; r < c->rows && !fault; r++)
        fault = compare_row(c, c->out.data + (size_t)r * c->stride,
                            (const uint8_t *)c->reference + (size_t)r * c->row_bytes, &error, &power);
    return fault ? fault : error <= c->bound * power ? NULL : "too far from the reference";
}

static const char *check_gaps(const struct kernel_case *c)
{
    for (int64_t r = 0; r < c->rows; r++) {
        const size_t from = (size_t)r * c->stride + c->row_bytes;
        const size_t to = r + 1 < c->rows ? (size_t)(r + 1) * c->stride : c->out.size;
        for (size_t i = from; i < to; i++)
            if (c->out.data[i] != POISON)
                return "written between the rows of its output";
    }
    return NULL;
}

// Runs the case on a level; the output is in c->out.
static void compute(const struct kernels *k, const struct kernel_case *c)
{
    memset(c->out.data, POISON, c->out.size);
    if (c->ready)
        c->ready(k, c->data);
    c->run(k, c->data);
}

// Returns what is wrong on a level, or NULL. `scalar` is the whole output of the scalar level.
static const char *fault_of(const struct kernels *k, const struct kernel_case *c, const uint8_t *scalar)
{
    compute(k, c);
    const char *fault = c->reference ? compare_with_reference(c) : c->fits(c) ? NULL : "not what it is defined to be";
    if (!fault)
        fault = check_gaps(c);
    return fault || memcmp(scalar, c->out.data, c->out.size) == 0 ? fault : "not the bits of the scalar level";
}

// ---- how fast it is

struct speed {
    double took; // seconds of a run; 0: not timed
    struct ceilings best;
    bool by_products; // the ceiling is multiplications rather than bytes: they take longer at the ceiling, or the level
                      // has no known ceiling of products
};

static struct speed time_case(const struct bench *b, const struct kernels *k, const struct kernel_case *c,
                              const struct timing *t)
{
    double took[REPEATS_MAX], bytes[REPEATS_MAX], macs[REPEATS_MAX], all = 0;
    int n = 0;
    if (c->ready)
        c->ready(k, t->data);
    for (; n < b->repeats && (n < ENOUGH_REPEATS || all < ENOUGH_SECONDS); n++) {
        struct ceilings best = ceilings_of(k, t);
        bytes[n] = best.bytes, macs[n] = best.macs;
        double before = seconds(), spent;
        long turns = 0;
        do
            c->run(k, t->data);
        while (turns++, (spent = seconds() - before) < TURN_SECONDS);
        took[n] = spent / (double)turns;
        all += spent;
    }
    struct speed s = {.took = median(took, n), .best = {median(bytes, n), median(macs, n)}};
    s.by_products = s.best.macs > 0 ? t->macs / s.best.macs > t->bytes / s.best.bytes : t->macs > 0;
    return s;
}

// ---- a line of the answer

static void print_json(const struct bench *b, const struct kernels *k, const struct kernel_case *c, const char *fault,
                       const struct timing *t, const struct speed *s)
{
    const double ceiling = s->by_products ? s->best.macs : s->best.bytes;
    printf("%s\n  {\"op\": \"%s\", \"isa\": \"%s\", \"type\": \"%s\", \"k\": %lld, \"n_x\": %d, \"right\": %s",
           b->first ? "" : ",", c->op, k->name, c->what, (long long)c->k, c->n, fault ? "false" : "true");
    if (fault)
        printf(", \"fault\": \"%s\"", fault);
    if (s->took > 0)
        printf(", \"unit\": \"%s\", \"speed\": %.3f, \"gbs\": %.3f", s->by_products ? "GMAC/s" : "GB/s",
               (s->by_products ? t->macs : t->bytes) / s->took * 1e-9, t->bytes / s->took * 1e-9);
    if (s->took > 0 && ceiling > 0)
        printf(", \"ceiling\": %.3f, \"of\": \"%s\"", ceiling * 1e-9,
               s->by_products ? "products"
               : t->to        ? "copying"
                              : "reading");
    printf("}");
}

static void print_line(const struct bench *b, const struct kernels *k, const struct kernel_case *c, const char *fault,
                       const struct timing *t, const struct speed *s)
{
    const double ceiling = s->by_products ? s->best.macs : s->best.bytes;
    const double speed = s->took > 0 ? (s->by_products ? t->macs : t->bytes) / s->took : 0;
    printf("%-14s %-7s %-9s %6lld %5d  ", c->op, k->name, c->what, (long long)c->k, c->n);
    if (fault)
        printf("WRONG: %s\n", fault);
    else if (!(s->took > 0))
        printf("right%s\n", b->check_only ? "" : ", not timed");
    else if (ceiling > 0)
        printf("%8.2f %-6s of %7.2f %-8s %5.1f%%\n", speed * 1e-9, s->by_products ? "GMAC/s" : "GB/s", ceiling * 1e-9,
               s->by_products ? "products"
               : t->to        ? "copying"
                              : "reading",
               100 * speed / ceiling);
    else
        printf("%8.2f %-6s\n", speed * 1e-9, s->by_products ? "GMAC/s" : "GB/s");
}

static void bench_level(struct bench *b, const struct kernels *k, const struct kernel_case *c, const uint8_t *scalar)
{
    const char *fault = fault_of(k, c, scalar);
    struct timing t = {0};
    struct speed s = {0};
    if (!fault && !b->check_only && c->timing) {
        t = c->timing(k, c->data);
        s = time_case(b, k, c, &t);
    }
    (b->json ? print_json : print_line)(b, k, c, fault, &t, &s);
    fflush(stdout);
    b->first = false;
    b->right &= !fault;
}

void bench_case(struct bench *b, const struct kernel_case *c)
{
    struct error err;
    compute(kernels_find("scalar", &err), c);
    uint8_t *scalar = must(malloc(MAX(c->out.size, (size_t)1)));
    memcpy(scalar, c->out.data, c->out.size);
    for (int i = 0; i < kernels_count(); i++) {
        const struct kernels *k = kernels_at(i);
        if ((!b->isa || strcmp(b->isa, k->name) == 0) && (!c->has || c->has(k, c->data)))
            bench_level(b, k, c, scalar);
    }
    free(scalar);
}

bool bench_wants(const struct bench *b, const char *op)
{
    return !b->op || strcmp(b->op, op) == 0;
}

int bench_counts(const struct bench *b, const int *to_check, const int *to_time, int out[COUNTS_MAX])
{
    const int *from = b->n_counts ? b->counts : b->check_only ? to_check : to_time;
    int n = 0;
    while (n < COUNTS_MAX && (b->n_counts ? n < b->n_counts : from[n])) {
        out[n] = from[n];
        n++;
    }
    return n;
}

int bench_lengths(const struct bench *b, int block, int64_t to_time, int64_t out[LENGTHS_MAX])
{
    static const int of_floats[] = {1, 17, 255, 517}, of_blocks[] = {1, 3, 9};
    int n = 0;
    if (b->k)
        out[n++] = b->k / block * block;
    else if (!b->check_only)
        out[n++] = to_time;
    else if (block == 1)
        for (; n < (int)COUNT_OF(of_floats); n++)
            out[n] = of_floats[n];
    else
        for (; n < (int)COUNT_OF(of_blocks); n++)
            out[n] = of_blocks[n] * block;
    return n && out[0] ? n : 0;
}

// ---- the command

// The part that has the cases of each operation, or the reason why there are none.
static const struct {
    void (*part)(struct bench *b, enum op op);
    const char *otherwise;
} operations[OP_COUNT] = {
    [OP_EMBED] = {bench_rows, NULL},
    [OP_ROWS] = {NULL, "a copy"},
    [OP_ROPE_TABLE] = {NULL, "plain C in double on every level"},
    [OP_NORM] = {bench_rows, NULL},
    [OP_MATMUL] = {bench_matmul, NULL},
    [OP_ROPE] = {bench_rows, NULL},
    [OP_KV_WRITE] = {bench_rows, NULL},
    [OP_ATTENTION] = {bench_attention, NULL},
    [OP_ACT] = {bench_rows, NULL},
    [OP_GLU] = {bench_rows, NULL},
    [OP_ADD] = {bench_rows, NULL},
    [OP_SCALE] = {bench_rows, NULL},
    [OP_SOFTCAP] = {bench_rows, NULL},
    [OP_CLAMP] = {bench_rows, NULL},
    [OP_XIELU] = {bench_rows, NULL},
    [OP_GAIN] = {NULL, "by the kernel of glu"},
    [OP_HEAD_GLU] = {NULL, "by the kernels of act and scale"},
    [OP_ROUTE] = {bench_rows, NULL},
    [OP_EXPERT_MATMUL] = {NULL, "by the kernels of matmul"},
    [OP_EXPERT_COMBINE] = {bench_rows, NULL},
    [OP_EXPERT_WEIGH] = {NULL, "by the kernel of scale"},
    [OP_QUANTIZE] = {bench_rows, NULL},
    [OP_SLICE] = {NULL, "by copies of columns"},
    [OP_JOIN] = {NULL, "by copies of columns"},
    [OP_SHORT_CONV] = {NULL, "by a kernel with state, which the test scan checks"},
    [OP_DELTA_RULE] = {NULL, "by a kernel with state, which the test scan checks"},
    [OP_SELECTIVE_SCAN] = {NULL, "by a kernel with state, which the test scan checks"},
};

static bool is_operation(const char *name)
{
    bool found = strcmp(name, MATMUL_F32) == 0;
    for (enum op op = 0; op < OP_COUNT; op++)
        found |= strcmp(name, op_name(op)) == 0;
    return found;
}

static void bench_operation(struct bench *b, enum op op)
{
    if (operations[op].part)
        operations[op].part(b, op);
    else if (!operations[op].otherwise) {
        fprintf(stderr, "quern-kernels: %s has no cases\n", op_name(op));
        b->right = false;
    } else if (b->op && bench_wants(b, op_name(op)))
        fprintf(stderr, "quern-kernels: %s has no kernels of its own: %s\n", op_name(op), operations[op].otherwise);
}

static int bench_all(struct bench *b)
{
    printf(b->json ? "[" : "seed %d\n", SEED);
    for (enum op op = 0; op < OP_COUNT; op++)
        bench_operation(b, op);
    if (b->json)
        printf("\n]\n");
    if (b->first) {
        fprintf(stderr, "quern-kernels: no kernel has a case of this operation, type, level and length\n");
        return E_USAGE;
    }
    return b->right ? E_OK : E_ITEMS;
}

static int print_help(FILE *out, int status)
{
    fprintf(
        out,
        "usage: quern-kernels [--op OPERATION] [--type TYPE] [--isa LEVEL] [--check] [-k N] [-n N,N,...]\n"
        "                     [-r REPEATS] [--mib N] [--depth N] [-o json]\n"
        "Holds the kernels of every level against plain C, and times them on one thread beside the machine's ceilings:\n"
        "bytes read or copied, or products.\n"
        "  --op      one operation (all): matmul (activations in 8 bits), matmul-f32 (in float32), attention, norm, ...\n"
        "  --type    one type of weights, keys and values (all)\n"
        "  --isa     one level (all that this CPU runs)\n"
        "  --check   odd shapes, time nothing\n"
        "  -k        length of a row, or of a head (2048, 64 and 128; odd ones for --check)\n"
        "  -n        numbers of columns, or of rows (1,512; odd ones for --check)\n"
        "  -r        repeats, of which the median is given (9)\n"
        "  --mib     of weights, keys and values, for one column or row (512)\n"
        "  --depth   positions that attention sees (4096)\n");
    return status;
}

static int parse_number(const char *text, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || *end || end == text || v < 1 || v > max)
        return -1;
    *out = v;
    return 0;
}

static int parse_counts(struct bench *b, char *text)
{
    char *rest = NULL;
    b->n_counts = 0;
    for (char *p = strtok_r(text, ",", &rest); p; p = strtok_r(NULL, ",", &rest)) {
        int64_t n;
        if (b->n_counts == COUNTS_MAX || parse_number(p, 8192, &n) != 0)
            return -1;
        b->counts[b->n_counts++] = (int)n;
    }
    return b->n_counts ? 0 : -1;
}

static int take_type(struct bench *b, const char *name)
{
    enum dtype type;
    int status = dtype_from_name(str_from(name), &type);
    b->type = status == 0 ? (int)type : -1;
    return status;
}

// Takes one option and its value. Returns -1 if the option is unknown or the value is bad.
static int take_option(struct bench *b, const char *name, char *value)
{
    struct error err;
    int64_t n = 0;
    if (!value)
        return -1;
    if (strcmp(name, "--op") == 0)
        return is_operation(b->op = value) ? 0 : -1;
    if (strcmp(name, "-o") == 0)
        return (b->json = strcmp(value, "json") == 0) ? 0 : -1;
    if (strcmp(name, "--isa") == 0)
        return kernels_find(b->isa = value, &err) ? 0 : -1;
    if (strcmp(name, "--type") == 0)
        return take_type(b, value);
    if (strcmp(name, "-n") == 0)
        return parse_counts(b, value);
    if (strcmp(name, "-k") == 0)
        return parse_number(value, 1 << 20, &b->k);
    int status = parse_number(value, strcmp(name, "-r") == 0 ? REPEATS_MAX : 1 << 20, &n);
    if (strcmp(name, "-r") == 0)
        b->repeats = (int)n;
    else if (strcmp(name, "--depth") == 0)
        b->depth = (int)n;
    else if (strcmp(name, "--mib") == 0)
        b->bytes = (size_t)n << 20;
    else
        return -1;
    return status;
}

int main(int argc, char **argv)
{
    struct bench b = {
        .type = -1, .repeats = 9, .bytes = (size_t)512 << 20, .depth = 4096, .first = true, .right = true};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help(stdout, E_OK);
        if (strcmp(argv[i], "--check") == 0) {
            b.check_only = true;
            continue;
        }
        if (take_option(&b, argv[i], argv[i + 1]) != 0) {
            fprintf(stderr, "quern-kernels: bad argument: %s%s%s\n", argv[i], argv[i + 1] ? " " : "",
                    argv[i + 1] ? argv[i + 1] : "");
            return print_help(stderr, E_USAGE);
        }
        i++;
    }
    return bench_all(&b);
}
