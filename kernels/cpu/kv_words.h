// How the CPU arranges a page of keys or values of Q8_0: so that attention multiplies them as they lie.
//
// A KV head's part of a page has KV_PAGE * 34 bytes for each block of 32 dimensions: KV_PAGE * 32 codes, then the KV_PAGE scales
// of the slots, halves. Codes stand in words of four, which are multiplied with four numbers at once:
//   keys    [dimension / 4][slot][4]: the four are neighbouring dimensions of a key
//   values  [slot / 4][dimension][4]: the four are one dimension of neighbouring slots
// A row is put where its slot is and touches no byte of others, so threads may put the rows of a page at the same time.
#ifndef QUERN_KV_WORDS_H
#define QUERN_KV_WORDS_H

#include <stdbool.h>
#include <string.h>

#include "kernels/graph.h"

enum {
    KV_BLOCK = 32,
    KV_BLOCK_BYTES = 34,                      // of a row's block, as in a file: its scale, then its codes
    KV_BLOCK_PART = KV_PAGE * KV_BLOCK_BYTES, // from block to block in a page
    KV_BLOCK_SCALES = KV_PAGE * KV_BLOCK,     // where the scales begin in it
};

// Which types are kept so; rows of the others lie one behind the other, packed as in a file.
static inline bool kv_in_words(enum dtype type)
{
    return type == DT_Q8_0;
}

// Where code i of a slot stands in a block's part.
static inline int kv_code_at(enum kv_part part, int slot, int i)
{
    return part == KV_KEY ? (i / 4 * KV_PAGE + slot) * 4 + i % 4 : (slot / 4 * KV_BLOCK + i) * 4 + slot % 4;
}

// A row of `dim` elements, packed as in a file, to its slot.
static inline void kv_words_put(const uint8_t *row, int dim, enum kv_part part, int slot, uint8_t *page)
{
    for (int d = 0; d < dim; d += KV_BLOCK, row += KV_BLOCK_BYTES, page += KV_BLOCK_PART) {
        memcpy(page + KV_BLOCK_SCALES + 2 * slot, row, 2);
        for (int i = 0; part == KV_KEY && i < KV_BLOCK; i += 4)
            memcpy(page + kv_code_at(part, slot, i), row + 2 + i, 4);
        for (int i = 0; part == KV_VALUE && i < KV_BLOCK; i++)
            page[kv_code_at(part, slot, i)] = row[2 + i];
    }
}

// The same row again.
static inline void kv_words_get(const uint8_t *page, int dim, enum kv_part part, int slot, uint8_t *row)
{
    for (int d = 0; d < dim; d += KV_BLOCK, row += KV_BLOCK_BYTES, page += KV_BLOCK_PART) {
        memcpy(row, page + KV_BLOCK_SCALES + 2 * slot, 2);
        for (int i = 0; i < KV_BLOCK; i++)
            row[2 + i] = page[kv_code_at(part, slot, i)];
    }
}

#endif
