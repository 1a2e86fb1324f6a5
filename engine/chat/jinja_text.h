// Python's string operations, shared by methods and filters. Only the interpreter includes this file.
//
// Threads: as jinja_run.h.
#ifndef QUERN_JINJA_TEXT_H
#define QUERN_JINJA_TEXT_H

#include "engine/chat/case.h"
#include "engine/chat/jinja_run.h"

bool text_is_space(uint32_t cp);
// The character at a byte, or the one that ends before it. Each byte that is not valid UTF-8 is one U+FFFD.
uint32_t text_char(struct str s, size_t at, size_t *len);
uint32_t text_char_before(struct str s, size_t to, size_t *len);
// Removes the characters of `set` (NULL: white space) at the ends.
int text_strip(struct run *r, const struct value *s, const struct value *set, bool left, bool right, struct value *out);
int text_case(struct run *r, const struct value *s, enum letter_case how, struct value *out);
int text_capitalize(struct run *r, const struct value *s, struct value *out);
bool text_has_case(struct str s, bool upper); // isupper and islower
// Pads to at least `width` characters: align -1 pads on the right, 1 on the left, 0 on both sides. fill NULL: spaces.
int text_pad(struct run *r, const struct value *s, int64_t width, int align, const struct value *fill,
             struct value *out);
// The offset of the first or last occurrence of `what` within [from, to); SIZE_MAX if there is none.
size_t text_find(struct str s, struct str what, size_t from, size_t to, bool last);
// Replaces at most `count` occurrences; -1: all.
int text_replace(struct run *r, const struct value *s, const struct value *old, const struct value *new, int64_t count,
                 struct value *out);
int text_lines(struct run *r, const struct value *s, bool keep, struct value *out); // splitlines
// The methods in jinja_text.c.
#define STR_METHOD(name)                                                                                               \
    int str_##name(struct run *r, const struct value *s, const struct call_args *args, struct value *out);
STR_METHOD(capitalize)
STR_METHOD(center)
STR_METHOD(count)
STR_METHOD(endswith)
STR_METHOD(expandtabs)
STR_METHOD(find)
STR_METHOD(index)
STR_METHOD(join)
STR_METHOD(ljust)
STR_METHOD(lower)
STR_METHOD(lstrip)
STR_METHOD(partition)
STR_METHOD(removeprefix)
STR_METHOD(removesuffix)
STR_METHOD(replace)
STR_METHOD(rfind)
STR_METHOD(rindex)
STR_METHOD(rjust)
STR_METHOD(rpartition)
STR_METHOD(rsplit)
STR_METHOD(rstrip)
STR_METHOD(split)
STR_METHOD(splitlines)
STR_METHOD(startswith)
STR_METHOD(strip)
STR_METHOD(swapcase)
STR_METHOD(title)
STR_METHOD(upper)
STR_METHOD(zfill)
#undef STR_METHOD

native_fn *text_method(struct str name, const char **canonical);

#endif
