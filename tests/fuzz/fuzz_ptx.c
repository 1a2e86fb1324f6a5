// Fuzz target: any bytes as PTX. They are refused with a line, or they are kernels that can be launched: two CTAs of 33
// threads, whose parameters all are the address of a small allocation. A launch ends, at the latest when its steps are
// used up, with success or with a fault that names the kernel; and the same launch on another machine ends the same and
// leaves the same bytes.
//
// With -DFUZZ_SEEDS it is a program that writes a few sound texts into the directory that it is given, to start from.
#include "tests/ptx/interpreter.h"
#include "tests/ptx/simt_isa.h"

#include <stdio.h>
#include <stdlib.h>

enum { MEMORY = 1024, STEPS = 3000, KERNELS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_ptx: %s\n", what);
    abort();
}

struct ending {
    int status;
    struct error err;
    uint8_t memory[MEMORY];
};

static void launch_kernel(struct simt *s, const struct simt_kernel *k, uint64_t at, struct ending *e)
{
    uint64_t params[16];
    struct simt_dim block = {33, 1, 1};
    if (k->params_size > sizeof params)
        return;
    for (size_t i = 0; i < COUNT_OF(params); i++)
        params[i] = at;
    if (k->req[0])
        block = (struct simt_dim){k->req[0], k->req[1], k->req[2]};
    e->status = simt_launch(s, k, (struct simt_dim){2, 1, 1}, block, 256, params, k->params_size, &e->err);
    if (!e->status)
        return;
    check(e->err.code == E_GPU || e->err.code == E_MEMORY, "an odd error code");
    check(e->err.code == E_MEMORY || !strncmp(e->err.text, "kernel ", 7), "a fault that names no kernel");
}

static void try_text(struct str text, struct ending *e)
{
    struct simt *s = simt_new();
    uint64_t at = simt_alloc(s, MEMORY);
    for (size_t i = 0; i < MEMORY; i++)
        e->memory[i] = (uint8_t)(i * 37 >> 2);
    check(at && !simt_put(s, at, e->memory, MEMORY, &e->err), "no memory to begin with");
    simt_set_limit(s, STEPS);
    e->status = simt_load(s, text, &e->err);
    if (e->status)
        check(strlen(e->err.text) > 0, "a refusal without words");
    const struct simt_kernel *k = e->status ? NULL : simt_newest(s);
    for (int i = 0; k && i < KERNELS; i++, k = k->older)
        launch_kernel(s, k, at, e);
    check(!simt_get(s, at, e->memory, MEMORY, &(struct error){0}), "the memory is gone");
    simt_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ending first, second; // large
    char *text = malloc(size + 1);      // of its own, so that a read past the end is found
    memcpy(text, size ? (const char *)data : "", size);
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    try_text((struct str){text, size}, &first);
    try_text((struct str){text, size}, &second);
    check(first.status == second.status && !strcmp(first.err.text, second.err.text), "another end the second time");
    check(!memcmp(first.memory, second.memory, MEMORY), "other bytes the second time");
    free(text);
    return 0;
}

#ifdef FUZZ_SEEDS
#define KERNEL(body)                                                                                                                                              \
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n"                                                      \
    ".reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<12>;\n.reg .b64 %d<8>;\n.reg .f32 %f<9>;\n"                                                                \
    ".shared .align 128 .b8 tile[1024];\n"                                                                                                                        \
    "ld.param.u64 %d0, [in];\nld.param.u64 %d1, [out];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d2, %r0, 4;\n"                                                        \
    "mov.u32 %r10, %ctaid.x;\nmul.wide.u32 %d4, %r10, 256;\nadd.u64 %d4, %d1, %d4;\nadd.u64 %d2, %d0, %d2;\nld.global.u32 %r1, [%d2];\nmov.u32 %r9, tile;\n" body \
    "\nret;\n}\n"

