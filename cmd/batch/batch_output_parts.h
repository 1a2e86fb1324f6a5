// The parts of an output of a batch, shared by batch_output.c, which writes it, and batch_resume.c, which finds out what an
// earlier run has written. Ownership and threads: as batch_output.h says.
#ifndef QUERN_BATCH_OUTPUT_PARTS_H
#define QUERN_BATCH_OUTPUT_PARTS_H

#include "cmd/batch/batch_journal.h"
#include "cmd/batch/batch_output.h"

#include <pthread.h>

// A row that was announced and is not in the output yet.
struct slot {
    int64_t number;
    char *line; // NULL: not done
    size_t n;
    bool is_journaled;
};

// A row found in the journal on opening, kept until its record is announced.
struct kept {
    int64_t number;
    char *line;
    size_t n;
};

struct file {
    char *path;
    int fd;
    uint64_t size;
};

struct batch_output {
    struct batch_output_options o;
    bool is_regular;
    struct file out, journal;
    uint8_t *done;     // [n_records + 1], by number
    uint64_t *id_hash; // [n_records + 1], of rows that are done
    uint64_t *sum;     // [n_records + 1], the checksums of rows in the output; 0: it is not there, or not known
    int64_t n_sums;    // lines of the journal with a checksum
    int64_t n_done, n_failed, last_number;
    bool ascending;     // the rows of the output are in input order so far
    struct slot *slots; // [window], a ring buffer
    int first, n_slots;
    size_t n_waiting; // bytes of the lines in slots
    struct kept *kept;
    size_t n_kept;
    // the sync thread
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock,
        files; // `lock` guards the fields below; `files` guards the file descriptors while they are synced
    pthread_cond_t wake;
    int64_t n_dirty; // rows written since the last sync began
    bool stopping;
    int sync_error;
    struct batch_sync_stats stats;
};

// Reads both files, and sets which rows are done and which wait. E_IO, E_USAGE, E_MEMORY.
int output_load(struct batch_output *o, struct error *err);
// Appends the line of a row, with its newline, to the output, after its checksum was appended to the journal.
int output_append_row(struct batch_output *o, int64_t number, struct str line, struct error *err);
// Replaces the journal by one that holds no more than is needed.
int output_write_journal(struct batch_output *o, struct error *err);

#endif
