// The CPU's layout of a page of Q8_0 keys or values, which attention multiplies without rearranging it.
//
// A KV head's part of a page has KV_PAGE * 34 bytes for each block of 32 dimensions: KV_PAGE * 32 codes, and then the
// scales of the KV_PAGE slots, as halves. Codes are in words of four, which are multiplied with four numbers at once:
//   keys    [dimension / 4][slot][4]: a word has four neighbouring dimensions of a key
//   values  [slot / 4][dimension][4]: a word has one dimension of four neighbouring slots
// The functions keep no state. Storing the row of a slot touches no byte of other slots, so several threads may store
// rows of a page at the same time.
#ifndef QUERN_KV_WORDS_H
#define QUERN_KV_WORDS_H

#include <stdbool.h>
#include <string.h>

#include "kernels/graph.h"

enum {
    KV_BLOCK = 32,
    KV_BLOCK_BYTES = 34,                      // bytes of a row's block as in a file: its scale, then its codes
    KV_BLOCK_PART = KV_PAGE * KV_BLOCK_BYTES, // bytes from one block of dimensions to the next in a page
    KV_BLOCK_SCALES = KV_PAGE * KV_BLOCK,     // offset of the scales in these
};

// Whether a type has this layout. The rows of other types are contiguous, packed as in a file.
static inline bool kv_in_words(enum dtype type)
{
    return type == DT_Q8_0;
}

// The offset of code i of a slot in a block's part of a page.
static inline int kv_code_at(enum kv_part part, int slot, int i)
{
    return part == KV_KEY ? (i / 4 * KV_PAGE + slot) * 4 + i % 4 : (slot / 4 * KV_BLOCK + i) * 4 + slot % 4;
}

// Stores a row of `dim` elements, packed as in a file, to its slot.
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

// Reads a row back from its slot, packed as in a file.
static inline void kv_words_get(const uint8_t *page, int dim, enum kv_part part, int slot, uint8_t *row)
{
    for (int d = 0; d < dim; d += KV_BLOCK, row += KV_BLOCK_BYTES, page += KV_BLOCK_PART) {
        memcpy(row, page + KV_BLOCK_SCALES + 2 * slot, 2);
        for (int i = 0; i < KV_BLOCK; i++)
            row[2 + i] = page[kv_code_at(part, slot, i)];
    }
}

#endif
