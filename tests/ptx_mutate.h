// Changes emitted kernels in one random place, for tests that must detect wrong kernels: another register of the same
// type, a number off by one, a comparison or an operation reversed, a barrier or another instruction removed.
//
// Ownership: texts belong to the caller. Threads: any; a state of random numbers is used by one.
#ifndef QUERN_PTX_MUTATE_H
#define QUERN_PTX_MUTATE_H

#include "gguf/base.h"

uint64_t mutate_random(uint64_t *state);
size_t mutate_below(uint64_t *state, size_t n); // 0 to n - 1

enum { MUTATE_LINES = 4096, MUTATE_REGISTERS = 512 };
struct mutate_span {
    size_t at, len;
};
// Where a text can be changed.
struct mutate_sites {
    struct mutate_span lines[MUTATE_LINES]; // instructions, without leading blanks and line ends
    size_t n_lines;
    struct mutate_span registers[MUTATE_REGISTERS]; // as declared, with the type of each
    struct mutate_span types[MUTATE_REGISTERS];
    size_t n_registers;
};
void mutate_find_sites(const char *text, size_t len, struct mutate_sites *out);

// Makes one random change in a text of `size` bytes, whose buffer has `cap`. Sites are those of the unchanged text. A
// number that is a multiple of `unit`, if `unit` is not 0, changes by a whole unit. Returns the new length, 0 if the
// chosen kind of change does not apply to the chosen line. *what: the kind; *where: the line's offset.
size_t mutate(char *text, size_t size, size_t cap, const struct mutate_sites *s, uint32_t unit, uint64_t *state,
              const char **what, size_t *where);

#endif
