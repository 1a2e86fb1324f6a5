// Chooses the k best candidates with a heap of k candidates, whose top is the worst of them. A candidate that is not
// better than the top is skipped. A row of logits is read in blocks of 64, and a block whose maximum is not better than
// the top is skipped as a whole, so that the cost is about one pass over the row.
#include "kernels/top_k.h"

// Stores `c` at index i of the heap, after moving up the children that are worse than `c`.
static void sift_down(struct candidate *heap, int i, int n, struct candidate c)
{
    uint64_t key = candidate_key(c);
    for (int child; (child = 2 * i + 1) < n; i = child) {
        uint64_t least = candidate_key(heap[child]), other = child + 1 < n ? candidate_key(heap[child + 1]) : least;
        child += other < least;
        least = MIN(other, least);
        if (least >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

// Stores `c` at index i of the heap, after moving down the parents that are better than `c`.
static void sift_up(struct candidate *heap, int i, struct candidate c)
{
    for (int parent; i > 0 && candidate_before(heap[parent = (i - 1) / 2], c); i = parent)
        heap[i] = heap[parent];
    heap[i] = c;
}

void candidates_offer(struct candidate *c, int *n, int k, struct candidate offer)
{
    if (*n < k) {
        sift_up(c, (*n)++, offer);
    } else if (candidate_before(offer, c[0])) {
        sift_down(c, 0, k, offer);
    }
}

void candidates_finish(struct candidate *c, int n)
{
    for (int end = n - 1; end > 0; end--) {
        struct candidate last = c[end];
        c[end] = c[0];
        sift_down(c, 0, end, last);
    }
}

void candidates_sort_first(struct candidate *c, int n, int k)
{
    if (k <= 0)
        return;
    for (int i = k / 2 - 1; i >= 0; i--)
        sift_down(c, i, k, c[i]);
    uint64_t least = candidate_key(c[0]);
    for (int i = k; i < n; i++) {
        if (candidate_key(c[i]) <= least)
            continue;
        struct candidate out = c[0];
        sift_down(c, 0, k, c[i]);
        c[i] = out;
        least = candidate_key(c[0]);
    }
    candidates_finish(c, k);
}

// ---- A row of logits

enum { BLOCK = 64, LANES = 16 };

// The maximum of a block. Sets *bad to a number other than 0 where one element is not finite: all bits of its
// exponent are set.
static float scan_block(const float *x, uint32_t *bad)
{
    float max[LANES];
    uint32_t odd[LANES] = {0};
    memcpy(max, x, sizeof max);
    for (int i = 0; i < BLOCK; i += LANES)
        for (int j = 0; j < LANES; j++) {
            uint32_t bits;
            memcpy(&bits, &x[i + j], sizeof bits);
            odd[j] |= (bits & 0x7f800000u) == 0x7f800000u;
            max[j] = x[i + j] > max[j] ? x[i + j] : max[j];
        }
    for (int j = 1; j < LANES; j++) {
        odd[0] |= odd[j];
        max[0] = max[j] > max[0] ? max[j] : max[0];
    }
    *bad |= odd[0];
    return max[0];
}

// Ids ascend, so a later logit that is equal to a kept one is never better. So a block whose maximum is not greater
// than the worst kept logit is skipped, and most blocks are. The last block is filled up with its last logit.
void top_k_of(const float *logits, int64_t n, int k, struct candidate *out)
{
    int kept = 0;
    uint32_t bad = 0;
    float last[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int width = (int)MIN(n - at, BLOCK);
        const float *x = logits + at;
        if (width < BLOCK) {
            for (int i = 0; i < BLOCK; i++)
                last[i] = x[MIN(i, width - 1)];
            x = last;
        }
        float max = scan_block(x, &bad);
        if (kept == k && max <= out[0].logit)
            continue;
        for (int i = 0; i < width; i++)
            candidates_offer(out, &kept, k, (struct candidate){x[i] + 0.0f, (int32_t)at + i});
    }
    candidates_finish(out, kept);
    if (bad)
        out[0].id = -1;
}
