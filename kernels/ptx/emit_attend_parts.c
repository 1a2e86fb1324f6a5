// Attention: the PTX that both kernels use, the checks of sizes, the choice of the kernel by form, and the number of
// splits. See emit_attend_parts.h for what is computed, emit_ops.h for when each form is chosen.
#include "kernels/ptx/emit_attend_half.h"

#include <math.h>

// tanh u = 1 - 2 / (e^2u + 1), or its power series to u^9 below 1/4, where that difference would lose digits.
void attend_softcap(struct ptx *p, float cap)
{
    PTX_FILL(p,
             "    abs.f32 %u, %score;\n"
             "    mul.rn.f32 %u, %u, 0f$x0;\n"
             "    mul.rn.f32 %t, %u, 0f$x1;\n"
             "    ex2.approx.ftz.f32 %t, %t;\n"
             "    add.rn.f32 %t, %t, 0f3F800000;\n"
             "    rcp.rn.f32 %t, %t;\n"
             "    fma.rn.f32 %t, %t, 0fC0000000, 0f3F800000;\n"
             "    setp.lt.f32 %less, %u, 0f3E800000;\n"
             "    mul.rn.f32 %keep, %u, %u;\n"
             "    @%less fma.rn.f32 %t, %keep, 0f$x2, 0f$x3;\n"
             "    @%less fma.rn.f32 %t, %t, %keep, 0f$x4;\n"
             "    @%less fma.rn.f32 %t, %t, %keep, 0f$x5;\n"
             "    @%less mul.rn.f32 %t, %t, %keep;\n"
             "    @%less fma.rn.f32 %t, %t, %u, %u;\n"
             "    mul.rn.f32 %t, %t, 0f$x6;\n"
             "    copysign.f32 %score, %score, %t;\n",
             ptx_float_bits((float)(1 / (double)cap)), ptx_float_bits((float)(2 * LOG2_E)),
             ptx_float_bits((float)(62 / 2835.0)), ptx_float_bits((float)(-17 / 315.0)),
             ptx_float_bits((float)(2 / 15.0)), ptx_float_bits((float)(-1 / 3.0)), ptx_float_bits(cap));
}

static int check_part(const struct ptx_kv *kv, uint32_t heads, struct error *err)
{
    if (ptx_check_kv("attend", kv, heads, err))
        return -1;
    if (kv->offset % 16 || kv->page_bytes % 16)
        return fail(err, E_GPU, "attend: keys or values at %u of pages of %u bytes", kv->offset, kv->page_bytes);
    return 0;
}

static int check(const struct ptx_attend *a, struct error *err)
{
    if (!a->heads || !a->heads_kv || a->heads % a->heads_kv || a->heads > UINT16_MAX)
        return fail(err, E_GPU, "attend: %u heads on %u", a->heads, a->heads_kv);
    if (check_part(&a->k, a->heads_kv, err) || check_part(&a->v, a->heads_kv, err) ||
        ptx_check_width("attend", a->heads * MAX(a->k.dim, a->v.dim), err))
        return -1;
    if (!isfinite(a->scale) || !isfinite(a->softcap) || a->softcap < 0)
        return fail(err, E_GPU, "attend: a scale of %g, a cap of %g", (double)a->scale, (double)a->softcap);
    if (a->splits < 1 || a->splits > 256 || (a->splits & (a->splits - 1)) || a->window > INT32_MAX ||
        (a->chunked && !a->window) || (a->firsts && (a->form != PTX_ATTEND_ROWS || a->chunked)))
        return fail(err, E_GPU, "attend: %u splits, a window of %u", a->splits, a->window);
    return 0;
}

int ptx_emit_attend(struct ptx *p, const struct ptx_attend *a, struct ptx_launch *launch, struct error *err)
{
    if (check(a, err))
        return -1;
    const bool tiles = a->form == PTX_ATTEND_TILES;
    if (a->halves && !ptx_attend_takes_halves(a, 80))
        return fail(err, E_GPU, "attend: heads of %u and %u do not suit tensor cores", a->k.dim, a->v.dim);
    if (a->halves)
        (tiles ? half_attend_tiles : half_attend_rows)(p, a, launch);
    else
        (tiles ? attend_tiles : attend_one_row)(p, a, launch);
    return ptx_finish(p, err);
}

uint32_t ptx_attend_tile(const struct ptx_attend *a)
{
    return a->halves ? half_attend_tile(a) : attend_tile(a);
}

size_t ptx_attend_partials(const struct ptx_attend *a, uint32_t rows)
{
    return a->halves ? half_attend_partials(a, rows) : attend_partials(a, rows);
}

