// Makes the table of functions of this level (struct kernels) of what its files offer. The library of AVX-512 also has
// the table of AMX, which is the AVX-512 level with another 8-bit matmul; the rest is not compiled again.
#include "kernels/cpu/level.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

#define HAS_AMX_scalar 0
#define HAS_AMX_neon 0
#define HAS_AMX_dotprod 0
#define HAS_AMX_i8mm 0
#define HAS_AMX_avx2 0
#define HAS_AMX_avxvnni 0
#define HAS_AMX_avx512 1

// Of the levels without matrix tiles, only AVX-512 has kernels that read columns in tiles.
#define IN_TILES_scalar NULL
#define IN_TILES_neon NULL
#define IN_TILES_dotprod NULL
#define IN_TILES_i8mm NULL
#define IN_TILES_avx2 NULL
#define IN_TILES_avxvnni NULL
#define IN_TILES_avx512 matmul_q8_in_tiles_avx512

// The most weights of a work item. With streams it is larger, because a stream is a fourth to a sixteenth of the item.
enum { ITEM_BY_ROW = 3 << 16, ITEM_STREAMS = 1 << 20 };

// The initialiser of a table:
//   title     name of the level, a string
//   q8        table of the 8-bit matmuls
//   tiles     in_tiles, or NULL
//   quantize  quantize_q8_tiles
//   put       put_q8_tiles
//   bytes     tiles_bytes
//   way       enum reading
//   by_row    floats_by_row
#define TABLE(title, q8, tiles, quantize, put, bytes, way, by_row)                                                     \
    {                                                                                                                  \
        .name = title, .norm = ISA_FN(norm), .act = ISA_FN(act), .glu = ISA_FN(glu), .add = ISA_FN(add),               \
        .scale = ISA_FN(scale), .softcap = ISA_FN(softcap), .clamp = ISA_FN(clamp), .xielu = ISA_FN(xielu),            \
        .rope = ISA_FN(rope), .route = ISA_FN(route), .quantize_q8 = ISA_FN(quantize_q8),                              \
        .quantize_q8_columns = ISA_FN(quantize_q8_columns), .quantize_q8_tiles = quantize, .put_q8_tiles = put,        \
        .tiles_bytes = bytes, .combine = ISA_FN(combine), .encode = ISA_FN(encode_table),                              \
        .decode = ISA_FN(decode_table), .quantize_blocks = ISA_FN(quantize_blocks), .quantize_k = ISA_FN(quantize_k),  \
        .quantize_grid = ISA_FN(quantize_grid), .attention = ISA_FN(attention), .short_conv = ISA_FN(short_conv),      \
        .delta_rule = ISA_FN(delta_rule), .selective_scan = ISA_FN(selective_scan), .matmul_q8 = q8,                   \
        .matmul_f32 = ISA_FN(matmul_f32_table), .in_tiles = tiles, .reading = way, .floats_by_row = by_row,            \
        .item_weights = (way) == READING_BY_ROW ? ITEM_BY_ROW : ITEM_STREAMS,                                          \
    }

const struct kernels ISA_FN(kernels) = TABLE(STRING(QUERN_ISA), ISA_FN(matmul_q8_table), ISA_FN(IN_TILES),
                                             ISA_FN(quantize_q8_tiles), ISA_FN(put_q8_tiles), q8_tiles_bytes,
                                             ISA_FN(READING), false);
#if ISA_FN(HAS_AMX)
const struct kernels kernels_amx = TABLE("amx", matmul_q8_table_amx, matmul_q8_in_tiles_amx, quantize_q8_tiles_amx,
                                         put_q8_tiles_amx, q8_words_bytes, READING_amx, true);
#endif
