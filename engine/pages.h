// The table of KV pages: which page of the pool holds which part of which text.
//
// A page holds the keys and values of up to KV_PAGE successive tokens. Its entry records those tokens and the page
// before it. Keys and values depend only on the text up to their token, so a page serves every sequence whose text is
// the same up to the end of the page. Pages that no sequence holds keep their content until they are taken for
// something else, the least recently used first. Lookups compare texts, not only hashes, so that a hash collision
// cannot return wrong keys. Ownership: the pool owns its tables; the bytes of the pages belong to the session.
// Threads: one at a time.
#ifndef QUERN_PAGES_H
#define QUERN_PAGES_H

#include "kernels/graph.h"

enum { PAGE_NONE = -1 };

struct page {
    int refs;            // sequences that hold it
    int n_tokens;        // computed positions, counted from the first slot
    uint32_t generation; // counts changes of the content; a child that names an older generation has lost its parent
    int32_t parent;      // the page before it in the text, or PAGE_NONE
    uint32_t parent_generation;
    bool sealed;            // full, and in the hash table
    uint32_t bucket;        // the hash bucket of a sealed page
    int32_t next_in_bucket; // the next page in that bucket
    int32_t newer, older;   // neighbours in the list of pages that no sequence holds
    uint64_t step;          // the last step that wrote to the page
    int writer;             // the sequence that wrote in that step
};

struct pages {
    int n;
    struct page *page; // [n]
    int32_t *tokens;   // [n][KV_PAGE]
    int32_t *buckets;  // [n_buckets], a power of two
    uint32_t n_buckets;
    int32_t oldest, newest; // ends of the list of pages that no sequence holds
    int n_unheld;
};

int pages_init(struct pages *p, int n, struct error *err);
void pages_free(struct pages *p);

// Takes an empty page after `parent`, with one reference; its former content is forgotten. PAGE_NONE when every page
// is held.
int32_t pages_take(struct pages *p, int32_t parent);
// Adds a reference to a page, and removes one.
void pages_hold(struct pages *p, int32_t page);
void pages_release(struct pages *p, int32_t page);

// The sealed page after `parent` that holds exactly these KV_PAGE tokens; PAGE_NONE when there is none.
int32_t pages_find(const struct pages *p, int32_t parent, const int32_t *tokens);
// The page after `parent` that shares the longest prefix with the n given tokens (n <= KV_PAGE); *common is the length
// of that prefix.
int32_t pages_find_partial(const struct pages *p, int32_t parent, const int32_t *tokens, int n, int *common);

// Records that a slot of the page is about to be written (slot <= n_tokens). The content from that slot on is
// forgotten, unless the slot held the same token. Returns whether the slot is new; pages_unwrite removes a new slot
// again.
bool pages_write(struct pages *p, int32_t page, int slot, int32_t token);
void pages_unwrite(struct pages *p, int32_t page, int slot);
// Sets the page before an unsealed page to `parent` in its present generation.
void pages_follow(struct pages *p, int32_t page, int32_t parent);
// Enters a full page into the hash table, so that pages_find finds it, unless the page before it has changed in the
// meantime. When another page with the same text is in the table already, that page is returned and nothing is done;
// otherwise the result is PAGE_NONE.
int32_t pages_seal(struct pages *p, int32_t page);
// Copies the first n tokens and the parent of page `from` to page `to`. The caller copies the keys and values.
void pages_copy(struct pages *p, int32_t to, int32_t from, int n);

#endif
