// Turns a kernel into one for programmatic dependent launch; see emit_early.h.
#include "kernels/ptx/emit_early.h"

static const char body[] = "\n{\n";
static const char begin[] = "    griddepcontrol.launch_dependents;\n"
                            "    griddepcontrol.wait;\n";
enum { VERSION_AT = 9, TARGET_AT = 24 }; // of the digits in ".version 0.0\n.target sm_00\n"

// Raises the digits at `at` to those of `least`, which has as many.
static void raise_to(char *at, const char *least, size_t n)
{
    if (memcmp(at, least, n) < 0)
        memcpy(at, least, n);
}

int ptx_begin_early(struct ptx *p, struct error *err)
{
    const size_t more = sizeof(begin) - 1;
    char *at = p->size < TARGET_AT + 3 ? NULL : memmem(p->data, p->size, body, sizeof(body) - 1);
    if (!at || p->cap - p->size < more)
        return fail(err, E_GPU, "PTX: no room to let a kernel of %zu bytes begin early", p->size);
    // targets of three digits are above sm_90
    if (p->data[TARGET_AT + 2] == '\n')
        raise_to(p->data + TARGET_AT, "90", 2);
    raise_to(p->data + VERSION_AT, "7.8", 3);
    at += sizeof(body) - 1;
    memmove(at + more, at, p->size - (size_t)(at - p->data) + 1);
    memcpy(at, begin, more);
    p->size += more;
    return 0;
}
