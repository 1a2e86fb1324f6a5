// Unheld pages form a doubly linked list, and pages are taken from its front. A released page is appended, or put in
// front if nothing can find it again. Full pages that are sealed are found through a hash table of their parent and
// tokens; partly filled pages are found by a scan of the whole table. Generations replace back references: a page
// whose content is cut gets a new generation, so its children no longer match it.
#include "engine/pages.h"

#include <assert.h>
#include <stdlib.h>

static int32_t *tokens_of(const struct pages *p, int32_t page)
{
    return p->tokens + (size_t)page * KV_PAGE;
}

// --- the list of unheld pages, oldest first ---

static void list_remove(struct pages *p, int32_t i)
{
    struct page *page = &p->page[i];
    *(page->older == PAGE_NONE ? &p->oldest : &p->page[page->older].newer) = page->newer;
    *(page->newer == PAGE_NONE ? &p->newest : &p->page[page->newer].older) = page->older;
    p->n_unheld--;
}

static void list_append(struct pages *p, int32_t i)
{
    p->page[i].older = p->newest;
    p->page[i].newer = PAGE_NONE;
    *(p->newest == PAGE_NONE ? &p->oldest : &p->page[p->newest].newer) = i;
    p->newest = i;
    p->n_unheld++;
}

static void list_prepend(struct pages *p, int32_t i)
{
    p->page[i].newer = p->oldest;
    p->page[i].older = PAGE_NONE;
    *(p->oldest == PAGE_NONE ? &p->newest : &p->page[p->oldest].older) = i;
    p->oldest = i;
    p->n_unheld++;
}

int pages_init(struct pages *p, int n, struct error *err)
{
    *p = (struct pages){.n = n, .oldest = PAGE_NONE, .newest = PAGE_NONE, .n_buckets = 1};
    while (p->n_buckets < (uint32_t)n)
        p->n_buckets *= 2;
    p->page = calloc((size_t)n, sizeof *p->page);
    p->tokens = calloc((size_t)n * KV_PAGE, sizeof *p->tokens);
    p->buckets = malloc(p->n_buckets * sizeof *p->buckets);
    if (!p->page || !p->tokens || !p->buckets) {
        pages_free(p);
        return fail(err, E_MEMORY, "no memory for a table of %d KV pages", n);
    }
    memset(p->buckets, 0xff, p->n_buckets * sizeof *p->buckets); // PAGE_NONE
    for (int32_t i = 0; i < n; i++)
        list_append(p, i);
    return 0;
}

void pages_free(struct pages *p)
{
    free(p->page);
    free(p->tokens);
    free(p->buckets);
    *p = (struct pages){0};
}

// --- finding by text ---

static uint32_t generation_of(const struct pages *p, int32_t page)
{
    return page == PAGE_NONE ? 0 : p->page[page].generation;
}

// Whether page i comes right after `parent`, and the content of `parent` has not changed since.
static bool follows(const struct pages *p, int32_t i, int32_t parent)
{
    return p->page[i].parent == parent && p->page[i].parent_generation == generation_of(p, parent);
}

// The hash bucket of a full page with this parent and these tokens. Each token is mixed in by one step of SplitMix64.
static uint32_t bucket_of(const struct pages *p, int32_t parent, const int32_t *tokens)
{
    uint64_t h = (uint64_t)(uint32_t)parent << 32 | generation_of(p, parent);
    for (int i = 0; i < KV_PAGE; i++) {
        h = (h ^ (uint32_t)tokens[i]) + 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
        h = (h ^ h >> 27) * 0x94d049bb133111ebu;
        h ^= h >> 31;
    }
    return (uint32_t)h & (p->n_buckets - 1);
}

int32_t pages_find(const struct pages *p, int32_t parent, const int32_t *tokens)
{
    for (int32_t i = p->buckets[bucket_of(p, parent, tokens)]; i != PAGE_NONE; i = p->page[i].next_in_bucket)
        if (follows(p, i, parent) && !memcmp(tokens_of(p, i), tokens, KV_PAGE * sizeof *tokens))
            return i;
    return PAGE_NONE;
}