size_t ptx_attend_counters(const struct ptx_attend *a, uint32_t rows)
{
    return a->halves ? half_attend_counters(a, rows) : attend_counters(a, rows);
}

uint32_t ptx_attend_splits(uint32_t heads_kv)
{
    uint32_t splits = 64;
    while (splits > 16 && splits * heads_kv > 256)
        splits /= 2;
    return splits;
}

uint32_t ptx_attend_lanes(uint32_t splits, uint32_t rows)
{
    return rows >= PTX_ATTEND_MANY ? 1 : MIN(splits, MAX(1u, 2 * splits / MAX(1u, rows)));
}

// The first position that %row sees, which the step says.
static void load_low(struct ptx *p, const struct ptx_attend *a)
{
    PTX_FILL(p,
             "    {\n"
             "    .reg .u64 %first_at;\n"
             "    ld.param.u64 %first_at, [positions];\n"
             "    cvta.to.global.u64 %first_at, %first_at;\n"
             "    mad.wide.u32 %first_at, %row, 4, %first_at;\n"
             "    ld.global.u32 %low, [%first_at+$0];\n"
             "    }\n",
             a->firsts);
}

// LOW(low, position): sets the register `low` to the first position that a row at `position` sees.
#define LOW_OF_WINDOW(low, position)                                                                                   \
    "    max.u32 " low ", " position ", $0;\n"                                                                         \
    "    sub.u32 " low ", " low ", $0;\n"
#define LOW_OF_CHUNK(low, position)                                                                                    \
    "    rem.u32 " low ", " position ", $1;\n"                                                                         \
    "    sub.u32 " low ", " position ", " low ";\n"
#define LOW(low, position)                                                                                             \
    do {                                                                                                               \
        if (!a->window)                                                                                                \
            PTX_LINES(p, "    mov.u32 " low ", 0;\n");                                                                 \
        else if (a->chunked)                                                                                           \
            PTX_FILL(p, LOW_OF_CHUNK(low, position), 0, a->window);                                                    \
        else                                                                                                           \
            PTX_FILL(p, LOW_OF_WINDOW(low, position), a->window - 1);                                                  \
    } while (0)

void attend_low_of(struct ptx *p, const struct ptx_attend *a, enum attend_low which)
{
    switch (which) {
    case ATTEND_LOW_FIRST:
        if (a->firsts)
            load_low(p, a);
        else
            LOW("%low", "%position");
        break;
    case ATTEND_LOW_LAST:
        LOW("%last_low", "%last_position");
        break;
    case ATTEND_LOW_PAIR:
        LOW("%low_of", "%position_of");
        break;
    }
}

void attend_leave_runs(struct ptx *p, const struct ptx_attend *a)
{
    PTX_LINES(p, "    {\n"
                 "    .reg .pred %there, %run;\n"
                 "    .reg .u32 %next, %n, %mine_n, %table_of, %other_of;\n"
                 "    .reg .u64 %next_at;\n"
                 "    ld.param.u64 %at, [positions];\n"
                 "    cvta.to.global.u64 %at, %at;\n"
                 "    ld.param.u64 %page_at, [tables];\n"
                 "    cvta.to.global.u64 %page_at, %page_at;\n"
                 "    mad.wide.u32 %next_at, %row, 4, %page_at;\n"
                 "    ld.global.u32 %table_of, [%next_at];\n");
    ATTEND_SPLIT(p, a, "%mine_n", "%position");
    for (uint32_t after = 0; after < 2; after++) {
        // The first row of a tile has no row before it; the last row of a tile or of the step has none after it.
        PTX_FILL(p,
                 "    add.u32 %next, %row, $1;\n"
                 "    rem.u32 %n, %next, $0;\n"
                 "    setp.ne.u32 %there, %n, 0;\n",
                 ptx_attend_tile(a), after);
        if (after)
            PTX_LINES(p, "    setp.lt.and.u32 %there, %next, %n_rows, %there;\n");
        else
            PTX_LINES(p, "    sub.u32 %next, %next, 1;\n");
        PTX_FILL(p,
                 "    @!%there bra LONE$0;\n"
                 "    mad.wide.u32 %next_at, %next, 4, %page_at;\n"
                 "    ld.global.u32 %other_of, [%next_at];\n"
                 "    mad.wide.u32 %next_at, %next, 4, %at;\n"
                 "    ld.global.u32 %next, [%next_at];\n",
                 after);
        ATTEND_SPLIT(p, a, "%n", "%next");
        if (after)
            PTX_LINES(p, "    sub.u32 %next, %next, 1;\n");
        else
            PTX_LINES(p, "    add.u32 %next, %next, 1;\n");
        PTX_FILL(p,
                 "    setp.eq.u32 %run, %next, %position;\n"
                 "    setp.eq.and.u32 %run, %n, %mine_n, %run;\n"
                 "    setp.eq.and.u32 %run, %other_of, %table_of, %run;\n"
                 "    @%run ret;\n"
                 "LONE$0:\n",
                 after);
    }
    PTX_LINES(p, "    }\n");
}

