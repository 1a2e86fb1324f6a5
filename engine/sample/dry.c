// The Z function of the reversed text gives the length of every repetition in linear time. Breakers are matched as
// tokens, not as text: each breaker is compared with the whole vocabulary in advance, which gives two bit sets and a
// table sorted by first token. The text is then searched backwards for the latest breaker.
#include "engine/sample/dry.h"

#include <math.h>
#include <stdlib.h>

// --- breakers ---

enum { BREAKER_BYTES = 40, TAIL_MAX = 20 };

// A breaker that begins in token `head`, at its end, and continues with the n tokens of the tail.
struct breaker {
    int32_t head;
    int n;
    int32_t tail[TAIL_MAX];
};

struct dry_breakers {
    uint32_t *single;        // a bit for each token: whether it contains a whole breaker
    uint32_t *heads;         // a bit for each token: whether a breaker begins at its end
    struct breaker *partial; // [n_partial] sorted by head
    size_t n_partial, cap;
    int n_vocab;
};

static bool has_bit(const uint32_t *bits, int32_t i)
{
    return bits[i / 32] >> (i % 32) & 1;
}

static int add_partial(struct dry_breakers *b, int32_t head, const struct token_list *tail, struct error *err)
{
    if (b->n_partial == b->cap) {
        size_t cap = b->cap ? 2 * b->cap : 64;
        struct breaker *grown = realloc(b->partial, cap * sizeof *grown);
        if (!grown)
            return fail(err, E_MEMORY, "no memory for sequence breakers");
        b->partial = grown;
        b->cap = cap;
    }
    struct breaker *it = &b->partial[b->n_partial++];
    *it = (struct breaker){.head = head, .n = (int)MIN(tail->n, (size_t)TAIL_MAX)};
    memcpy(it->tail, tail->ids, (size_t)it->n * sizeof *it->tail);
    b->heads[head / 32] |= 1u << (head % 32);
    return 0;
}

// Adds all tokens that end with the first k bytes of the text and do not contain the whole text.
static int add_heads(struct dry_breakers *b, const struct tokenizer *t, struct str text, size_t k, struct error *err)
{
    struct token_list tail = {0};
    int status = tokenizer_encode(t, (struct str){text.data + k, text.len - k}, 0, &tail, err);
    for (int32_t id = 0; !status && id < b->n_vocab; id++) {
        struct str piece = tokenizer_piece(t, id, true);
        bool ends_with = piece.len >= k && !memcmp(piece.data + piece.len - k, text.data, k);
        if (ends_with && !memmem(piece.data, piece.len, text.data, text.len))
            status = add_partial(b, id, &tail, err);
    }
    token_list_free(&tail);
    return status;
}

static int by_head(const void *a, const void *b)
{
    const struct breaker *x = a, *y = b;
    return (x->head > y->head) - (x->head < y->head);
}

int dry_breakers_new(struct dry_breakers **out, const struct tokenizer *t, const struct str *texts, int n,
                     struct error *err)
{
    struct dry_breakers *b = calloc(1, sizeof *b);
    if (!b)
        return fail(err, E_MEMORY, "no memory for sequence breakers");
    b->n_vocab = tokenizer_n_vocab(t);
    size_t words = (size_t)b->n_vocab / 32 + 1;
    b->single = calloc(words, sizeof *b->single);
    b->heads = calloc(words, sizeof *b->heads);
    int status = b->single && b->heads ? 0 : fail(err, E_MEMORY, "no memory for sequence breakers");
    for (int32_t id = 0; !status && id < b->n_vocab; id++) {
        struct str piece = tokenizer_piece(t, id, true);
        for (int i = 0; i < n; i++)
            if (texts[i].len && memmem(piece.data, piece.len, texts[i].data, MIN(texts[i].len, BREAKER_BYTES)))
                b->single[id / 32] |= 1u << (id % 32);
    }
    for (int i = 0; i < n; i++) {
        struct str text = {texts[i].data, MIN(texts[i].len, (size_t)BREAKER_BYTES)};
        for (size_t k = 1; !status && k < text.len; k++)
            status = add_heads(b, t, text, k, err);
    }
    if (!status && b->n_partial)
        qsort(b->partial, b->n_partial, sizeof *b->partial, by_head);
    if (status) {
        dry_breakers_free(b);
        return status;
    }
    *out = b;
    return 0;
}

