// Attention with one row per CTA, second half of the kernel (emit_attend.c and
// emit_attend_half_rows.c have the first): folds the row's splits
// into totals and writes the row. It equals, for each head and each split in order:
//
//   new = max(total.top, split.top);
//   total.sum = total.sum * exp(total.top - new) + split.sum * exp(split.top - new); // and the values likewise
//   total.top = new;
//
// A CTA that has all splits of the row keeps totals in registers and never uses memory. Otherwise (flash decoding)
// each CTA stores the parts of its splits to `partials`, and the last CTA to finish folds them all. A part is
// `partial` floats per head and split: [row][head][split].
#include "kernels/ptx/emit_attend_rows.h"

// Folds a split into the totals of a head, except for the values: sets %keep and %worth, by which the caller
// multiplies the totals' values and the split's. Marks: $0 is the head in the thread's set, $1 log2_of_base.
//   top  string literal: the register with the split's largest score
//   sum  string literal: the register with the split's sum of weights
#define FOLD(top, sum)                                                                                                 \
    "    max.f32 %new, %ttop$0, " top ";\n"                                                                            \
    "    sub.rn.f32 %keep, %ttop$0, %new;\n"                                                                           \
    "    mul.rn.f32 %keep, %keep, 0f$x1;\n"                                                                            \
    "    ex2.approx.ftz.f32 %keep, %keep;\n"                                                                           \
    "    sub.rn.f32 %worth, " top ", %new;\n"                                                                          \
    "    mul.rn.f32 %worth, %worth, 0f$x1;\n"                                                                          \
    "    ex2.approx.ftz.f32 %worth, %worth;\n"                                                                         \
    "    mov.f32 %ttop$0, %new;\n"                                                                                     \
    "    mul.rn.f32 %tsum$0, %tsum$0, %keep;\n"                                                                        \
    "    fma.rn.f32 %tsum$0, " sum ", %worth, %tsum$0;\n"

// Returns the bits of log2 e, or of 1 if scores are logarithms of base 2 already.
static uint32_t log2_of_base(const struct attend_shape *s)
{
    return ptx_float_bits(s->base_2 ? 1 : (float)LOG2_E);
}

// Sets %part to the address of `partials` and %head to the index of the first part of head i.
static void part_address(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s, uint32_t i)
{
    PTX_FILL(p,
             "    mul.lo.u32 %head, %head_kv, $0;\n"
             "    add.u32 %head, %head, %block;\n"
             "    add.u32 %head, %head, %group;\n"
             "    add.u32 %head, %head, $1;\n"
             "    mad.lo.u32 %head, %row, $2, %head;\n"
             "    mul.lo.u32 %head, %head, $3;\n"
             PTX_ADDRESS("%part", "partials"),
             s->group, i, a->heads, s->places);
}

void attend_end_split(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    PTX_LINES(p, "    @!%alone bra.uni PART;\n");
    for (uint32_t i = 0; i < s->per_group; i++) {
        PTX_FILL(p, FOLD("%vtop$0", "%vsum$0"), i, log2_of_base(s));
        for (uint32_t j = 0; j < s->each; j++)
            PTX_FILL(p,
                     "    mul.rn.f32 %t$0, %t$0, %keep;\n"
                     "    fma.rn.f32 %t$0, %o$0, %worth, %t$0;\n",
                     i * s->each + j);
    }
    PTX_LINES(p, "    bra.uni NEXT;\n"
                 "PART:\n"
                 "    setp.eq.u32 %less, %column, 0;\n");
    for (uint32_t i = 0; i < s->per_group; i++) {
        part_address(p, a, s, i);
        PTX_FILL(p,
                 "    add.u32 %head, %head, %z;\n"
                 "    mad.wide.u32 %part, %head, $1, %part;\n"
                 "    and.pred %live, %less, %has$0;\n"
                 "    @%live st.global.v2.f32 [%part+$2], {%vtop$0, %vsum$0};\n"
                 "    mad.wide.u32 %part, %column, 4, %part;\n",
                 i, 4 * s->partial, 4 * (s->partial - 2));
        for (uint32_t j = 0; j < s->each; j++)
            PTX_FILL(p,
                     "    and.pred %live, %has$0, %column_live$1;\n"
                     "    @%live st.global.f32 [%part+$2], %o$3;\n",
                     i, j, 4 * j * s->wide, i * s->each + j);
    }
    PTX_LINES(p, "NEXT:\n"
                 "    mov.u32 %i, %nctaid.z;\n"
                 "    add.u32 %z, %z, %i;\n"
                 "    add.u32 %split, %split, %i;\n"
                 "    setp.lt.u32 %more, %z, %splits;\n"
                 "    @%more bra.uni SPLIT;\n");
}

// atom.inc wraps to 0 at the last CTA, which resets the counter for the next launch.
void attend_wait_for_parts(struct ptx *p)
{
    PTX_LINES(p, "    @%alone bra.uni WRITE;\n"
                 "    bar.sync 0;\n"
                 "    setp.ne.u32 %more, %thread, 0;\n"
                 "    @%more bra ARRIVED;\n"
                 PTX_ADDRESS("%at", "counters")
                 "    mov.u32 %i, %nctaid.y;\n"
                 "    mul.lo.u32 %i, %i, %row;\n"
                 "    mov.u32 %near, %ctaid.y;\n"
                 "    add.u32 %i, %i, %near;\n"
                 "    mad.wide.u32 %at, %i, 4, %at;\n"
                 "    sub.u32 %near, %lanes, 1;\n"
                 "    atom.acq_rel.gpu.global.inc.u32 %i, [%at], %near;\n"
                 "    st.shared.u32 [%reds], %i;\n"
                 "ARRIVED:\n"
                 "    bar.sync 0;\n"
                 "    ld.shared.u32 %i, [%reds];\n"
                 "    add.u32 %i, %i, 1;\n"
                 "    setp.ne.u32 %more, %i, %lanes;\n"
                 "    @%more ret;\n");
}

