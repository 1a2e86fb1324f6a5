// Dequantises the weight types to floats. See emit_type.h for the interface, and gguf/dtype.c for the layout and
// formula of each type.
#include "kernels/ptx/emit_type.h"

#include "kernels/ptx/emit_bytes.h"

// ---- plain floats: a unit is a part

static void part_f32(const struct ptx_part *part)
{
    for (uint32_t i = 0; i < 8; i++) {
        PTX_FILL(part->p, "    ld.global.nc.v4.f32 {%v0, %v1, %v2, %v3}, [%chunk+$0];\n", 512 * i);
        part->put(part, 4 * i);
    }
}

static void part_f16(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%chunk+$0];\n", 512 * i);
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t w = 0; w < 2; w++)
                PTX_FILL(p,
                         "    mov.b32 {%h, %h1}, %q$0;\n"
                         "    cvt.f32.f16 %v$1, %h;\n"
                         "    cvt.f32.f16 %v$2, %h1;\n",
                         2 * half + w, 2 * w, 2 * w + 1);
            part->put(part, 8 * i + 4 * half);
        }
    }
}

static void part_bf16(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    for (uint32_t i = 0; i < 4; i++) {
        PTX_FILL(p, "    ld.global.nc.v4.u32 {%q0, %q1, %q2, %q3}, [%chunk+$0];\n", 512 * i);
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t w = 0; w < 2; w++)
                PTX_FILL(p,
                         "    shl.b32 %t0, %q$0, 16;\n"
                         "    mov.b32 %v$1, %t0;\n"
                         "    and.b32 %t0, %q$0, 0xffff0000;\n"
                         "    mov.b32 %v$2, %t0;\n",
                         2 * half + w, 2 * w, 2 * w + 1);
            part->put(part, 8 * i + 4 * half);
        }
    }
}

// ---- a small integer times a scale: emit_bytes.c unpacks both

// Sets %d1 and %m1, the scale and the minimum of run `run` of 16.
static void run_scale(struct ptx *p, const struct ptx_bytes *b, uint32_t run)
{
    PTX_FILL(p,
             "    cvt.rn.f32.s32 %d1, %s$0;\n"
             "    mul.rn.f32 %d1, %d, %d1;\n",
             run);
    if (b->min)
        PTX_FILL(p,
                 "    cvt.rn.f32.u32 %m1, %n$0;\n"
                 "    mul.rn.f32 %m1, %m, %m1;\n",
                 run);
}

static void part_bytes(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    const struct ptx_bytes *b = ptx_bytes_of(part->type);
    ptx_type_bytes(part);
    if (b->scales == PTX_SCALE_FLOAT)
        PTX_LINES(p, "    mov.f32 %d1, %d;\n");
    if (b->scales == PTX_SCALE_FLOAT && b->min)
        PTX_LINES(p, "    neg.f32 %m1, %m;\n");
    for (uint32_t i = 0; i < 8; i++) {
        if ((b->scales == PTX_SCALE_16 && i % 4 == 0) || (b->scales == PTX_SCALE_32 && i == 0))
            run_scale(p, b, i / 4);
        for (uint32_t j = 0; j < 4; j++) {
            if (b->is_signed)
                PTX_FILL(p,
                         "    bfe.s32 %t0, %q$0, $1, 8;\n"
                         "    cvt.rn.f32.s32 %v$2, %t0;\n",
                         i, 8 * j, j);
            else
                PTX_FILL(p,
                         "    bfe.u32 %t0, %q$0, $1, 8;\n"
                         "    cvt.rn.f32.u32 %v$2, %t0;\n",
                         i, 8 * j, j);
            if (b->less)
                PTX_FILL(p, "    sub.rn.f32 %v$0, %v$0, 0f$x1;\n", j, ptx_float_bits(b->less));
            PTX_FILL(p, "    mul.rn.f32 %v$0, %d1, %v$0;\n", j);
            if (b->min)
                PTX_FILL(p, "    sub.rn.f32 %v$0, %v$0, %m1;\n", j);
        }
        part->put(part, 4 * i);
    }
}

