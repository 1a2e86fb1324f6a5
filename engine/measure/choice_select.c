// Draws tasks as llama-perplexity does, so that a part of a file gives the same score: with the Mersenne twister MT19937
// (Matsumoto and Nishimura, 1998) and the seed 1. For HellaSwag it asks GNU's C++ library for a number below n, which is
// Lemire's method (2019): the upper half of a 64-bit product, and a draw that would favour some numbers is repeated. For
// the other kinds it scales a draw in single precision.
#include "engine/measure/choice_tasks.h"

enum { WORDS = 624, APART = 397, DRAW_SEED = 1 };

struct twister {
    uint32_t word[WORDS];
    int at;
};

static void twister_seed(struct twister *t, uint32_t seed)
{
    t->word[0] = seed;
    for (uint32_t i = 1; i < WORDS; i++)
        t->word[i] = 1812433253u * (t->word[i - 1] ^ t->word[i - 1] >> 30) + i;
    t->at = WORDS;
}

static void twist(struct twister *t)
{
    for (int i = 0; i < WORDS; i++) {
        uint32_t y = (t->word[i] & 0x80000000u) | (t->word[(i + 1) % WORDS] & 0x7FFFFFFFu);
        t->word[i] = t->word[(i + APART) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908B0DFu : 0);
    }
    t->at = 0;
}

static uint32_t draw(struct twister *t)
{
    if (t->at == WORDS)
        twist(t);
    uint32_t y = t->word[t->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9D2C5680u;
    y ^= y << 15 & 0xEFC60000u;
    return y ^ y >> 18;
}

static uint32_t draw_below(struct twister *t, uint32_t n)
{
    uint64_t product = (uint64_t)draw(t) * n;
    uint32_t least = (uint32_t)-n % n; // lower halves below this one come up once too often
    while ((uint32_t)product < least)
        product = (uint64_t)draw(t) * n;
    return (uint32_t)(product >> 32);
}

static uint32_t draw_scaled(struct twister *t, uint32_t n)
{
    float drawn = 0x1p-32f * (float)draw(t) * (float)n;
    return MIN((uint32_t)drawn, n - 1);
}

// Draws from a list of indices, which becomes shorter.
static int32_t take_one(struct twister *t, int32_t *list, int n, bool ordered)
{
    uint32_t at = ordered ? draw_below(t, (uint32_t)n) : draw_scaled(t, (uint32_t)n);
    int32_t taken = list[at];
    if (ordered)
        memmove(&list[at], &list[at + 1], ((size_t)n - 1 - at) * sizeof *list);
    else
        list[at] = list[n - 1];
    return taken;
}

int choice_tasks_select(struct choice_tasks *t, int n, struct error *err)
{
    bool ordered = t->kind == CHOICE_HELLASWAG; // what is left keeps its order, and a whole file is drawn from as well
    int wanted = n && n < t->n ? n : t->n;
    if (wanted == t->n && !ordered)
        return 0;
    struct choice_task *chosen = ARENA_ARRAY(&t->arena, struct choice_task, (size_t)wanted);
    int32_t *list = ARENA_ARRAY(&t->arena, int32_t, (size_t)t->n);
    struct twister random;
    if (!chosen || !list)
        return fail(err, E_MEMORY, "no memory for %d tasks", wanted);
    twister_seed(&random, DRAW_SEED);
    for (int i = 0; i < t->n; i++)
        list[i] = i;
    for (int i = 0; i < wanted; i++)
        chosen[i] = t->tasks[take_one(&random, list, t->n - i, ordered)];
    t->tasks = chosen;
    t->n = wanted;
    return 0;
}
