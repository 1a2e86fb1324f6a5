// A GGUF model file: its keys and values, and where its tensors lie.
//
// The metadata is read once, into the heap, and every field is validated before it is used; the tensors' bytes are
// mapped and never validated beyond their bounds. A split model (NAME-00001-of-00003.gguf) opens as one file, by its
// first part; only that part's keys are the model's.
// The mapping is of the file itself: when somebody truncates the file, a load from it raises SIGBUS. Whoever runs a model
// from it must handle that signal (cmd/ does); with GGUF_NO_MMAP, or once opened for metadata only, it cannot happen.
// A file may also lie in memory that somebody else owns (gguf_open_view); it is checked as any other.
// Ownership: struct gguf owns the mapping and all metadata; views that it hands out live until gguf_close.
// Threads: read-only after gguf_open; any thread may read.
#ifndef QUERN_GGUF_H
#define QUERN_GGUF_H

#include "gguf/base.h"
#include "gguf/dtype.h"

// Types of a metadata value, by their numbers in the file.
enum gguf_type {
    // clang-format off
    GGUF_U8 = 0, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY,
    GGUF_U64, GGUF_I64, GGUF_F64,
    // clang-format on
    GGUF_TYPE_COUNT
};
const char *gguf_type_name(enum gguf_type type); // "u32", "string"
size_t gguf_type_bytes(enum gguf_type type);     // of a number; 0 for strings and arrays

// A key and its value. Scalars and arrays of numbers stay as the file's little-endian bytes in `data` (unaligned);
// use the readers below. Strings are views; arrays of strings have been checked and indexed.
struct gguf_kv {
    struct str key;
    enum gguf_type type;       // GGUF_ARRAY for arrays
    enum gguf_type element;    // of an array; equal to type otherwise
    uint64_t count;            // elements of an array, 1 otherwise
    const uint8_t *data;       // numbers: count elements, packed
    const struct str *strings; // strings: count views, else NULL
    uint64_t offset;           // of the key in its file, for messages
    int shard;
};

struct gguf_tensor {
    struct str name;
    enum dtype type;
    int n_dims;
    int64_t ne[4];        // ne[0] is the row length; unused dims are 1
    uint64_t size;        // bytes of data
    const void *data;     // in the mapping; NULL when opened without tensors
    uint64_t offset;      // of the data in its file
    uint64_t info_offset; // of the entry in its file, for messages
    int shard;
};

struct gguf;

enum gguf_flags {
    GGUF_METADATA_ONLY = 1, // the tensors' data is not mapped (their entries are still checked)
    GGUF_NO_MMAP = 2,       // read into memory instead
};

// Opens and validates a file, and its sisters when it is the first part of a split. Errors: E_IO when it cannot be read,
// E_MODEL with field and offset when it breaks a rule, E_MEMORY.
int gguf_open(struct gguf **out, const char *path, unsigned flags, struct error *err);
// The same of a whole file that lies in memory, under the name that messages give it. Nothing of the tensors is copied:
// the caller owns the bytes, leaves them as they are until gguf_close, and has them begin at a multiple of the file's
// alignment (64 is more than any file in use asks for). Of the flags only GGUF_METADATA_ONLY means anything. A part of a
// split model is refused: its sisters would be files.
int gguf_open_view(struct gguf **out, const char *name, struct bytes image, unsigned flags, struct error *err);
void gguf_close(struct gguf *g); // NULL is fine

// Fails with E_MODEL and "FILE: byte N: ..." (without the byte when offset is ERR_NO_OFFSET): for whoever finds that what
// the file says makes no sense.
int gguf_fail(const struct gguf *g, int shard, uint64_t offset, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

const char *gguf_path(const struct gguf *g, int shard);
int gguf_n_shards(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_alignment(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g); // all parts

size_t gguf_n_kv(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);       // in the order of the file
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key); // NULL when there is none

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

// Typed readers. The value's type must fit: any integer type within range for u32/i64, F32 or F64 (or an integer) for f32.
// 1 when found, 0 when there is no such key (*out is left alone, so preset the default), -1 with an error of E_MODEL that names
// the key, the type found and the type wanted.
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *err);
int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct error *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err);
int gguf_get_str(const struct gguf *g, const char *key, struct str *out, struct error *err);
// The array under key, its elements of type `element` (GGUF_I32 also accepts U32 and the reverse); 1, 0, -1 as above.
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type element, const struct gguf_kv **out,
                   struct error *err);
// Element i of an array of numbers (any type), as the wanted C type; i < count.
int64_t gguf_array_i64(const struct gguf_kv *array, uint64_t i);
float gguf_array_f32(const struct gguf_kv *array, uint64_t i);

#endif
