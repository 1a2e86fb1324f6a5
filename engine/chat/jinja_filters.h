// All filters, by name. Only the interpreter includes this file.
//
// Threads: as jinja_run.h.
#ifndef QUERN_JINJA_FILTERS_H
// clang-format off
#define QUERN_JINJA_FILTERS_H

#include "engine/chat/jinja_run.h"

// FILTER(name): filter_<name> takes a value and arguments, and returns a value.
// clang-format off
#define JINJA_FILTERS(FILTER) \
    FILTER(abs) FILTER(attr) FILTER(batch) FILTER(capitalize) FILTER(center) FILTER(default) FILTER(dictsort) \
    FILTER(escape) FILTER(filesizeformat) FILTER(first) FILTER(float) FILTER(forceescape) FILTER(format) \
    FILTER(from_json) FILTER(groupby) FILTER(indent) FILTER(int) FILTER(items) FILTER(join) FILTER(last) \
    FILTER(length) FILTER(list) FILTER(lower) FILTER(map) FILTER(max) FILTER(min) FILTER(reject) FILTER(rejectattr) \
    FILTER(replace) FILTER(reverse) FILTER(round) FILTER(safe) FILTER(select) FILTER(selectattr) FILTER(slice) \
    FILTER(sort) FILTER(string) FILTER(striptags) FILTER(sum) FILTER(title) FILTER(tojson) FILTER(trim) \
    FILTER(truncate) FILTER(unique) FILTER(upper) FILTER(urlencode) FILTER(wordcount) FILTER(wordwrap) FILTER(xmlattr)
// clang-format on
// clang-format on

#define FILTER(name)                                                                                                   \
    int filter_##name(struct run *r, const struct value *in, const struct call_args *args, struct value *out);
JINJA_FILTERS(FILTER)
#undef FILTER

#endif
