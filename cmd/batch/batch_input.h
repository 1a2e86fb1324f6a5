// The input of a batch, record by record: lines, or the records of CSV and TSV files.
//
// A record is a line that is not blank, without its line end; in CSV and TSV quotes may hold line ends. Records are
// numbered from 1 over the whole file, whoever computes them. A record over RECORD_MOST bytes is passed over and
// reported, so that memory stays flat. Ownership: the input owns its buffer; a record is a view that lasts until the
// next. Threads: one.
#ifndef QUERN_BATCH_INPUT_H
#define QUERN_BATCH_INPUT_H

#include "cmd/digest.h"

enum { RECORD_MOST = 64 << 20 };

enum batch_format { FORMAT_AUTO, FORMAT_JSONL, FORMAT_LINES, FORMAT_CSV, FORMAT_TSV };

struct record {
    int64_t number;   // from 1
    int64_t line;     // where it begins, from 1
    uint64_t end;     // the offset behind it
    struct str bytes; // its beginning when it is too long
    bool is_too_long;
    bool is_open; // a quote that nothing closes
};

struct batch_input {
    const char *path; // for messages
    int fd;
    enum batch_format format;
    char *buffer;
    size_t cap, from, to; // of the bytes that were read and not taken
    uint64_t offset;      // in the file, of buffer[from]
    int64_t n_records, n_lines;
    bool ended;
    char beginning[256]; // of a record that is too long
};

// path: "-" for stdin, which is read to its end into an unnamed file first, in `folder`. FORMAT_AUTO: by the name's
// end, then by the first character that is no space. E_IO.
int batch_input_open(struct batch_input *in, const char *path, const char *folder, enum batch_format format,
                     struct error *err);
void batch_input_close(struct batch_input *in);
// 1: a record; 0: the end; -1: E_IO, E_MEMORY.
int batch_input_next(struct batch_input *in, struct record *record, struct error *err);
int batch_input_rewind(struct batch_input *in, struct error *err);

// What a whole pass finds; the input is rewound before and behind it.
struct batch_survey {
    struct digest_value digest;
    int64_t n_records;
    uint64_t n_bytes;
};
int batch_input_survey(struct batch_input *in, struct batch_survey *out, struct error *err);

// The fields of a CSV or TSV record (RFC 4180; TSV has no quotes): appends views of `bytes`, or of unquoted copies in
// the arena, to fields[]; returns how many there are, of which `most` are kept. -1: E_MEMORY.
int batch_split_fields(struct str bytes, enum batch_format format, struct arena *arena, struct str *fields, int most,
                       struct error *err);

#endif
