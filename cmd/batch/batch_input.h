// Reads the input of a batch record by record: lines, or the records of CSV and TSV files.
//
// A record is a line that is not blank, without its newline; in CSV a quoted field may contain newlines.
// Records are numbered from 1 over the whole file, whichever shard computes them. A record over RECORD_MOST bytes is
// skipped and reported, so that memory use does not depend on the input.
// Ownership: the input owns its buffer; a record is a view that is valid until the next one is read. Threads: one at
// a time.
#ifndef QUERN_BATCH_INPUT_H
#define QUERN_BATCH_INPUT_H

#include "cmd/digest.h"

enum { RECORD_MOST = 64 << 20 };

enum batch_format { FORMAT_AUTO, FORMAT_JSONL, FORMAT_LINES, FORMAT_CSV, FORMAT_TSV };

struct record {
    int64_t number;   // counted from 1
    int64_t line;     // the line on which it begins, counted from 1
    uint64_t end;     // offset of the first byte behind it
    struct str bytes; // only its beginning if the record is too long
    bool is_too_long;
    bool is_open; // a quote is never closed
};

struct batch_input {
    const char *path; // for messages
    int fd;
    enum batch_format format;
    char *buffer;
    size_t cap, from, to; // buffer[from .. to) has been read from the file and not consumed yet
    uint64_t offset;      // offset of buffer[from] in the file
    int64_t n_records, n_lines;
    bool ended;
    char beginning[256]; // the first bytes of a record that is too long
    // What the survey has found; whoever changes the file meanwhile is found out by it.
    bool is_surveyed;
    uint64_t n_bytes;
    struct digest_value digest;
    struct digest read; // of all bytes that were read since the beginning
};

// Opens the input. `path` may be "-" for stdin, which is first copied to its end into an unnamed file in `folder`.
// FORMAT_AUTO decides by the extension, then by the first non-blank character. E_IO.
int batch_input_open(struct batch_input *in, const char *path, const char *folder, enum batch_format format,
                     struct error *err);
void batch_input_close(struct batch_input *in);
// Reads the next record. Returns 1 for a record, 0 at the end, -1 for E_IO or E_MEMORY. After the survey, the end is where it
// was then, and it is E_IO if the bytes before it are others.
int batch_input_next(struct batch_input *in, struct record *record, struct error *err);
int batch_input_rewind(struct batch_input *in, struct error *err);

// What a pass over the whole input finds. The input is rewound before and after it.
struct batch_survey {
    struct digest_value digest;
    int64_t n_records;
    uint64_t n_bytes;
};
int batch_input_survey(struct batch_input *in, struct batch_survey *out, struct error *err);

// Splits a CSV or TSV record into its fields (RFC 4180; TSV has no quotes). Views of `bytes`, or of unquoted copies
// in the arena, are stored in fields[0 .. most). Returns the number of fields, which may be larger than `most`; -1:
// E_MEMORY.
int batch_split_fields(struct str bytes, enum batch_format format, struct arena *arena, struct str *fields, int most,
                       struct error *err);

#endif
