// What the parts of the GGUF reader share: the parts (shards) of a model, and the index by name.
//
// gguf_file.c opens, reads and maps one file; gguf_parse.c reads and checks its metadata; gguf_split.c finds the other
// parts of a split model; gguf_value.c holds the typed readers; gguf_names.c the index; gguf.c puts them together.
// Ownership: struct gguf owns all of it; names and values live in its arena. Threads: as gguf.h says.
#ifndef QUERN_GGUF_INTERNAL_H
#define QUERN_GGUF_INTERNAL_H

#include "gguf/gguf.h"

// The file's numbers are used as they lie, and sizes of files are sizes of memory.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF files are little-endian, and so must be the machine");
_Static_assert(sizeof(size_t) == 8, "models are larger than a 32-bit address space");

// What a file may ask for at most. The largest known models stay below a tenth of each.
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
    const char *label;   // the path as messages show it, its head cut off when it is long
    int index;           // from 0
    int fd;              // -1 when there is none open
    const uint8_t *view; // the whole file, where it lies in memory that is not ours; else NULL
    uint64_t size;       // of the file
    uint32_t version;
    uint64_t alignment;
    struct gguf_kv *kv;
    size_t n_kv;
    const void **by_key; // index of names over kv
    size_t first_tensor, n_tensors;
    uint64_t data_start, data_end; // from the aligned start to the end of the last tensor, offsets in the file
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

// gguf_file.c. Opens a regular file for reading; path and label are set already.
int shard_open(struct gguf_shard *shard, struct error *err);
// Reads n bytes at offset, no fewer; they were within the file when it was opened.
int shard_read(const struct gguf_shard *shard, void *dst, size_t n, uint64_t offset, struct error *err);
// Maps the tensors' data, or reads it into memory, and closes the file. Of a view there is nothing to map.
int shard_map(struct gguf_shard *shard, bool into_memory, struct error *err);
void shard_close(struct gguf_shard *shard); // unmaps too

// gguf_parse.c. Reads and checks all metadata of an open shard; its tensors are added to the model's.
int shard_parse(struct gguf *g, struct gguf_shard *shard, struct error *err);
const struct gguf_kv *shard_find(const struct gguf_shard *shard, const char *key);

// gguf_split.c. What the first part says about the others: their number (1 when there are none) in *count, and the
// model's number of tensors, or -1 when it does not say. Fails when the part is not the first.
int split_describe(const struct gguf_shard *first, int *count, int64_t *n_tensors, struct error *err);
// The path of part `index` of `count`, from that of the first, which split_describe has accepted.
const char *split_path(struct arena *arena, const struct gguf_shard *first, int index, int count);
// Checks that a further part is what its place says.
int split_check_part(const struct gguf_shard *part, int count, int64_t n_tensors, struct error *err);

// gguf_names.c. Merge sort of an array of pointers, stable; fails for want of memory.
int pointers_sort(const void **p, size_t n, int (*compare)(const void *, const void *), struct error *err);
// An index of names: pointers to structs whose first member is a struct str, sorted by it. Not hashed, for no file can
// make a merge sort quadratic, and equal names lie side by side.
int names_sort(const void **index, size_t n, struct error *err);
const void *names_find(const void *const *index, size_t n, struct str name);
// The second of two structs with equal names, or NULL.
const void *names_duplicate(const void *const *index, size_t n);

#endif
