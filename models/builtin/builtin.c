// The assembler copies the file between two labels: no array of millions of numbers for the compiler, no copy at run
// time, and pages that are read only when they are used, as those of a mapped file.
#include "models/builtin/builtin.h"

#ifdef QUERN_BUILTIN_FILE
__asm__(".pushsection .rodata.quern_builtin, \"a\", %progbits\n"
        ".balign 64\n"
        ".hidden quern_builtin_from\n"
        ".globl quern_builtin_from\n"
        "quern_builtin_from:\n"
        ".incbin \"" QUERN_BUILTIN_FILE "\"\n"
        ".hidden quern_builtin_to\n"
        ".globl quern_builtin_to\n"
        "quern_builtin_to:\n"
        ".byte 0\n" // so that the end is an address of this section
        ".popsection\n");

extern const uint8_t quern_builtin_from[], quern_builtin_to[];

struct bytes builtin_image(void)
{
    return (struct bytes){quern_builtin_from, (size_t)((uintptr_t)quern_builtin_to - (uintptr_t)quern_builtin_from)};
}
#else
struct bytes builtin_image(void)
{
    return (struct bytes){0};
}
#endif