void attend_find_splits(struct ptx *p, const struct ptx_attend *a)
{
    attend_low_of(p, a, ATTEND_LOW_FIRST);
    ATTEND_SPLIT(p, a, "%shift", "%position");
    PTX_LINES(p, "    shr.u32 %low_page, %low, 6;\n"
                 "    shr.u32 %last_page, %position, 6;\n"
                 "    shr.u32 %first_split, %low_page, %shift;\n"
                 "    shr.u32 %splits, %last_page, %shift;\n"
                 "    sub.u32 %splits, %splits, %first_split;\n"
                 "    add.u32 %splits, %splits, 1;\n"
                 "    mov.u32 %z, %ctaid.z;\n"
                 "    setp.ge.u32 %no_row, %z, %splits;\n"
                 "    @%no_row ret;\n"
                 "    mov.u32 %lanes, %nctaid.z;\n"
                 "    min.u32 %lanes, %lanes, %splits;\n"
                 "    setp.eq.u32 %alone, %lanes, 1;\n");
}

void attend_find_runs(struct ptx *p, const struct ptx_attend *a, uint32_t rows, uint32_t blocks, uint32_t heads)
{
    PTX_FILL(p,
             "    mov.u32 %first_row, %ctaid.x;\n"
             "    mul.lo.u32 %first_row, %first_row, $0;\n"
             "    ld.param.u64 %step, [step];\n"
             "    cvta.to.global.u64 %step, %step;\n"
             "    ld.global.u32 %n_rows, [%step+$1];\n"
             "    setp.ge.u32 %no_row, %first_row, %n_rows;\n"
             "    @%no_row ret;\n"
             "    add.u32 %end_row, %first_row, $0;\n"
             "    min.u32 %end_row, %end_row, %n_rows;\n"
             PTX_ADDRESS("%positions", "positions") PTX_ADDRESS("%tables", "tables")
             "    mov.u32 %thread, %tid.x;\n"
             "    mov.u32 %block, %ctaid.y;\n"
             "    div.u32 %head_kv, %block, $2;\n"
             "    mul.lo.u32 %i, %head_kv, $2;\n"
             "    sub.u32 %block, %block, %i;\n"
             "    mul.lo.u32 %block, %block, $3;\n",
             rows, ptx_count_at(a->rows), blocks, heads);
    PTX_FILL(p,
             "    setp.gt.u32 %more, %thread, $0;\n"
             "    @%more bra JOINED;\n"
             "    mov.u32 %j, 0;\n"
             "    add.u32 %row, %first_row, %thread;\n"
             "    setp.ge.u32 %more, %row, %end_row;\n"
             "    setp.eq.or.u32 %more, %thread, 0, %more;\n"
             "    @%more bra ALONE;\n"
             "    mad.wide.u32 %at, %row, 4, %tables;\n"
             "    ld.global.u32 %i, [%at];\n"
             "    ld.global.u32 %n, [%at+-4];\n"
             "    setp.eq.u32 %here, %i, %n;\n"
             "    mad.wide.u32 %at, %row, 4, %positions;\n"
             "    ld.global.u32 %position, [%at];\n"
             "    ld.global.u32 %i, [%at+-4];\n",
             rows);
    ATTEND_SPLIT(p, a, "%n", "%position");
    ATTEND_SPLIT(p, a, "%there_n", "%i");
    PTX_LINES(p, "    add.u32 %i, %i, 1;\n"
                 "    setp.eq.and.u32 %here, %i, %position, %here;\n"
                 "    setp.eq.and.u32 %here, %n, %there_n, %here;\n"
                 "    selp.u32 %j, 1, 0, %here;\n"
                 "ALONE:\n"
                 "    mov.u32 %i, joined;\n"
                 "    mad.lo.u32 %i, %thread, 4, %i;\n"
                 "    st.shared.u32 [%i], %j;\n"
                 "JOINED:\n"
                 "    bar.sync 0;\n"
                 "    mov.u32 %run, 0;\n");
}