int32_t pages_find_partial(const struct pages *p, int32_t parent, const int32_t *tokens, int n, int *common)
{
    int32_t best = PAGE_NONE;
    *common = 0;
    for (int32_t i = 0; i < p->n; i++) {
        if (!p->page[i].n_tokens || !follows(p, i, parent))
            continue;
        int same = 0, end = MIN(n, p->page[i].n_tokens);
        while (same < end && tokens_of(p, i)[same] == tokens[same])
            same++;
        if (same > *common) {
            *common = same;
            best = i;
        }
    }
    return best;
}

void pages_follow(struct pages *p, int32_t page, int32_t parent)
{
    p->page[page].parent = parent;
    p->page[page].parent_generation = generation_of(p, parent);
}

int32_t pages_seal(struct pages *p, int32_t page)
{
    struct page *it = &p->page[page];
    assert(it->n_tokens == KV_PAGE && !it->sealed);
    if (!follows(p, page, it->parent))
        return PAGE_NONE;
    int32_t twin = pages_find(p, it->parent, tokens_of(p, page));
    if (twin != PAGE_NONE)
        return twin;
    it->bucket = bucket_of(p, it->parent, tokens_of(p, page));
    it->next_in_bucket = p->buckets[it->bucket];
    p->buckets[it->bucket] = page;
    it->sealed = true;
    return PAGE_NONE;
}

static void unseal(struct pages *p, int32_t page)
{
    struct page *it = &p->page[page];
    if (!it->sealed)
        return;
    int32_t *link = &p->buckets[it->bucket];
    while (*link != page)
        link = &p->page[*link].next_in_bucket;
    *link = it->next_in_bucket;
    it->sealed = false;
}

// --- holding ---

// Shortens the content of a page to n_tokens. Its new generation cuts off all pages whose parent it was.
static void forget_from(struct pages *p, int32_t page, int n_tokens)
{
    unseal(p, page);
    p->page[page].n_tokens = n_tokens;
    p->page[page].generation++;
}

int32_t pages_take(struct pages *p, int32_t parent)
{
    int32_t i = p->oldest;
    if (i == PAGE_NONE)
        return PAGE_NONE;
    list_remove(p, i);
    forget_from(p, i, 0);
    pages_follow(p, i, parent);
    p->page[i].refs = 1;
    p->page[i].step = 0;
    return i;
}

void pages_hold(struct pages *p, int32_t page)
{
    if (p->page[page].refs++ == 0)
        list_remove(p, page);
}

void pages_release(struct pages *p, int32_t page)
{
    assert(p->page[page].refs > 0);
    if (--p->page[page].refs > 0)
        return;
    // a page that nothing can find again is the first to be taken
    bool useful = p->page[page].n_tokens > 0 && (p->page[page].sealed || p->page[page].n_tokens < KV_PAGE);
    if (useful)
        list_append(p, page);
    else
        list_prepend(p, page);
}

// --- content ---

bool pages_write(struct pages *p, int32_t page, int slot, int32_t token)
{
    struct page *it = &p->page[page];
    assert(slot <= it->n_tokens && slot < KV_PAGE);
    int32_t *tokens = tokens_of(p, page);
    if (slot < it->n_tokens) {
        if (tokens[slot] == token)
            return false;
        forget_from(p, page, slot);
    }
    tokens[slot] = token;
    it->n_tokens = slot + 1;
    return true;
}

void pages_unwrite(struct pages *p, int32_t page, int slot)
{
    forget_from(p, page, slot);
}

void pages_copy(struct pages *p, int32_t to, int32_t from, int n)
{
    memcpy(tokens_of(p, to), tokens_of(p, from), (size_t)n * sizeof *p->tokens);
    p->page[to].n_tokens = n;
    p->page[to].parent = p->page[from].parent;
    p->page[to].parent_generation = p->page[from].parent_generation;
}
