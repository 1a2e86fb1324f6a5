// Growing lists of token ids.
#include "engine/text/token.h"

#include <stdlib.h>

int token_list_reserve(struct token_list *list, size_t n, struct error *err)
{
    size_t want, bytes;
    if (n <= list->cap - list->n) {
        return 0;
    }
    if (size_add(list->n, n, &want) || size_mul(MAX(want, 2 * list->cap), sizeof *list->ids, &bytes)) {
        return fail(err, E_MEMORY, "too many tokens");
    }
    int32_t *ids = realloc(list->ids, bytes);
    if (ids == NULL) {
        return fail(err, E_MEMORY, "no memory for %zu tokens", bytes / sizeof *ids);
    }
    list->ids = ids;
    list->cap = bytes / sizeof *ids;
    return 0;
}

int token_list_push(struct token_list *list, int32_t id, struct error *err)
{
    if (list->n == list->cap && token_list_reserve(list, 16, err) != 0) {
        return -1;
    }
    list->ids[list->n++] = id;
    return 0;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}
