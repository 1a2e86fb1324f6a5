// A GGUF model file: its keys and values, and its tensors.
//
// The metadata is read once, into the heap, and every field is validated before it is used. The data of the tensors
// is mapped; only its bounds are checked. A split model (NAME-00001-of-00003.gguf) is opened as one file, by its
// first part, whose keys are those of the model. The mapping is shared with the file: when another process truncates
// the file, a load from it raises SIGBUS, which a program that runs a model must handle (cmd/ does). With
// GGUF_NO_MMAP or GGUF_METADATA_ONLY this cannot happen. A file may also be in memory that the caller owns
// (gguf_open_view); it is checked in the same way. Ownership: struct gguf owns the mapping and all metadata; views
// that it hands out live until gguf_close. Threads: read-only after gguf_open; any thread may read.
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
size_t gguf_type_bytes(enum gguf_type type);     // bytes of a number; 0 for strings and arrays

// A key and its value. Scalars and arrays of numbers are the little-endian bytes of the file in `data` (unaligned),
// to be read with the functions below. Strings are views.
struct gguf_kv {
    struct str key;
    enum gguf_type type;       // GGUF_ARRAY for arrays
    enum gguf_type element;    // type of the elements of an array; otherwise equal to type
    uint64_t count;            // number of elements of an array; otherwise 1
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
    GGUF_METADATA_ONLY = 1, // the data of the tensors is not mapped (their entries are still checked)
    GGUF_NO_MMAP = 2,       // read the data into memory instead of mapping it
};

// Opens and validates a file, and the other parts when it is the first part of a split model. E_IO when it cannot be
// read, E_MODEL with field and offset when it is invalid, E_MEMORY.
int gguf_open(struct gguf **out, const char *path, unsigned flags, struct error *err);
// Opens a whole file that is in memory; `name` is its name in messages. The data of the tensors is not copied: the
// bytes belong to the caller, must not change until gguf_close, and must begin at a multiple of the file's alignment
// (64 suffices for all files in use). Only the flag GGUF_METADATA_ONLY has an effect. A part of a split model is
// refused, because the other parts cannot be found.
int gguf_open_view(struct gguf **out, const char *name, struct bytes image, unsigned flags, struct error *err);
void gguf_close(struct gguf *g); // NULL is fine

// Fails with E_MODEL and "FILE: byte N: ..." (without the byte when offset is ERR_NO_OFFSET). For callers that find an
// invalid value in the file.
int gguf_fail(const struct gguf *g, int shard, uint64_t offset, struct error *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
#define gguf_fail(...) minus_one(gguf_fail(__VA_ARGS__))

// Fails with E_IO if a file that is mapped has become shorter: its pages are lost, and the rest of the page where it now ends
// reads as zeros. For callers that find values which cannot be. NULL is fine.
int gguf_check_whole(const struct gguf *g, struct error *err);

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

// A key that replaces one of the file, or is added to it; the strings are copied.
struct gguf_override {
    const char *key;
    enum gguf_type type; // GGUF_I64, GGUF_F64, GGUF_BOOL or GGUF_STRING, which the typed readers convert
    union {
        int64_t integer;
        double real;
        bool boolean;
        const char *string;
    };
};
// Sets a key of the first part; `offset` is ERR_NO_OFFSET in what gguf_find then returns. To be called before others hold
// views of keys. E_MEMORY.
int gguf_set(struct gguf *g, const struct gguf_override *o, struct error *err);

// Typed readers. The type of the value must fit: any integer type within range for u32 and i64; F32, F64 or an
// integer for f32. Returns 1 when the key exists; 0 when it does not, and *out is unchanged, so that it can be preset
// to a default; -1 with E_MODEL, which names the key, the type found and the type wanted.
int gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out, struct error *err);
int gguf_get_i64(const struct gguf *g, const char *key, int64_t *out, struct error *err);
int gguf_get_f32(const struct gguf *g, const char *key, float *out, struct error *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err);
int gguf_get_str(const struct gguf *g, const char *key, struct str *out, struct error *err);
// Finds an array with elements of type `element` (GGUF_I32 also accepts U32 and vice versa). Returns 1, 0 or -1 as
// above.
int gguf_get_array(const struct gguf *g, const char *key, enum gguf_type element, const struct gguf_kv **out,
                   struct error *err);
// Element i of an array of numbers of any type, converted to the C type; i < count.
int64_t gguf_array_i64(const struct gguf_kv *array, uint64_t i);
float gguf_array_f32(const struct gguf_kv *array, uint64_t i);

#endif
