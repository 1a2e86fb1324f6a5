// Shared by the parts of `quern bench`: the grid of tests, a row of results, and how rows are printed, saved and
// compared.
//
// Labels, flags and keys are those of llama-bench, so that programs that read its output can read ours; quern's own
// keys come after them. Ownership: a row owns its samples. Threads: the main thread.
#ifndef QUERN_BENCH_H
#define QUERN_BENCH_H

#include "cmd/options.h"
#include "engine/measure/speed_test.h"
#include "kernels/cpu.h"
#include "kernels/cost.h"

#include <limits.h>

// --- lists of numbers: "512", "64,128", "1-8", "1-9+4", "1-64*2", each with suffixes as in 4K ---

enum { GRID_MAX = 64 };
struct grid {
    int64_t at[GRID_MAX];
    int n;
};
// Parses all values of a flag that may be repeated, or `preset` if it was not given. E_USAGE names the flag.
int grid_parse(struct grid *g, const struct option_list *list, const char *flag, const char *preset, int64_t least,
               int64_t most, struct error *err);

// --- a row ---

struct bench_ceilings { // the highest values seen
    // Bytes per second that all threads read together, or that a GPU copies; 0: not measured.
    double read;
    double multiply[UNIT_COUNT];  // products per second; 0: not known
    const char *unit[UNIT_COUNT]; // the name of the instructions, NULL where not known
    bool moves;                   // the values belong to a CPU, whose speed varies: measure them again
};

struct bench_row {
    // of the model
    const char *path; // as it was given
    const char *file; // the file while the tests run
    char type[96];    // "llama 1.10B Q4_K - Medium"
    int64_t size, n_params;
    double load_ms;
    // of the setting
    int n_batch, n_ubatch, n_threads;
    enum dtype kv_type[2];
    const char *device;  // name of the CPU
    const char *backend; // machine that computes: "CPU", "REF", "CUDA"
    char gpu[128];       // name of the GPU; "" without one
    struct speed_test test;
    // what came out
    int64_t when;    // seconds since 1970
    int n;           // repetitions
    double *ns, *ts; // [n] nanoseconds, tokens per second
    // [n] the ceilings measured around each repetition: bytes, products per second; 0: not known.
    double *read_peaks, *multiply_peaks;
    double *peer_ts;                    // [n] tokens per second of the other engine; NULL: none
    char peer_build[32];                // build_commit of the other engine
    double median_step_ms, p95_step_ms; // between tokens; 0 without generation
    double first_ms;                    // time to the first token of a prompt; 0 without a prompt
    double bytes, products;             // per second
    double read_part, multiply_part;    // median of speed divided by the ceiling at the time; 0: not known
    enum cpu_unit unit;                 // the unit that does most of the products
    const char *unit_name;              // NULL: not known
    uint64_t peak_bytes;                // resident memory, the mapped file included
};

// --- ceilings ---

// Measures the memory bandwidth and the peak of each unit that multiplies. The reference machine has none.
int bench_ceilings_measure(struct bench_ceilings *c, const struct model *m, int n_threads, struct error *err);
// Notes the ceilings on stderr.
void bench_ceilings_note(const struct bench_ceilings *c, const struct bench_row *r);

// The ceilings at one moment; `multiply` is that of the unit that a row uses.
struct bench_peaks {
    double read, multiply;
};
// Measures the ceilings again if they vary. *c keeps the highest values.
int bench_ceilings_again(struct bench_ceilings *c, const struct model *m, const struct bench_row *r,
                         struct bench_peaks *now, struct error *err);
// The median over n repetitions of the fraction of a ceiling that was reached: work / time / peak. `work` is the same
// in each repetition; ns[] are their times. 0 if a value is not known.
double bench_part(double work, const double *ns, const double *peaks, int n);

// --- synthetic models ---

// Writes a synthetic model such as "llama3-8b:Q4_K_M" to a file without a name, and gives a path that opens it while
// the descriptor is open, in this process or another. Returns the descriptor, which the caller closes; -1 with E_USAGE
// or E_IO.
int bench_synthetic_open(const char *what, char path[PATH_MAX], struct error *err);

// --- labels of a row ---

// Formats the label of a test: "pp512", "tg128", "pp512+tg128", with " @ d4096" for a depth and " x8" for eight
// sequences.
void bench_label(const struct speed_test *t, char out[64]);
// The ceiling that the row comes nearer to: "memory" or "multiply"; "" if none is known.
const char *bench_bound(const struct bench_row *r);
void bench_row_free(struct bench_row *r);

// --- printing ---

