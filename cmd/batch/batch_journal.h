// The journal of a batch, OUT.journal: the rows that wait for their turn, and the checksums of those in the output.
//
// It begins with the line of JOURNAL_HEAD. Of the lines behind it,
//     + SUM ROW      is a row that is done and waits; SUM is its checksum
//     = SUM NUMBER   says that row NUMBER was written to the output, and what its checksum is
// where a checksum has 16 hexadecimal digits. A checksum reaches the file before its row reaches the output. A file
// without that head is not a journal of ours, and neither is what a symbolic link leads to: they are left alone.
// Threads: one at a time.
#ifndef QUERN_BATCH_JOURNAL_H
#define QUERN_BATCH_JOURNAL_H

#include "gguf/base.h"
#include "kernels/text.h"

#define JOURNAL_HEAD "quern batch journal 1\n"

// Whether the journal could be opened: what is there, if anything is, is a journal. Creates nothing. E_USAGE, E_IO.
int batch_journal_check(const char *path, struct error *err);
// Opens the journal for reading and appending, or creates it: an empty one gets the head. *is_new: it was not there, or
// held nothing yet. E_USAGE if something else is there; E_IO.
int batch_journal_open(int *fd, const char *path, bool *is_new, struct error *err);

// The checksum of a row, without its newline; never 0.
uint64_t batch_row_sum(struct str row);
void batch_journal_print_row(struct text *out, struct str row);
void batch_journal_print_sum(struct text *out, int64_t number, uint64_t sum);

struct journal_line {
    int64_t number; // of a row that is in the output
    struct str row; // that waits; without data there is none
    uint64_t sum;
};
// Parses a line without its newline. False if it is none, or if a row does not fit its checksum.
bool batch_journal_parse(struct str line, struct journal_line *out);

#endif
