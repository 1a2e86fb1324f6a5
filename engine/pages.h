// KV pages: which page of the pool holds which stretch of which text.
//
// A page holds the keys and values of up to KV_PAGE successive tokens, and remembers those tokens and the page that
// came before. Because keys and values depend on nothing but the text so far, a page serves every sequence whose text
// is the same up to its end. Pages that no sequence holds keep their content until they are taken for something else,
// the longest unused first. A find compares texts, never only hashes, so that a collision cannot bring wrong keys.
// Ownership: the pool owns its tables; the bytes of the pages belong to the session. Threads: one at a time.
#ifndef QUERN_PAGES_H
#define QUERN_PAGES_H

#include "kernels/graph.h"

enum { PAGE_NONE = -1 };

struct page {
    int refs;            // sequences that hold it
    int n_tokens;        // positions that have been computed, from the first
    uint32_t generation; // counts changes of content: who follows an older generation follows nothing
    int32_t parent;      // the page before, or PAGE_NONE
    uint32_t parent_generation;
    bool sealed;            // full, and found by its text
    uint32_t bucket;        // in which a sealed page is,
    int32_t next_in_bucket; // and the next one there
    int32_t newer, older;   // neighbours in the list of unheld pages
    uint64_t step;          // the step that wrote to it last,
    int writer;             // and the sequence
};

struct pages {
    int n;
    struct page *page; // [n]
    int32_t *tokens;   // [n][KV_PAGE]
    int32_t *buckets;  // [n_buckets], a power of two
    uint32_t n_buckets;
    int32_t oldest, newest; // of the pages that nobody holds
    int n_unheld;
};

int pages_init(struct pages *p, int n, struct error *err);
void pages_free(struct pages *p);

// A page that follows `parent`, held once, empty: PAGE_NONE when every page is held. Forgets what it was.
int32_t pages_take(struct pages *p, int32_t parent);
void pages_hold(struct pages *p, int32_t page);
void pages_release(struct pages *p, int32_t page);

// The page that holds exactly the KV_PAGE tokens after `parent`; PAGE_NONE when there is none.
int32_t pages_find(const struct pages *p, int32_t parent, const int32_t *tokens);
// The page after `parent` whose tokens begin most like the n given ones (n <= KV_PAGE); *common says how many are
// alike.
int32_t pages_find_partial(const struct pages *p, int32_t parent, const int32_t *tokens, int n, int *common);

// Records that a position of the page is about to be written: slot <= n_tokens. Content from slot on is forgotten,
// unless the slot held the same token. Returns whether the slot is new, which pages_unwrite takes back.
bool pages_write(struct pages *p, int32_t page, int slot, int32_t token);
void pages_unwrite(struct pages *p, int32_t page, int slot);
// Says which page, as it is now, comes before this one, which is not sealed.
void pages_follow(struct pages *p, int32_t page, int32_t parent);
// A full page becomes one that pages_find finds, unless the page before it has changed since. When another page is
// found by this text already, that one is returned, and nothing done; else PAGE_NONE.
int32_t pages_seal(struct pages *p, int32_t page);
// The first n tokens of the page `to`, and what they follow, are those of `from`.
void pages_copy(struct pages *p, int32_t to, int32_t from, int n);

#endif
