// Emits what joined products need: several products of the same rows of x, such as those of Q, K and V or of a gate and
// its up, in one launch.
//
// The naive form is a launch for each. A launch costs microseconds of which little is hidden when there are few rows,
// and one of 1,024 outputs has 32 CTAs of 32 outputs, which is work for a quarter of a large card. Joined, the CTAs of all
// products run side by side.
//
// Each product is a section, and the CTAs of a section follow those of the section before in x. A CTA finds its section by
// comparisons of %ctaid.x with constants; with it the weights, the bias and the output, which are parameters, and the
// number of outputs, which is a constant. Then it does what it would do in a launch of its own: the same tiles with the
// same order of sums, and so every output has the same bits. A CTA computes outputs of one section alone.
//
// All that differs between sections is read again at the end of a kernel, so that no registers hold it in the loop. Code
// for a single product is that of one section: its numbers stand in the instructions.
#include "kernels/ptx/emit_matmul_parts.h"

int ptx_matmul_check_sections(const struct ptx_matmul *m, struct error *err)
{
    uint32_t outputs = 0;
    if (!m->n_sections)
        return 0;
    if (m->n_sections < 2 || m->n_sections > PTX_SECTIONS || m->residual || m->n_used || m->x_shared)
        return fail(err, E_GPU, "matmul: %u sections, or sections with a residual or experts", m->n_sections);
    for (uint32_t i = 0; i < m->n_sections; i++) {
        if (!m->sections[i].n_out || m->sections[i].n_out > m->n_out || m->sections[i].y_stride % 4)
            return fail(err, E_GPU, "matmul: section %u has %u outputs, %u bytes apart", i, m->sections[i].n_out,
                        m->sections[i].y_stride);
        outputs += m->sections[i].n_out;
    }
    if (outputs != m->n_out)
        return fail(err, E_GPU, "matmul: sections have %u outputs of %u", outputs, m->n_out);
    return 0;
}

// The number of the first CTA of section i; of that behind the last: the number of CTAs.
static uint32_t first_of(const struct ptx_matmul *m, uint32_t i)
{
    uint32_t first = 0;
    while (i--)
        first += ptx_tiles(m->sections[i].n_out, ptx_matmul_outputs(m));
    return first;
}

uint32_t ptx_matmul_ctas(const struct ptx_matmul *m)
{
    return m->n_sections ? first_of(m, m->n_sections) : ptx_tiles(m->n_out, ptx_matmul_outputs(m));
}

// Whether sections differ in their numbers of outputs or in the strides of their rows.
static bool differ(const struct ptx_matmul *m)
{
    for (uint32_t i = 1; i < m->n_sections; i++)
        if (m->sections[i].n_out != m->sections[0].n_out || m->sections[i].y_stride != m->sections[0].y_stride)
            return true;
    return false;
}

static uint32_t last_tile(uint32_t n_out)
{
    return ptx_tiles(n_out, PTX_TILE_ROWS) - 1;
}

// ---- the entry

void ptx_matmul_section_params(struct ptx *p, const struct ptx_matmul *m)
{
    for (uint32_t i = 1; i < m->n_sections; i++)
        PTX_FILL(p,
                 ",\n"
                 "    .param .u64 w$0,\n"
                 "    .param .u64 y$0,\n"
                 "    .param .u64 bias$0",
                 i);
}

void ptx_matmul_section_regs(struct ptx *p, const struct ptx_matmul *m)
{
    if (m->n_sections)
        PTX_FILL(p, "    .reg .pred %section<$0>;\n", m->n_sections);
    if (differ(m))
        PTX_LINES(p, "    .reg .u32 %n_out, %last_tile, %y_stride;\n");
}

void ptx_matmul_find_section(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    mov.u32 %tile, %ctaid.x;\n");
    for (uint32_t i = 1; i < m->n_sections; i++)
        PTX_FILL(p, "    setp.ge.u32 %section$0, %tile, $1;\n", i, first_of(m, i));
    for (uint32_t i = 1; i < m->n_sections; i++)
        PTX_FILL(p, "    @%section$0 sub.u32 %tile, %tile, $1;\n", i, first_of(m, i) - first_of(m, i - 1));
    for (uint32_t i = 0; differ(m) && i < m->n_sections; i++) {
        const uint32_t values[] = {m->sections[i].n_out, last_tile(m->sections[i].n_out), m->sections[i].y_stride};
        static const char *const names[] = {" mov.u32 %n_out, ", " mov.u32 %last_tile, ", " mov.u32 %y_stride, "};
        for (size_t v = 0; v < COUNT_OF(names); v++) {
            if (i)
                PTX_FILL(p, "    @%section$0", i);
            else
                PTX_LINES(p, "   ");
            ptx_word(p, names[v]);
            PTX_FILL(p, "$0;\n", values[v]);
        }
    }
}

// ---- what a section has

void ptx_matmul_address(struct ptx *p, const struct ptx_matmul *m, const char *reg, const char *name)
{
    for (uint32_t i = 0; i < MAX(m->n_sections, 1u); i++) {
        if (i)
            PTX_FILL(p, "    @%section$0", i);
        else
            PTX_LINES(p, "   ");
        const char *const words[] = {" ld.param.u64 ", reg, ", [", name};
        for (size_t w = 0; w < COUNT_OF(words); w++)
            ptx_word(p, words[w]);
        if (i)
            PTX_FILL(p, "$0", i);
        PTX_LINES(p, "];\n");
    }
    const char *const words[] = {"    cvta.to.global.u64 ", reg, ", ", reg, ";\n"};
    for (size_t w = 0; w < COUNT_OF(words); w++)
        ptx_word(p, words[w]);
}

void ptx_matmul_put_n_out(struct ptx *p, const struct ptx_matmul *m)
{
    if (differ(m))
        PTX_LINES(p, "%n_out");
    else
        PTX_FILL(p, "$0", m->n_sections ? m->sections[0].n_out : m->n_out);
}

void ptx_matmul_put_last_tile(struct ptx *p, const struct ptx_matmul *m)
{
    if (differ(m))
        PTX_LINES(p, "%last_tile");
    else
        PTX_FILL(p, "$0", last_tile(m->n_sections ? m->sections[0].n_out : m->n_out));
}

void ptx_matmul_put_stride(struct ptx *p, const struct ptx_matmul *m, uint32_t stride)
{
    if (differ(m))
        PTX_LINES(p, "%y_stride");
    else
        PTX_FILL(p, "$0", stride);
}

void ptx_matmul_end_past(struct ptx *p, const struct ptx_matmul *m)
{
    PTX_LINES(p, "    setp.ge.u32 %in, %output, ");
    ptx_matmul_put_n_out(p, m);
    PTX_LINES(p, ";\n"
                 "    @%in ret;\n");
}
