// Shared by the source files of the GGUF reader: the parts (shards) of a model, and the index of names.
//
// gguf_file.c opens, reads and maps one file; gguf_parse.c reads and checks its metadata; gguf_split.c finds the other
// parts of a split model; gguf_value.c holds the typed readers; gguf_names.c the index; gguf.c puts them together.
// Ownership: struct gguf owns everything; names and values are in its arena. Threads: as in gguf.h.
#ifndef QUERN_GGUF_INTERNAL_H
#define QUERN_GGUF_INTERNAL_H

#include "gguf/gguf.h"

// Numbers of the file are used without conversion, and sizes of files are stored in size_t.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF files are little-endian, and so must be the machine");
_Static_assert(sizeof(size_t) == 8, "models are larger than a 32-bit address space");

// Limits of what a file may contain. The largest known models stay below a tenth of each.
enum {
    KEYS_MAX = 1 << 16,     // keys in a file
    KEY_LENGTH_MAX = 65535, // bytes in a key
    STRING_MAX = 1 << 26,   // bytes in a value
    METADATA_MAX = 1 << 27, // bytes of keys, values and entries, all parts together
    TENSORS_MAX = 1 << 18,  // tensors, all parts together
    TENSOR_NAME_MAX = 63,   // bytes in a tensor's name
    ALIGNMENT_MAX = 1 << 16,
    SHARDS_MAX = 1024,
};
// A name that may be longer than a message: for "%.*s".
#define SHORT_ARG(s) (int)MIN((s).len, (size_t)128), (s).data

#define ALIGNMENT_KEY "general.alignment"
enum { ALIGNMENT_DEFAULT = 32 };

struct gguf_shard {
    const char *path;
    const char *label;   // the path for messages; only its end when it is long
    int index;           // from 0
    int fd;              // -1 when the file is not open
    const uint8_t *view; // the whole file when it was opened with gguf_open_view; else NULL
    uint64_t size;       // of the file
    uint32_t version;
    uint64_t alignment;
    struct gguf_kv *kv;
    size_t n_kv;
    const void **by_key; // index of names over kv
    size_t first_tensor, n_tensors;
    uint64_t data_start, data_end; // offsets in the file: the aligned start of the data, the end of the last tensor
    uint8_t *map;                  // NULL when nothing is mapped
    uint64_t map_offset;           // the offset in the file of map[0]
    size_t map_bytes;
};

struct gguf {
    struct arena arena;
    struct gguf_shard *shards;
    int n_shards;
    struct gguf_tensor *tensors; // of all shards, in their order
    size_t n_tensors;
    const void **by_name;    // index of names over tensors
    uint64_t metadata_bytes; // read so far
};

// Fails with "FILE: byte N: ..." (without the byte when offset is ERR_NO_OFFSET).
int shard_fail(const struct gguf_shard *shard, struct error *err, enum err_code code, uint64_t offset, const char *fmt,
               ...) __attribute__((format(printf, 5, 6)));
int gguf_fail_memory(struct error *err, size_t bytes, const char *what);
#define shard_fail(...) minus_one(shard_fail(__VA_ARGS__))
#define gguf_fail_memory(...) minus_one(gguf_fail_memory(__VA_ARGS__))

// In gguf_file.c. Opens a regular file for reading; path and label must be set.
int shard_open(struct gguf_shard *shard, struct error *err);
// Reads exactly n bytes at offset, which must have been within the file when it was opened.
int shard_read(const struct gguf_shard *shard, void *dst, size_t n, uint64_t offset, struct error *err);
// Maps the data of the tensors, or reads it into memory, and closes the file. Does nothing for a view.
int shard_map(struct gguf_shard *shard, bool into_memory, struct error *err);
void shard_close(struct gguf_shard *shard); // unmaps too

// In gguf_parse.c. Reads and checks all metadata of an open shard, and adds its tensors to those of the model.
int shard_parse(struct gguf *g, struct gguf_shard *shard, struct error *err);
const struct gguf_kv *shard_find(const struct gguf_shard *shard, const char *key);

// In gguf_split.c. Reads what the first part says about the split: *count is the number of parts (1 when the model is
// not split), *n_tensors the number of tensors of the model, or -1 when it is not stated. Fails when the part is not
// the first.
int split_describe(const struct gguf_shard *first, int *count, int64_t *n_tensors, struct error *err);
// The path of part `index` of `count`, derived from that of the first part, which split_describe has accepted.
const char *split_path(struct arena *arena, const struct gguf_shard *first, int index, int count);
// Checks that the keys of a further part agree with its index and the first part.
int split_check_part(const struct gguf_shard *part, int count, int64_t n_tensors, struct error *err);

// In gguf_names.c. A stable merge sort of an array of pointers. E_MEMORY.
int pointers_sort(const void **p, size_t n, int (*compare)(const void *, const void *), struct error *err);
// An index of names: pointers to structs whose first member is a struct str, sorted by it. It is not a hash table,
// because no file can make a merge sort quadratic, and because equal names are adjacent.
int names_sort(const void **index, size_t n, struct error *err);
const void *names_find(const void *const *index, size_t n, struct str name);
// The second of two structs with equal names, or NULL.
const void *names_duplicate(const void *const *index, size_t n);

#endif