int main(int argc, char **argv)
{
    static const char *const texts[] = {
        KERNEL("atom.global.add.u32 %r2, [%d1+256], %r1;\nred.global.max.s32 [%d1+260], %r1;\nmembar.gl;\n"
               "atom.global.cas.b32 %r3, [%d1+264], %r1, %r2;"),
        KERNEL(
            "mad.lo.s32 %r2, %r1, 3, %r0;\nbfe.u32 %r3, %r2, 4, 8;\nprmt.b32 %r4, %r3, %r2, 0x5140;\n"
            "lop3.b32 %r5, %r4, %r3, %r2, 0xe8;\ndp4a.s32.u32 %r6, %r5, %r4, %r3;\nshf.l.wrap.b32 %r7, %r6, %r5, 9;\n"
            "div.u32 %r7, %r7, %r1;\nsetp.eq.u32 %p2, %r7, 3;\nsetp.lt.and.s32 %p0|%p1, %r7, 9, !%p2;"),
        KERNEL("cvt.rn.f32.s32 %f0, %r1;\nfma.rn.ftz.f32 %f1, %f0, 0f3F800000, 0.5;\nex2.approx.ftz.f32 %f2, %f1;\n"
               "cvt.rn.f16.f32 %h0, %f2;\nmov.b32 %r2, {%h0, %h0};\nfma.rn.f16x2 %r3, %r2, %r2, %r2;\n"
               "cvt.rni.sat.s8.f32 %r4, %f1;\nsetp.eq.u32 %p0, %r0, 5;\n@%p0 st.global.f32 [%d4+256], %f2;"),
        KERNEL("shl.b32 %r2, %r0, 2;\nadd.u32 %r2, %r2, %r9;\nst.shared.u32 [%r2], %r1;\nbar.sync 0;\n"
               "setp.lt.u32 %p0, %r0, 32;\n@!%p0 bra done;\nshfl.sync.bfly.b32 %r3, %r1, 16, 31, -1;\n"
               "vote.sync.ballot.b32 %r4, %p0, 0xffffffff;\nredux.sync.add.s32 %r5, %r4, -1;\nbar.warp.sync -1;\n"
               "loop:\nadd.u32 %r3, %r3, %r5;\nsetp.lt.u32 %p1, %r3, 100;\n@%p1 bra.uni loop;\ndone:"),
        KERNEL(
            "mul.lo.u32 %r2, %r0, 16;\nadd.u32 %r2, %r2, %r9;\nsetp.lt.u32 %p0, %r0, 32;\n"
            "@%p0 cp.async.cg.shared.global [%r2], [%d0], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;\n"
            "bar.sync 0;\n@!%p0 bra done;\nldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];\n"
            "mov.f32 %f0, 0f00000000;\n"
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r3, %r4, %r5, %r6}, "
            "{%r3, %r4}, {%f0, %f0, %f0, %f0};\ndone:"),
        KERNEL(".local .align 4 .b8 own[16];\nmov.u64 %d3, own;\ncvta.local.u64 %d3, %d3;\nst.u32 [%d3+4], %r1;\n"
               "{\n.reg .b32 %t;\nld.u32 %t, [%d3+4];\nst.volatile.global.u32 [%d1+512], %t;\n}\n"
               "griddepcontrol.wait;\nfence.acq_rel.gpu;\nld.acquire.gpu.global.u32 %r2, [%d1+512];"),
        ".version 6.3\n.target sm_75\n.address_size 64\n.const .align 4 .u32 table[3] = {1, 2, -3};\n"
        ".extern .shared .align 16 .b8 more[];\n.global .f32 one = 0f3F800000;\n"
        ".visible .entry a()\n.maxntid 64, 1, 1\n{\n.reg .f32 %f;\n.reg .u64 %d;\nmov.u64 %d, table;\n"
        "ld.const.f32 %f, [%d+4];\nst.shared.f32 [more], %f; // by all: a race\nret;\n}\n"
        ".visible .entry b()\n.reqntid 8\n{\n/* none */ trap;\n}\n",
    };
    for (size_t i = 0; argc > 1 && i < COUNT_OF(texts); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/seed%zu", argv[1], i);
        FILE *f = fopen(path, "w");
        check(f && fputs(texts[i], f) >= 0 && fclose(f) == 0, "a seed cannot be written");
    }
    return 0;
}
#endif