void dry_breakers_free(struct dry_breakers *b)
{
    if (!b)
        return;
    free(b->single);
    free(b->heads);
    free(b->partial);
    free(b);
}

// The longest breaker that begins in the i-th token from the end of the text (0: the last token): the number of tokens
// after that one which belong to it. -1 when no breaker begins there.
static int breaker_at(const struct dry_breakers *b, const int32_t *last, int i)
{
    int32_t head = last[-i];
    if (head < 0 || head >= b->n_vocab)
        return -1;
    int longest = has_bit(b->single, head) ? 0 : -1;
    if (!has_bit(b->heads, head))
        return longest;
    size_t low = 0, high = b->n_partial;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        *(b->partial[mid].head < head ? &low : &high) = b->partial[mid].head < head ? mid + 1 : mid;
    }
    for (; low < b->n_partial && b->partial[low].head == head; low++) {
        const struct breaker *it = &b->partial[low];
        if (it->n > longest && it->n <= i && !memcmp(it->tail, last - i + 1, (size_t)it->n * sizeof *last))
            longest = it->n;
    }
    return longest;
}

// --- repetitions ---

bool dry_reserve(struct dry_space *space, int last)
{
    int cap = last < 0 ? DRY_LAST_MAX : MIN(last, (int)DRY_LAST_MAX);
    if (cap <= space->cap)
        return true;
    dry_space_free(space);
    space->repeats = malloc((size_t)cap * sizeof *space->repeats);
    space->tokens = malloc((size_t)cap * sizeof *space->tokens);
    if (!space->repeats || !space->tokens)
        return false;
    space->cap = cap;
    return true;
}

void dry_space_free(struct dry_space *space)
{
    free(space->repeats);
    free(space->tokens);
    *space = (struct dry_space){0};
}

// Sets repeats[i], for 0 < i < n, to the number of tokens before and at position last - i that equal the tokens at the
// end of the text. This is the Z function of the reversed text, in linear time: the segment [left, right) of the
// reversed text equals its beginning, so the values of the beginning give a lower bound for the positions within it.
static void find_repeats(const int32_t *last, int n, int32_t *repeats)
{
    int left = 0, right = 0;
    for (int i = 1; i < n; i++) {
        int length = i < right ? MIN(repeats[i - left], right - i) : 0;
        while (i + length < n && last[-length] == last[-(i + length)])
            length++;
        repeats[i] = length;
        if (i + length > right) {
            left = i;
            right = i + length;
        }
    }
}

int dry_repeats(struct dry_space *space, const struct dry_breakers *b, const int32_t *tokens, int n, int allowed,
                uint32_t *lengths)
{
    if (n > space->cap) {
        tokens += n - space->cap;
        n = space->cap;
    }
    const int32_t *last = tokens + n - 1;
    int limit = n, n_found = 0, behind;
    for (int i = 0; b && i < n && limit == n; i++)
        if ((behind = breaker_at(b, last, i)) >= 0)
            limit = i - behind;
    if (n <= allowed || limit < allowed)
        return 0;
    find_repeats(last, n, space->repeats);
    for (int i = 1; i < n; i++) {
        int length = MIN(space->repeats[i], limit);
        int32_t next = last[1 - i];
        if (length < allowed || (b && next < b->n_vocab && has_bit(b->single, next)))
            continue;
        if (!lengths[next])
            space->tokens[n_found++] = next;
        lengths[next] = MAX(lengths[next], (uint32_t)length + 1);
    }
    return n_found;
}

double dry_penalty(const struct sampler_params *p, uint32_t length_1)
{
    double penalty = (double)p->dry_multiplier * pow((double)p->dry_base, (double)length_1 - 1 - p->dry_allowed_length);
    return fmin(penalty, 3.4e38);
}