// What a table shows beside the model, its size, the test and its speed. A column of a setting is shown when a flag
// sets it, because rows may differ in it.
enum bench_shown {
    BENCH_SHOW_ALWAYS = 1 << 0,
    BENCH_SHOW_VERBOSE = 1 << 1, // parameters, both ceilings, latencies, load time, memory
    BENCH_SHOW_CEILING = 1 << 2, // the ceiling that binds and how near the test came to it
    BENCH_SHOW_PEER = 1 << 3,    // another engine's speed
    BENCH_SHOW_BACKEND = 1 << 4,
    BENCH_SHOW_THREADS = 1 << 5,
    BENCH_SHOW_BATCH = 1 << 6,
    BENCH_SHOW_UBATCH = 1 << 7,
    BENCH_SHOW_KEYS = 1 << 8,
    BENCH_SHOW_VALUES = 1 << 9,
    BENCH_SHOW_SETTINGS = BENCH_SHOW_BACKEND | BENCH_SHOW_THREADS | BENCH_SHOW_BATCH | BENCH_SHOW_UBATCH |
                          BENCH_SHOW_KEYS | BENCH_SHOW_VALUES,
};
struct bench_view {
    unsigned shown;  // of enum bench_shown
    int label_width; // characters of the longest label of a test
    int limit;       // columns of characters that the table may take; 0: any number
};
struct bench_layout {
    unsigned columns, kept; // a bit for each column of the table: it is shown; it must be, however narrow the window
    int model_width, label_width;
};
enum { BENCH_WIDTH = 80, BENCH_NAME = 100 };
// Chooses the columns that fit: the least important ones are left out.
struct bench_layout bench_layout_choose(const struct bench_view *v);
void bench_print_table_head(const struct bench_layout *l, struct text *out);
void bench_print_table_row(const struct bench_layout *l, const struct bench_row *r, struct text *out);

// The type of a model in at most `width` cells: abbreviated, then cut.
void bench_name(const char *type, int width, char out[BENCH_NAME]);
// The same with the label of the row's test behind it, which is never cut.
void bench_name_and_test(const struct bench_row *r, int width, char out[BENCH_NAME + 64]);
void bench_print_padded(const char *words, int width, bool right, struct text *out);
// The name of a type as flags take it, in small letters.
const char *bench_type_text(enum dtype type, char out[16]);

enum bench_format { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_SQL };
// The layout is that of a table; NULL for data.
void bench_print_head(enum bench_format format, const struct bench_layout *l, struct text *out);
void bench_print_row(enum bench_format format, const struct bench_layout *l, const struct bench_row *r, bool first,
                     struct text *out);
void bench_print_tail(enum bench_format format, struct text *out);

// Prints how speed falls with depth: one line of bars (▁▂▃▄▅▆▇█) for each test that was run at several depths.
void bench_print_depths(const struct bench_row *rows, int n, struct text *out);
// Prints the units with their peaks, as in "770 GMAC/s of AVX-512 VNNI", each between `before` and `after`: those that
// the rows use, or all if `rows` is NULL.
void bench_print_units(const struct bench_ceilings *c, const struct bench_row *rows, int n, const char *before,
                       const char *after, struct text *out);
// Prints a roofline diagram of the rows in characters.
void bench_print_roofline(const struct bench_row *rows, int n, const struct bench_ceilings *c, struct text *out);
// Writes the roofline diagram as an SVG file. E_IO.
int bench_plot(const char *path, const struct bench_row *rows, int n, const struct bench_ceilings *c,
               struct error *err);

// Calls `take` for each step of one repetition: each prompt in steps of n_batch rows, then each generated token.
void bench_each_step(const struct bench_row *r, int n_batch, void (*take)(void *arg, const struct cost_step *s),
                     void *arg);
// Prints a table of operations by kind and weight type: their share of the threads' time, what they read, and the
// time spent waiting at barriers. Times are summed over all repetitions.
void bench_print_ops(const struct bench_row *r, int n_batch, const struct node_time *times, int n, double wait_ns,
                     struct text *out);

// --- saving and comparing ---

// Saves rows as JSON under $XDG_STATE_HOME or ~/.local/state, in quern/bench/NAME.json; a name with a slash is a
// path. E_IO.
int bench_save(const char *name, const struct bench_row *rows, int n, struct error *err);
int bench_save_try(const char *name, struct error *err); // whether that can be done; writes nothing
// Prints each row beside the saved row of the same model, settings and test, with the 95% interval of the ratio of
// speeds. *n_slower: rows whose interval lies below 1 entirely; -1: none of the rows was saved.
int bench_against(const char *name, const struct bench_row *rows, int n, int *n_slower, struct text *out,
                  struct error *err);
// Runs one repetition of the row's test with another engine's llama-bench. Sets *ts (tokens per second) and
// r->peer_build.
int bench_peer(const char *program, struct bench_row *r, double *ts, struct error *err);

#endif
