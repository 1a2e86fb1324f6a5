// The output of a batch. A row that is done is on the disk, whatever happens next.
//
// A row is one line, {"id":"batch_req_N",...,"error":...}, where N is the number of its record. With the output in
// input order, a row that is done before its turn goes to a journal beside the output, OUT.journal, and from there to
// the output when its turn comes. Unordered, it is appended at once. Both files are only appended to, in whole lines:
// after a crash the incomplete last line of each is dropped, and the rows in either file are done. Lines behind the last row
// that no crash can have left are somebody else's, and an error. The journal holds the
// checksum of every row, which is compared when the output is opened again: a row of the output that has changed is an
// error; a damaged row of the journal, and rows at the end of the output whose checksums were lost in a crash, are computed
// again.
// A thread calls fdatasync at most SYNC_MS after a row was written, so that many rows share one sync and nothing
// waits for it. If the disk is full, the incomplete line is removed again: E_IO with "resumable at row N".
// An output that is not a regular file (stdout, a pipe) has no journal and cannot be resumed.
//
// Ownership: an output owns its files and the lines that wait for their turn. Threads: one caller at a time, beside
// the sync thread.
#ifndef QUERN_BATCH_OUTPUT_H
#define QUERN_BATCH_OUTPUT_H

#include "cmd/batch/batch_manifest.h"
#include "kernels/text.h"

enum { SYNC_MS = 250, OUTPUT_WAITING_MOST = 64 << 20, OUTPUT_ROW_MOST = 64 << 20 };

struct batch_output;

struct batch_output_options {
    const char *path;  // "-" for stdout
    int64_t n_records; // of the input
    bool ordered;
    bool retry_errors; // remove the rows that failed from an existing output first
    bool trusts;       // take rows of an existing output as they are, whatever their checksums
    struct batch_shard shard;
    int window; // how many rows may wait for their turn
};

// Checks what is at the path and beside it before the output is opened, and creates nothing: E_USAGE for a link that leads
// nowhere, and for a journal that is something else.
int batch_output_check_path(const char *path, struct error *err);
// Opens and locks the output (a second process is refused), drops incomplete last lines, and reads which rows are
// done. E_IO; E_USAGE if a line is not a row of a batch with that many records.
int batch_output_open(struct batch_output **out, const struct batch_output_options *o, struct error *err);
bool batch_output_is_regular(const struct batch_output *o);

// Which rows were done when the output was opened.
bool batch_output_is_done(const struct batch_output *o, int64_t number);
uint64_t batch_output_id_hash(const struct batch_output *o,
                              int64_t number); // the hash of its custom_id, see batch_id_hash
uint64_t batch_id_hash(struct str custom_id);  // an id with NULL data hashes as "no id"
int64_t batch_output_n_done(const struct batch_output *o);
int64_t batch_output_n_failed(const struct batch_output *o); // rows in the output that report an error

// Rows are announced in input order, including those that are done already; an announced row may be put at any time
// later, in any order. batch_output_has_room tells whether another row can be announced.
bool batch_output_has_room(const struct batch_output *o);
int batch_output_expect(struct batch_output *o, int64_t number, struct error *err);
// Writes the line of a row, with its newline. A row over OUTPUT_ROW_MOST bytes, which could not be read again, becomes one
// that says so as its error. E_IO, E_MEMORY.
int batch_output_put(struct batch_output *o, int64_t number, struct str line, bool is_error, struct error *err);
// E_IO if a sync has failed in the meantime.
int batch_output_check(struct batch_output *o, struct error *err);

// Writes and syncs everything. If all records are done and the order was asked for, retried rows are moved to their
// places and the journal is removed.
int batch_output_finish(struct batch_output *o, struct error *err);
void batch_output_close(struct batch_output *o); // NULL is fine
// How long syncs took, and how many rows each brought to the disk.
struct batch_sync_stats {
    int64_t n, n_rows;
    double ms, worst_ms;
};
struct batch_sync_stats batch_output_syncs(struct batch_output *o);

// --- lines of an output, also used for merging ---

struct output_line {
    int64_t number;
    bool is_error;
    struct str custom_id; // as JSON: with its quotes, or null
};
// Whether a line (without its newline) is a complete row; parses it.
bool output_line_parse(struct str line, struct output_line *out);

// Where a row is stored, for sorting.
struct row_place {
    int64_t number;
    int file;
    uint64_t at;
    size_t n;
};
// What stands behind the last row of a file.
struct output_tail {
    int64_t n_lines; // whole lines
    int64_t foreign; // the first line, counted from 1, that is nothing a crash could have left of a row; 0: none
};
// Scans the rows of a file: appends their places to *places and adds their number to *n. What stands behind the last row is
// counted in *tail; with NULL it is E_IO. A line over OUTPUT_ROW_MOST bytes is no row, and is not kept in memory. *end: the offset behind the last row. E_USAGE for a line that
// is not a row but is followed by rows.
typedef int output_take_fn(void *arg, const struct row_place *place, const struct output_line *line, struct str text,
                           struct error *err);
int output_scan(int fd, const char *path, int file, struct output_tail *tail, struct row_place **places, size_t *n,
                uint64_t *end, output_take_fn *take, void *arg, struct error *err);
// Calls `see` with every line of a file, without its newline, and the offset of its first byte, until it returns something
// else than 0. Only the last line, and one that is far longer than a row may be, are not whole; of the latter `see` gets the
// beginning.
typedef int output_see_fn(void *arg, uint64_t at, struct str line, bool is_whole, struct error *err);
int output_each_line(int fd, const char *path, output_see_fn *see, void *arg, struct error *err);
// Writes the rows, sorted by number, into a new file that then replaces `path`, synced; the old file stays complete
// until then. *fd (may be NULL) becomes the new file, locked and open for appending. E_USAGE if the path is not a
// regular file.
int output_write_sorted(const char *path, const int *fds, struct row_place *places, size_t n, int *fd,
                        struct error *err);
int output_sync_folder(const char *path, struct error *err);
// The name of a file beside another, "PATH.suffix", to be freed; NULL if memory is short.
char *output_beside(const char *path, const char *suffix);

#endif
