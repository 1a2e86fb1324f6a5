// The output of a batch: rows that are done are on the disk, whatever happens next.
//
// A row is one line, {"id":"batch_req_N",...,"error":...}, N being the number of its record. In input order, a row that
// is done before its turn goes to a journal beside the output, OUT.journal, and from there to the output when its turn
// comes; unordered, it is appended at once. Both files are only ever appended to, by whole lines: after a crash the
// torn tail of each is dropped and the rows in either are done. A thread calls fdatasync at most SYNC_MS after a row
// was written, so that rows share it and nobody waits for it. Where the disk is full, what was written of a line is
// taken back: E_IO with "resumable at row N".
//
// An output that is no regular file (stdout, a pipe) has no journal, and cannot be resumed.
// Ownership: an output owns its files and the lines that wait. Threads: one, beside its own that syncs.
#ifndef QUERN_BATCH_OUTPUT_H
#define QUERN_BATCH_OUTPUT_H

#include "cmd/digest.h"
#include "kernels/text.h"

enum { SYNC_MS = 250, OUTPUT_WAITING_MOST = 64 << 20 };

struct batch_output;

struct batch_output_options {
    const char *path;  // "-" for stdout
    int64_t n_records; // of the input
    bool ordered;
    bool retry_errors; // rows that failed are taken out of the output first
    int window;        // rows that may wait for their turn
};

// Opens, locks (a second process is refused), drops torn tails, and reads what is done. E_IO; E_USAGE when a line is no
// row of a batch of so many records.
int batch_output_open(struct batch_output **out, const struct batch_output_options *o, struct error *err);
bool batch_output_is_regular(const struct batch_output *o);

// What was there.
bool batch_output_is_done(const struct batch_output *o, int64_t number);
uint64_t batch_output_id_hash(const struct batch_output *o, int64_t number); // of its custom_id, as batch_id_hash
uint64_t batch_id_hash(struct str custom_id);                                // data NULL: of no id
int64_t batch_output_n_done(const struct batch_output *o);
int64_t batch_output_n_failed(const struct batch_output *o); // rows with an error, now

// Rows are announced in input order, those that are done included; what is announced is put later, in any order.
// Whether there is room for another.
bool batch_output_has_room(const struct batch_output *o);
int batch_output_expect(struct batch_output *o, int64_t number, struct error *err);
// The whole line, with its line end.
int batch_output_put(struct batch_output *o, int64_t number, struct str line, bool is_error, struct error *err);
// E_IO when a sync failed in the meantime.
int batch_output_check(struct batch_output *o, struct error *err);

// All is written and synced. When every record is done, in order where that was asked for: rows that were retried are
// put in their places, and the journal goes.
int batch_output_finish(struct batch_output *o, struct error *err);
void batch_output_close(struct batch_output *o); // NULL is fine
// Times that a sync took, and rows that it brought to the disk.
struct batch_sync_stats {
    int64_t n, n_rows;
    double ms, worst_ms;
};
struct batch_sync_stats batch_output_syncs(struct batch_output *o);

// --- lines, for merging too ---

struct output_line {
    int64_t number;
    bool is_error;
    struct str custom_id; // as JSON, with its quotes, or null
};
// Whether a line (without its end) is a whole row.
bool output_line_parse(struct str line, struct output_line *out);

// Where rows lie, to be brought in order.
struct row_place {
    int64_t number;
    int file;
    uint64_t at;
    size_t n;
};
// Reads the rows of a file (places are appended to *places, of *n); `drop_tail`: a tail that is no row is left out,
// else it is E_IO. *end: the offset behind the last row. E_USAGE for a line that is no row, with rows behind it.
int output_scan(int fd, const char *path, int file, bool drop_tail, struct row_place **places, size_t *n, uint64_t *end,
                int (*take)(void *arg, const struct row_place *place, const struct output_line *line, struct str text,
                            struct error *err),
                void *arg, struct error *err);
// Writes the rows, sorted by number, into a new file that takes the place of `path`, synced. The old one stays whole
// until then. *fd: the new file, locked, open for appending; may be NULL. E_USAGE for a path that is no ordinary file.
int output_write_sorted(const char *path, const int *fds, struct row_place *places, size_t n, int *fd,
                        struct error *err);
int output_sync_folder(const char *path, struct error *err);
// A file beside another: "PATH.suffix", to be freed; NULL when memory is short.
char *output_beside(const char *path, const char *suffix);

#endif