// ---- one bit, two bits

// Q1_0: a unit is two blocks of 128; %t2 becomes the part's bits.
static void part_q1_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_piece(part, 4);
    PTX_LINES(p, "    shr.u32 %t0, %part, 2;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.b16 %h, [%piece];\n"
                 "    cvt.f32.f16 %d, %h;\n"
                 "    neg.f32 %m, %d;\n");
    ptx_type_array(p, 0, 4);
    PTX_LINES(p, "    ld.global.nc.u32 %t2, [%at];\n");
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    and.b32 %t0, %t2, $0;\n"
                     "    setp.ne.u32 %pred, %t0, 0;\n"
                     "    selp.f32 %v$1, %d, %m, %pred;\n",
                     1u << (4 * i + b), b);
        part->put(part, 4 * i);
    }
}

// Q2_0: a unit is four blocks of 64; the four weights of a byte are consecutive.
static void part_q2_0(const struct ptx_part *part)
{
    struct ptx *p = part->p;
    ptx_type_piece(part, 8);
    PTX_LINES(p, "    shr.u32 %t0, %part, 1;\n"
                 "    mad.wide.u32 %piece, %t0, 2, %piece;\n"
                 "    ld.global.nc.b16 %h, [%piece];\n"
                 "    cvt.f32.f16 %d, %h;\n");
    ptx_type_array(p, 0, 8);
    PTX_LINES(p, "    ld.global.nc.v2.u32 {%q0, %q1}, [%at];\n");
    for (uint32_t i = 0; i < 8; i++) {
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    bfe.u32 %t0, %q$0, $1, 2;\n"
                     "    cvt.rn.f32.u32 %v$2, %t0;\n",
                     i / 4, i % 4 * 8 + 2 * b, b);
        for (uint32_t b = 0; b < 4; b++)
            PTX_FILL(p,
                     "    sub.rn.f32 %v$0, %v$0, 0f3F800000;\n"
                     "    mul.rn.f32 %v$0, %v$0, %d;\n",
                     b);
        part->put(part, 4 * i);
    }
}

// ---- all types

#define part_q4_0 part_bytes
#define part_q4_1 part_bytes
#define part_q5_0 part_bytes
#define part_q5_1 part_bytes
#define part_q8_0 part_bytes
#define part_q2_k part_bytes
#define part_q3_k part_bytes
#define part_q4_k part_bytes
#define part_q5_k part_bytes
#define part_q6_k part_bytes
#define part_iq4_nl part_bytes
#define part_iq4_xs part_bytes
#define part_mxfp4 part_bytes
#define part_iq2_xxs ptx_type_grid_part
#define part_iq2_xs ptx_type_grid_part
#define part_iq2_s ptx_type_grid_part
#define part_iq3_xxs ptx_type_grid_part
#define part_iq3_s ptx_type_grid_part
#define part_iq1_s ptx_type_grid_part
#define part_iq1_m ptx_type_grid_part
#define part_tq1_0 ptx_type_grid_part
#define part_tq2_0 ptx_type_grid_part
#define part_nvfp4 ptx_type_grid_part
#define part_i8 NULL
#define part_i16 NULL
#define part_i32 NULL
#define part_i64 NULL
#define part_f64 NULL
static void (*const parts[DT_COUNT])(const struct ptx_part *) = {
#define DTYPE(NAME, name, id, elements, bytes, kind) [DT_##NAME] = part_##name,
#include "gguf/dtype.def"
#undef DTYPE
};

void ptx_type_part(const struct ptx_part *part)
{
    PTX_LINES(part->p, "    {\n" PTX_PART_REGS "    .reg .f32 %v<4>, %d1, %m1;\n");
    parts[part->type](part);
    PTX_LINES(part->p, "    }\n");
}
