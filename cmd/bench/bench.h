// What the parts of `quern bench` share: the grid of tests, a row of results, and how rows are shown, kept and
// compared.
//
// Labels, flags and the keys of a row are those of llama-bench, so that what reads its output reads ours; what quern
// adds comes after them. Ownership: a row owns its samples. Threads: the main thread.
#ifndef QUERN_BENCH_H
#define QUERN_BENCH_H

#include "cmd/options.h"
#include "engine/measure/speed_test.h"
#include "kernels/cpu.h"
#include "kernels/cost.h"

// --- lists of numbers: "512", "64,128", "1-8", "1-9+4", "1-64*2", each with units as in 4K ---

enum { GRID_MAX = 64 };
struct grid {
    int64_t at[GRID_MAX];
    int n;
};
// Of a flag that may be given again; `preset` where it was not given at all.
int grid_parse(struct grid *g, const struct option_list *list, const char *flag, const char *preset, int64_t least,
               int64_t most, struct error *err);

// --- a row ---

struct bench_ceilings {           // the best that was seen
    double read;                  // bytes a second that all threads read, or a card copies; 0: not measured
    double multiply[UNIT_COUNT];  // products a second; 0: not known
    const char *unit[UNIT_COUNT]; // what forms them, NULL where not known
    bool moves;                   // it is a processor's, and worth measuring again
};

struct bench_row {
    // of the model
    const char *path; // as it was named
    const char *file; // where it lies while the tests run
    char type[96];    // "llama 1.10B Q4_K - Medium"
    int64_t size, n_params;
    double load_ms;
    // of the setting
    int n_batch, n_ubatch, n_threads;
    enum dtype kv_type[2];
    const char *device;  // the processor's name
    const char *backend; // what computes: "CPU", "REF", "CUDA"
    char gpu[128];       // the card's name, "" without one
    struct speed_test test;
    // what came out
    int64_t when;                        // seconds since 1970
    int n;                               // repetitions
    double *ns, *ts;                     // [n] nanoseconds, tokens a second
    double *read_peaks, *multiply_peaks; // [n] the ceilings beside each: bytes, products a second; 0: not known
    double *peer_ts;                     // [n] of the other engine, NULL when there is none
    char peer_build[32];                 // its build_commit
    double median_step_ms, p95_step_ms;  // between tokens; 0 without generation
    double first_ms;                     // to the first token, of a prompt; 0 without one
    double bytes, products;              // a second
    double read_part, multiply_part;     // of the ceilings beside them, the median; 0 when not known
    enum cpu_unit unit;                  // that forms most products
    const char *unit_name;               // NULL: not known
    uint64_t peak_bytes;                 // resident, the mapped file with it
};

// --- ceilings ---

// Memory and each unit that multiplies. None for the plain C machine.
int bench_ceilings_measure(struct bench_ceilings *c, const struct model *m, int n_threads, struct error *err);
// For the user, on stderr.
void bench_ceilings_note(const struct bench_ceilings *c, const struct bench_row *r);

// The ceilings of one moment, of the unit that a row uses.
struct bench_peaks {
    double read, multiply;
};
// Measured again where they move; c keeps the best.
int bench_ceilings_again(struct bench_ceilings *c, const struct model *m, const struct bench_row *r,
                         struct bench_peaks *now, struct error *err);
// Of n repetitions that do `work` each in so many nanoseconds, the median of its part of a ceiling a second; 0 where one of
// these is not known.
double bench_part(double work, const double *ns, const double *peaks, int n);

// --- a row's words ---

// "pp512", "tg128", "pp512+tg128", " @ d4096", " x8" for eight sequences.
void bench_label(const struct speed_test *t, char out[64]);
// "memory" or "multiply": the ceiling that is nearer. "" when none is known.
const char *bench_bound(const struct bench_row *r);
void bench_row_free(struct bench_row *r);

// --- shown ---

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_SQL };
void bench_print_head(enum bench_format format, bool peer, struct text *out);
void bench_print_row(enum bench_format format, const struct bench_row *r, bool first, struct text *out);
void bench_print_tail(enum bench_format format, struct text *out);

// How speed falls with depth, a line for each test that was made at several: ▁▂▃▄▅▆▇█.
void bench_print_depths(const struct bench_row *rows, int n, struct text *out);
// "; 770 GMAC/s of AVX-512 VNNI": the units that rows use, or all of them where `rows` is NULL.
void bench_print_units(const struct bench_ceilings *c, const struct bench_row *rows, int n, struct text *out);
// Each row under the roof of memory and multiplication, in characters.
void bench_print_roofline(const struct bench_row *rows, int n, const struct bench_ceilings *c, struct text *out);
// The same as a picture.
int bench_plot(const char *path, const struct bench_row *rows, int n, const struct bench_ceilings *c,
               struct error *err);

// The steps of one repetition: each prompt in steps of n_batch rows, then each token.
void bench_each_step(const struct bench_row *r, int n_batch, void (*take)(void *arg, const struct cost_step *s),
                     void *arg);
// A table of operations, by kind and type of the weights: what they took of the threads' time, what they read, and what
// was waited at barriers. The times are those of all repetitions.
void bench_print_ops(const struct bench_row *r, int n_batch, const struct node_time *times, int n, double wait_ns,
                     struct text *out);

// --- kept and compared ---

// Rows are kept as JSON under $XDG_STATE_HOME or ~/.local/state, quern/bench/NAME.json; a name with a slash is a path.
int bench_save(const char *name, const struct bench_row *rows, int n, struct error *err);
// Prints each row beside the kept one of the same model, setting and test, with the interval of the ratio of speeds
// that holds 95%. *n_slower: rows whose whole interval lies below 1.
int bench_against(const char *name, const struct bench_row *rows, int n, int *n_slower, struct text *out,
                  struct error *err);
// One repetition of the row's test by another engine's llama-bench: tokens a second, and r->peer_build.
int bench_peer(const char *program, struct bench_row *r, double *ts, struct error *err);

#endif