// Folds the parts of the next `n` splits. All loads come first, so that they are in flight together.
static void fold_parts(struct ptx *p, const struct attend_shape *s, uint32_t n)
{
    for (uint32_t split = 0; split < n; split++)
        for (uint32_t i = 0; i < s->per_group; i++) {
            uint32_t at = 4 * split * s->partial, number = split * s->per_group + i;
            PTX_FILL(p, "    @%has$3 ld.global.v2.f32 {%ptop$0, %psum$0}, [%head_part$3+$1];\n", number,
                     at + 4 * (s->partial - 2), 0, i);
            for (uint32_t j = 0; j < s->each; j++)
                PTX_FILL(p,
                         "    and.pred %live, %has$0, %column_live$1;\n"
                         "    @%live ld.global.f32 %pv$2, [%value_part$0+$3];\n",
                         i, j, number * s->each + j, at + 4 * j * s->wide);
        }
    for (uint32_t split = 0; split < n; split++)
        for (uint32_t i = 0; i < s->per_group; i++) {
            uint32_t number = split * s->per_group + i;
            PTX_FILL(p, FOLD("%ptop$2", "%psum$2"), i, log2_of_base(s), number);
            for (uint32_t j = 0; j < s->each; j++)
                PTX_FILL(p,
                         "    mul.rn.f32 %t$0, %t$0, %keep;\n"
                         "    fma.rn.f32 %t$0, %pv$1, %worth, %t$0;\n",
                         i * s->each + j, number * s->each + j);
        }
    for (uint32_t i = 0; i < s->per_group; i++)
        PTX_FILL(p,
                 "    add.u64 %head_part$0, %head_part$0, $1;\n"
                 "    add.u64 %value_part$0, %value_part$0, $1;\n",
                 i, 4 * n * s->partial);
}

// The loop takes `ahead` splits per iteration, then single splits. `ahead` is bounded by the registers for the
// values.
void attend_add_parts(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    uint32_t ahead = s->per_group * s->each <= 4 ? 4 : s->per_group * s->each <= 8 ? 2 : 1;
    PTX_FILL(p,
             "    {\n"
             "    .reg .u64 %head_part<$0>, %value_part<$0>;\n"
             "    .reg .f32 %ptop<$1>, %psum<$1>, %pv<$2>;\n",
             s->per_group, ahead * s->per_group, ahead * s->per_group * s->each);
    for (uint32_t i = 0; i < ahead * s->per_group; i++)
        PTX_FILL(p,
                 "    mov.f32 %ptop$0, 0f00000000;\n"
                 "    mov.f32 %psum$0, 0f00000000;\n",
                 i);
    for (uint32_t i = 0; i < ahead * s->per_group * s->each; i++)
        PTX_FILL(p, "    mov.f32 %pv$0, 0f00000000;\n", i);
    for (uint32_t i = 0; i < s->per_group; i++) {
        part_address(p, a, s, i);
        PTX_FILL(p,
                 "    mad.wide.u32 %head_part$0, %head, $1, %part;\n"
                 "    mad.wide.u32 %value_part$0, %column, 4, %head_part$0;\n",
                 i, 4 * s->partial);
    }
    PTX_LINES(p, "    mov.u32 %z, 0;\n");
    for (uint32_t n = ahead; n; n = n > 1 ? 1 : 0) {
        PTX_FILL(p,
                 "PARTS$0:\n"
                 "    add.u32 %i, %z, $0;\n"
                 "    setp.gt.u32 %more, %i, %splits;\n"
                 "    @%more bra.uni PARTS$0_END;\n"
                 "    mov.u32 %z, %i;\n",
                 n);
        fold_parts(p, s, n);
        PTX_FILL(p,
                 "    bra.uni PARTS$0;\n"
                 "PARTS$0_END:\n",
                 n);
    }
    PTX_LINES(p, "    }\n");
}

void attend_write_row(struct ptx *p, const struct ptx_attend *a, const struct attend_shape *s)
{
    PTX_FILL(p,
             "WRITE:\n"
             PTX_ADDRESS("%py", "y")
             "    mad.wide.u32 %py, %row, $0, %py;\n"
             "    mul.lo.u32 %head, %head_kv, $1;\n"
             "    add.u32 %head, %head, %block;\n"
             "    add.u32 %head, %head, %group;\n"
             "    mad.wide.u32 %py, %head, $2, %py;\n"
             "    mad.wide.u32 %py, %column, 4, %py;\n",
             4 * a->heads * a->v.dim, s->group, 4 * a->v.dim);
    for (uint32_t i = 0; i < s->per_group; i++) {
        PTX_FILL(p, "    rcp.rn.f32 %worth, %tsum$0;\n", i);
        for (uint32_t j = 0; j < s->each; j++)
            PTX_FILL(p,
                     "    and.pred %live, %has$0, %column_live$1;\n"
                     "    mul.rn.f32 %value, %t$2, %worth;\n"
                     "    @%live st.global.f32 [%py+$3], %value;\n",
                     i, j, i * s->each + j, 4 * (i * a->v.dim + j * s->wide));
    }
    PTX_LINES(p, "    ret;\n"
                 "}\n");
}
