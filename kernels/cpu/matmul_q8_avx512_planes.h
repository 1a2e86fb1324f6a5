// Where unpacked words go: to the panel as they are, or times their scales to the two planes that the tiles of AMX read
// (see matmul_q8_amx.c).
//
// Private to matmul_q8_avx512*.c. All is pure and inlined.
#ifndef QUERN_MATMUL_Q8_AVX512_PLANES_H
#define QUERN_MATMUL_Q8_AVX512_PLANES_H

#include "kernels/cpu/matmul_q8_avx512.h"

// Elements k .. k+3 of 16 rows.
INLINE void put_words(struct panel *p, int lane, int k, __m512i w)
{
    _mm512_store_si512(p->w[k / 4][lane], w);
}

// How a type's weights and scales become two planes: w * scale = high * 2^shift + low.
struct fold {
    bool is_signed;
    int offset;  // of the words
    int run;     // elements a scale
};

// Both halves of each word become its lower 16 bits.
INLINE __m512i twice_16(__m512i v)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaa, v, _mm512_slli_epi32(v, 16));
}

// To be called once the scales are there. Unsigned: scale = 8 s1 + s0, the factors are s1 and s0. Signed: products plus 32
// are w * scale + (32 - offset * scale), which are the factors, in 16 bits.
INLINE void put_factors(struct panel *p, int lane, const struct fold *f)
{
    if (!p->high)
        return;
    const __m512i half = _mm512_set1_epi16(32), offset = _mm512_set1_epi16((short)f->offset);
    for (int i = 0; i < SPAN / f->run; i++) {
        __m512i scale = twice_16(_mm512_load_si512(&p->scale[i][lane]));
        bool s = f->is_signed;
        __m512i a = s ? scale : _mm512_srli_epi16(scale, 3);
        __m512i b = s ? _mm512_sub_epi16(half, _mm512_mullo_epi16(scale, offset)) : _mm512_and_si512(scale, _mm512_set1_epi16(7));
        _mm512_store_si512(p->factor[0][i], a);
        _mm512_store_si512(p->factor[1][i], b);
    }
}

// The bytes of two registers of 16-bit numbers: those of `even`, and those of `odd` above them.
INLINE __m512i interleave_bytes(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi8(0xaaaaaaaaaaaaaaaa, even, _mm512_slli_epi16(odd, 8));
}

// Words of weights that have integer scales, plus the offset: to the panel, or times their scales to the planes. Unsigned
// bytes up to 31 times a factor up to 7 stay bytes: so 16-bit products serve two.
INLINE void put_scaled(struct panel *p, int lane, int k, __m512i w, const struct fold *f)
{
    if (!p->high) {
        put_words(p, lane, k, w);
        return;
    }
    __m512i a = _mm512_load_si512(p->factor[0][k / f->run]), b = _mm512_load_si512(p->factor[1][k / f->run]);
    __m512i high, low;
    if (f->is_signed) {
        __m512i even = _mm512_and_si512(w, _mm512_set1_epi16(255)), odd = _mm512_srli_epi16(w, 8);
        even = _mm512_add_epi16(_mm512_mullo_epi16(even, a), b);
        odd = _mm512_add_epi16(_mm512_mullo_epi16(odd, a), b);
        low = _mm512_and_si512(interleave_bytes(even, odd), _mm512_set1_epi8(63));
        low = _mm512_sub_epi8(low, _mm512_set1_epi8(32));
        high = interleave_bytes(_mm512_srai_epi16(even, 6), _mm512_srai_epi16(odd, 6));
    } else {
        high = _mm512_mullo_epi16(w, a);
        low = _mm512_mullo_epi16(w, b);
    }
    _mm512_store_si512((*p->high)[lane / GROUP][k / 4], high);
    _mm512_store_si512((*p->low)[lane / GROUP][k / 4], low);
}

// Words of weights whose scales are floats, plus the offset: to the panel, or as they are, signed, to the high plane.
INLINE void put_plain(struct panel *p, int lane, int k, __m512i w, int offset)
{
    if (p->high)
        _mm512_store_si512((*p->high)[lane / GROUP][k / 4], _mm512_sub_epi8(w, _mm512_set1_epi8((char)offset)));
    else
        put_words(p, lane, k, w);
}

#endif
