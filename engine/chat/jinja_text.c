// Methods of strings as in Python, and the assignment of arguments to parameters.
#include "engine/chat/jinja_run.h"

#include "engine/chat/case.h"
#include "engine/chat/jinja_text.h"
#include "engine/text/unicode.h"

// ---- Arguments ----

static bool next_name(const char **names, struct str *name)
{
    *names += strspn(*names, " ");
    *name = (struct str){*names, strcspn(*names, " ")};
    *names += name->len;
    return name->len > 0;
}

int args_bind(struct run *r, const struct call_args *args, const char *what, const char *names, size_t least,
              struct value *out)
{
    struct str name;
    size_t i = 0, taken = 0;
    for (const char *p = names; next_name(&p, &name); i++) {
        size_t k = 0;
        while (k < args->n_named && !str_equal(args->names[k], name))
            k++;
        if (i < args->n && k < args->n_named)
            return run_fail(r, "%s() got multiple values for argument '%.*s'", what, STR_ARG(name));
        if (i < args->n)
            out[i] = args->at[i];
        else if (k < args->n_named)
            out[i] = args->at[args->n + k];
        else if (i < least)
            return run_fail(r, "%s() misses the argument '%.*s'", what, STR_ARG(name));
        taken += k < args->n_named;
    }
    if (args->n > i)
        return run_fail(r, "%s() takes at most %zu arguments, not %zu", what, i, args->n);
    if (taken == args->n_named)
        return 0;
    return run_fail(r, "%s() got an unexpected keyword argument", what);
}

static int want_string(struct run *r, const char *what, const struct value *v)
{
    if (is_string(v))
        return 0;
    return is_undefined(v) ? run_use_undefined(r, v)
                           : run_fail(r, "%s() wants a string, not %s", what, value_type_name(v));
}

static int plain(struct run *r, const char *what, const struct call_args *args)
{
    return args_bind(r, args, what, "", 0, NULL);
}

// ---- Characters ----

bool text_is_space(uint32_t cp)
{
    return unicode_bits(cp) & UNI_SPACE || (cp >= 0x1C && cp <= 0x1F);
}

uint32_t text_char(struct str s, size_t at, size_t *len)
{
    uint32_t cp = UNI_REPLACEMENT;
    int n = utf8_decode(s.data + at, s.len - at, &cp);
    *len = n ? (size_t)n : 1;
    return n ? cp : UNI_REPLACEMENT;
}

uint32_t text_char_before(struct str s, size_t to, size_t *len)
{
    for (size_t n = 1; n <= 4 && n <= to; n++) {
        uint32_t cp;
        if (utf8_decode(s.data + to - n, n, &cp) == (int)n) {
            *len = n;
            return cp;
        }
    }
    *len = 1;
    return UNI_REPLACEMENT;
}

static bool in_set(uint32_t cp, const struct value *set)
{
    if (!set)
        return text_is_space(cp);
    for (size_t at = 0, len; at < set->text.len; at += len)
        if (text_char(set->text, at, &len) == cp)
            return true;
    return false;
}

int text_strip(struct run *r, const struct value *s, const struct value *set, bool left, bool right, struct value *out)
{
    size_t from = 0, to = s->text.len, len, steps = set ? 1 + set->text.len / 16 : 0;
    if (run_step_text(r, set ? 0 : s->text.len))
        return -1;
    for (; left && from < to; from += len) {
        if (run_step(r, steps))
            return -1;
        if (!in_set(text_char(s->text, from, &len), set))
            break;
    }
    for (; right && to > from; to -= len) {
        if (run_step(r, steps))
            return -1;
        if (!in_set(text_char_before(s->text, to, &len), set))
            break;
    }
    *out = string_slice(s, from, to);
    return 0;
}

// ---- Case ----

static int put_cps(struct run *r, struct build *b, const uint32_t *cps, int n, uint8_t origin)
{
    char text[12];
    size_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += (size_t)utf8_encode(cps[i], text + bytes);
    return build_text(r, b, (struct str){text, bytes}, origin, NULL);
}

static bool is_ignorable(uint32_t cp)
{
    return unicode_bits(cp) & UNI_MARK || cp == '\'' || cp == '.' || cp == ':';
}

// Whether the sigma at `at` ends a word: a cased letter comes before it and none after it, ignoring marks,
// apostrophes and the like.
static bool final_sigma(struct str s, size_t at)
{
    size_t len, p = at;
    uint32_t cp = '.';
    for (; p > 0 && is_ignorable(cp); p -= len)
        cp = text_char_before(s, p, &len);
    if (is_ignorable(cp) || !case_is_cased(cp))
        return false;
    cp = '.';
    for (text_char(s, at, &len), p = at + len; p < s.len && is_ignorable(cp); p += len)
        cp = text_char(s, p, &len);
    return is_ignorable(cp) || !case_is_cased(cp);
}

// Changes the case of the characters in [from, to).
static int put_case(struct run *r, struct build *b, const struct value *s, size_t from, size_t to, enum letter_case how)
{
    for (size_t at = from, len; at < to; at += len) {
        uint32_t out[3], cp = text_char(s->text, at, &len);
        if (cp == UNI_REPLACEMENT) {
            if (build_slice(r, b, s, at, at + len))
                return -1;
            continue;
        }
        int n = case_map(how, cp, out);
        if (how == CASE_LOWER && cp == 0x3A3 && final_sigma(s->text, at))
            out[0] = 0x3C2;
        if (put_cps(r, b, out, n, string_origin(s, at)))
            return -1;
    }
    return 0;
}

int text_case(struct run *r, const struct value *s, enum letter_case how, struct value *out)
{
    struct build b = {.markup = s->markup};
    if (run_step(r, s->text.len / 4) || put_case(r, &b, s, 0, s->text.len, how))
        return -1;
    *out = build_value(&b);
    return 0;
}

int text_capitalize(struct run *r, const struct value *s, struct value *out)
{
    struct build b = {.markup = s->markup};
    size_t len = 0;
    if (s->text.len)
        text_char(s->text, 0, &len);
    if (run_step(r, s->text.len / 4) || put_case(r, &b, s, 0, len, CASE_TITLE) ||
        put_case(r, &b, s, len, s->text.len, CASE_LOWER))
        return -1;
    *out = build_value(&b);
    return 0;
}

int str_title(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct build b = {.markup = s->markup};
    bool within = false;
    if (plain(r, "title", args) || run_step(r, s->text.len / 4))
        return -1;
    for (size_t at = 0, len; at < s->text.len; at += len) {
        uint32_t cp = text_char(s->text, at, &len);
        if (put_case(r, &b, s, at, at + len, within ? CASE_LOWER : CASE_TITLE))
            return -1;
        within = case_is_cased(cp);
    }
    *out = build_value(&b);
    return 0;
}

int str_swapcase(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct build b = {.markup = s->markup};
    if (plain(r, "swapcase", args) || run_step(r, s->text.len / 4))
        return -1;
    for (size_t at = 0, len; at < s->text.len; at += len) {
        uint32_t cp = text_char(s->text, at, &len);
        if (put_case(r, &b, s, at, at + len, case_is_upper(cp) ? CASE_LOWER : CASE_UPPER))
            return -1;
    }
    *out = build_value(&b);
    return 0;
}

int str_upper(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return plain(r, "upper", args) ? -1 : text_case(r, s, CASE_UPPER, out);
}

int str_lower(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return plain(r, "lower", args) ? -1 : text_case(r, s, CASE_LOWER, out);
}

int str_capitalize(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return plain(r, "capitalize", args) ? -1 : text_capitalize(r, s, out);
}

// ---- Stripping and padding ----

static int strip(struct run *r, const struct value *s, const struct call_args *args, const char *what, bool left,
                 bool right, struct value *out)
{
    struct value set = value_none();
    if (args_bind(r, args, what, "chars", 0, &set) || (set.kind != VALUE_NONE && want_string(r, what, &set)))
        return -1;
    return text_strip(r, s, is_string(&set) ? &set : NULL, left, right, out);
}

int str_strip(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return strip(r, s, args, "strip", true, true, out);
}

int str_lstrip(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return strip(r, s, args, "lstrip", true, false, out);
}

int str_rstrip(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return strip(r, s, args, "rstrip", false, true, out);
}

int text_pad(struct run *r, const struct value *s, int64_t width, int align, const struct value *fill,
             struct value *out)
{
    if (run_step_text(r, s->text.len))
        return -1;
    int64_t n = (int64_t)string_chars(s->text), missing = width > n ? width - n : 0;
    // with an odd remainder, str.center puts this much on the left
    int64_t left = align < 0 ? 0 : align > 0 ? missing : missing / 2 + (missing & width & 1);
    struct build b = {.markup = s->markup};
    struct value space = VALUE_LIT(" ");
    fill = fill ? fill : &space;
    if (missing > JINJA_OUTPUT_MAX)
        return run_fail(r, "a text grows over %d MiB", JINJA_OUTPUT_MAX >> 20);
    if (run_step(r, (size_t)missing))
        return -1;
    for (int64_t i = 0; i < left; i++)
        if (build_string(r, &b, fill))
            return -1;
    if (build_string(r, &b, s))
        return -1;
    for (int64_t i = left; i < missing; i++)
        if (build_string(r, &b, fill))
            return -1;
    *out = build_value(&b);
    return 0;
}

static int pad(struct run *r, const struct value *s, const struct call_args *args, const char *what, int align,
               struct value *out)
{
    struct value v[2] = {value_none(), VALUE_LIT(" ")};
    int64_t width;
    if (args_bind(r, args, what, "width fillchar", 1, v) || run_int_arg(r, &v[0], &width) ||
        want_string(r, what, &v[1]))
        return -1;
    if (run_step_text(r, v[1].text.len))
        return -1;
    if (string_chars(v[1].text) != 1)
        return run_fail(r, "the fill character must be exactly one character long");
    return text_pad(r, s, width, align, &v[1], out);
}

int str_ljust(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return pad(r, s, args, "ljust", -1, out);
}

int str_rjust(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return pad(r, s, args, "rjust", 1, out);
}

int str_center(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return pad(r, s, args, "center", 0, out);
}

int str_zfill(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v, zero = VALUE_LIT("0"), rest;
    int64_t width;
    if (args_bind(r, args, "zfill", "width", 1, &v) || run_int_arg(r, &v, &width))
        return -1;
    bool sign = s->text.len && (s->text.data[0] == '-' || s->text.data[0] == '+');
    struct value head = string_slice(s, 0, sign), tail = string_slice(s, sign, s->text.len);
    return text_pad(r, &tail, width - sign, 1, &zero, &rest) ? -1 : string_concat(r, &head, &rest, out);
}

int str_expandtabs(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v = value_int(8);
    int64_t size, column = 0;
    struct build b = {.markup = s->markup};
    if (args_bind(r, args, "expandtabs", "tabsize", 0, &v) || run_int_arg(r, &v, &size) || run_step(r, s->text.len))
        return -1;
    for (size_t at = 0, len; at < s->text.len; at += len) {
        uint32_t cp = text_char(s->text, at, &len);
        int64_t n = cp == '\t' && size > 0 ? size - column % size : 0;
        if (cp == '\t' ? build_fill(r, &b, ' ', (size_t)n, string_origin(s, at)) : build_slice(r, &b, s, at, at + len))
            return -1;
        column = cp == '\n' || cp == '\r' ? 0 : cp == '\t' ? column + n : column + 1;
    }
    *out = build_value(&b);
    return 0;
}

// ---- Finding ----

size_t text_find(struct str s, struct str what, size_t from, size_t to, bool last)
{
    if (from > to || to - from < what.len)
        return SIZE_MAX;
    if (!last) {
        const char *found = what.len ? memmem(s.data + from, to - from, what.data, what.len) : s.data + from;
        return found ? (size_t)(found - s.data) : SIZE_MAX;
    }
    for (size_t at = to - what.len + 1; at-- > from;)
        if (what.len == 0 || !memcmp(s.data + at, what.data, what.len))
            return at;
    return SIZE_MAX;
}

// The steps of a search backwards, which compares all of `what` at each byte.
static size_t find_last_steps(size_t bytes, size_t what)
{
    return bytes / 4 * (1 + what / 64);
}

static int bound_arg(struct run *r, const struct value *v, int64_t n, int64_t none, int64_t *out)
{
    *out = none;
    if (v->kind == VALUE_NONE)
        return 0;
    if (run_int_arg(r, v, out))
        return -1;
    *out = *out < 0 ? MAX(*out + n, (int64_t)0) : *out;
    return 0;
}

// The byte range of the characters [start, end) given by the arguments v[0] and v[1]; *none: they are beyond the
// string.
static int byte_range(struct run *r, struct str s, const struct value *v, size_t *from, size_t *to, bool *none)
{
    if (run_step(r, s.len / 4))
        return -1;
    int64_t n = (int64_t)string_chars(s), a, b;
    if (bound_arg(r, &v[0], n, 0, &a) || bound_arg(r, &v[1], n, n, &b))
        return -1;
    *none = a > n || a > MIN(b, n);
    *from = string_char_at(s, (size_t)MIN(a, n));
    *to = string_char_at(s, (size_t)MIN(b, n));
    return 0;
}

static int find(struct run *r, const struct value *s, const struct call_args *args, const char *what, bool last,
                bool must, struct value *out)
{
    struct value v[3] = {value_none(), value_none(), value_none()};
    size_t from, to;
    bool none;
    if (args_bind(r, args, what, "sub start end", 1, v) || want_string(r, what, &v[0]) ||
        byte_range(r, s->text, v + 1, &from, &to, &none))
        return -1;
    if (last && run_step(r, find_last_steps(to - from, v[0].text.len)))
        return -1;
    size_t at = none ? SIZE_MAX : text_find(s->text, v[0].text, from, to, last);
    if (at == SIZE_MAX && must)
        return run_fail(r, "substring not found");
    *out = value_int(at == SIZE_MAX ? -1 : (int64_t)string_chars((struct str){s->text.data, at}));
    return 0;
}

int str_find(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return find(r, s, args, "find", false, false, out);
}

int str_rfind(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return find(r, s, args, "rfind", true, false, out);
}

int str_index(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return find(r, s, args, "index", false, true, out);
}

int str_rindex(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return find(r, s, args, "rindex", true, true, out);
}

int str_count(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v[3] = {value_none(), value_none(), value_none()};
    size_t from, to;
    bool none;
    int64_t n = 0;
    if (args_bind(r, args, "count", "sub start end", 1, v) || want_string(r, "count", &v[0]) ||
        byte_range(r, s->text, v + 1, &from, &to, &none))
        return -1;
    if (v[0].text.len == 0)
        n = none ? 0 : (int64_t)string_chars((struct str){s->text.data + from, to - from}) + 1;
    for (size_t at; !none && v[0].text.len && (at = text_find(s->text, v[0].text, from, to, false)) != SIZE_MAX; n++)
        from = at + v[0].text.len;
    *out = value_int(n);
    return 0;
}

static bool has_affix(struct str s, struct str affix, bool end)
{
    return s.len >= affix.len &&
           (affix.len == 0 || !memcmp(end ? s.data + s.len - affix.len : s.data, affix.data, affix.len));
}

static int affix(struct run *r, const struct value *s, const struct call_args *args, const char *what, bool end,
                 struct value *out)
{
    struct value v[3] = {value_none(), value_none(), value_none()};
    size_t from, to;
    bool none, found = false;
    if (args_bind(r, args, what, "prefix start end", 1, v) || byte_range(r, s->text, v + 1, &from, &to, &none))
        return -1;
    const struct value *all = v[0].kind == VALUE_TUPLE ? v[0].list->items : &v[0];
    for (size_t i = 0; i < (v[0].kind == VALUE_TUPLE ? v[0].list->n : 1); i++) {
        if (want_string(r, what, &all[i]) || run_step(r, 1 + MIN(all[i].text.len, to - from) / 16))
            return -1;
        found = found || (!none && has_affix((struct str){s->text.data + from, to - from}, all[i].text, end));
    }
    *out = value_bool(found);
    return 0;
}

int str_startswith(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return affix(r, s, args, "startswith", false, out);
}

int str_endswith(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return affix(r, s, args, "endswith", true, out);
}

int str_removeprefix(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v;
    if (args_bind(r, args, "removeprefix", "prefix", 1, &v) || want_string(r, "removeprefix", &v) ||
        run_step_text(r, v.text.len))
        return -1;
    *out = has_affix(s->text, v.text, false) ? string_slice(s, v.text.len, s->text.len) : *s;
    return 0;
}

int str_removesuffix(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v;
    if (args_bind(r, args, "removesuffix", "suffix", 1, &v) || want_string(r, "removesuffix", &v) ||
        run_step_text(r, v.text.len))
        return -1;
    *out = has_affix(s->text, v.text, true) ? string_slice(s, 0, s->text.len - v.text.len) : *s;
    return 0;
}

// ---- Replacing and joining ----

// An empty `old` matches between all characters.
static int replace_between(struct run *r, const struct value *s, const struct value *new, int64_t count,
                           struct value *out)
{
    struct build b = {.markup = s->markup};
    for (size_t at = 0, len;; at += len) {
        if (count != 0) {
            if (run_step(r, 1) || build_string(r, &b, new))
                return -1;
            count--;
        }
        if (at >= s->text.len)
            break;
        text_char(s->text, at, &len);
        if (build_slice(r, &b, s, at, at + len))
            return -1;
    }
    *out = build_value(&b);
    return 0;
}

int text_replace(struct run *r, const struct value *s, const struct value *old, const struct value *new, int64_t count,
                 struct value *out)
{
    if (old->text.len == 0)
        return replace_between(r, s, new, count, out);
    struct build b = {.markup = s->markup};
    size_t from = 0, at;
    if (run_step_text(r, s->text.len))
        return -1;
    for (; count != 0 && (at = text_find(s->text, old->text, from, s->text.len, false)) != SIZE_MAX; count--) {
        if (run_step(r, 1) || build_slice(r, &b, s, from, at) || build_string(r, &b, new))
            return -1;
        from = at + old->text.len;
    }
    if (from == 0) {
        *out = *s;
        return 0;
    }
    if (build_slice(r, &b, s, from, s->text.len))
        return -1;
    *out = build_value(&b);
    return 0;
}

int str_replace(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v[3] = {value_none(), value_none(), value_int(-1)}, new;
    int64_t count;
    if (args_bind(r, args, "replace", "old new count", 2, v) || want_string(r, "replace", &v[0]) ||
        want_string(r, "replace", &v[1]) || run_int_arg(r, &v[2], &count))
        return -1;
    new = v[1];
    if (s->markup && run_escape_html(r, &v[1], &new))
        return -1;
    return text_replace(r, s, &v[0], &new, count, out);
}

int str_join(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value v, items;
    struct build b = {.markup = s->markup};
    if (args_bind(r, args, "join", "iterable", 1, &v))
        return -1;
    if (!value_is_iterable(&v))
        return run_fail(r, "can only join an iterable");
    if (run_items(r, &v, &items))
        return -1;
    for (size_t i = 0; i < items.list->n; i++) {
        struct value item = items.list->items[i];
        if (!is_string(&item) && !s->markup)
            return run_fail(r, "sequence item %zu: expected str instance, %s found", i, value_type_name(&item));
        if ((s->markup && run_escape_html(r, &item, &item)) || (i && build_string(r, &b, s)) ||
            build_string(r, &b, &item))
            return -1;
    }
    *out = build_value(&b);
    return run_step(r, items.list->n);
}

// ---- Splitting ----

static int push_slice(struct run *r, struct value *list, const struct value *s, size_t from, size_t to)
{
    return run_list_push(r, list, string_slice(s, from, to));
}

static void reverse_list(struct value *list)
{
    for (size_t i = 0, k = list->list->n; i + 1 < k; i++) {
        struct value v = list->list->items[i];
        list->list->items[i] = list->list->items[--k];
        list->list->items[k] = v;
    }
}

static int split_spaces(struct run *r, const struct value *s, int64_t most, struct value *out)
{
    size_t at = 0, len;
    for (;; most--) {
        while (at < s->text.len && text_is_space(text_char(s->text, at, &len)))
            at += len;
        if (at >= s->text.len)
            return 0;
        size_t from = at;
        if (most == 0)
            return push_slice(r, out, s, from, s->text.len);
        while (at < s->text.len && !text_is_space(text_char(s->text, at, &len)))
            at += len;
        if (push_slice(r, out, s, from, at))
            return -1;
    }
}

static int split_spaces_back(struct run *r, const struct value *s, int64_t most, struct value *out)
{
    size_t to = s->text.len, len;
    for (;; most--) {
        while (to > 0 && text_is_space(text_char_before(s->text, to, &len)))
            to -= len;
        if (to == 0)
            break;
        size_t end = to;
        while (most != 0 && to > 0 && !text_is_space(text_char_before(s->text, to, &len)))
            to -= len;
        to = most == 0 ? 0 : to;
        if (push_slice(r, out, s, to, end))
            return -1;
        if (to == 0)
            break;
    }
    reverse_list(out);
    return 0;
}

static int split_at(struct run *r, const struct value *s, struct str sep, int64_t most, struct value *out)
{
    size_t from = 0, at;
    for (; most != 0 && (at = text_find(s->text, sep, from, s->text.len, false)) != SIZE_MAX; most--) {
        if (push_slice(r, out, s, from, at))
            return -1;
        from = at + sep.len;
    }
    return push_slice(r, out, s, from, s->text.len);
}

static int split_at_back(struct run *r, const struct value *s, struct str sep, int64_t most, struct value *out)
{
    size_t to = s->text.len, at;
    if (run_step(r, find_last_steps(to, sep.len)))
        return -1;
    for (; most != 0 && (at = text_find(s->text, sep, 0, to, true)) != SIZE_MAX; most--) {
        if (push_slice(r, out, s, at + sep.len, to))
            return -1;
        to = at;
    }
    if (push_slice(r, out, s, 0, to))
        return -1;
    reverse_list(out);
    return 0;
}

static int split(struct run *r, const struct value *s, const struct call_args *args, const char *what, bool back,
                 struct value *out)
{
    struct value v[2] = {value_none(), value_int(-1)};
    int64_t most;
    if (args_bind(r, args, what, "sep maxsplit", 0, v) || run_int_arg(r, &v[1], &most) || run_list_new(r, out) ||
        run_step(r, s->text.len / 8))
        return -1;
    if (v[0].kind == VALUE_NONE)
        return back ? split_spaces_back(r, s, most, out) : split_spaces(r, s, most, out);
    if (want_string(r, what, &v[0]))
        return -1;
    if (v[0].text.len == 0)
        return run_fail(r, "empty separator");
    return back ? split_at_back(r, s, v[0].text, most, out) : split_at(r, s, v[0].text, most, out);
}

int str_split(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return split(r, s, args, "split", false, out);
}

int str_rsplit(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return split(r, s, args, "rsplit", true, out);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

int text_lines(struct run *r, const struct value *s, bool keep, struct value *out)
{
    if (run_list_new(r, out) || run_step(r, s->text.len / 8))
        return -1;
    size_t from = 0;
    for (size_t at = 0, len; at < s->text.len; at += len) {
        uint32_t cp = text_char(s->text, at, &len);
        if (!is_line_end(cp))
            continue;
        if (cp == '\r' && at + 1 < s->text.len && s->text.data[at + 1] == '\n')
            len = 2;
        if (push_slice(r, out, s, from, keep ? at + len : at))
            return -1;
        from = at + len;
    }
    return from < s->text.len ? push_slice(r, out, s, from, s->text.len) : 0;
}

int str_splitlines(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    struct value keep = value_bool(false);
    return args_bind(r, args, "splitlines", "keepends", 0, &keep) ? -1 : text_lines(r, s, value_truth(&keep), out);
}

static int partition(struct run *r, const struct value *s, const struct call_args *args, const char *what, bool last,
                     struct value *out)
{
    struct value sep = value_none();
    if (args_bind(r, args, what, "sep", 1, &sep) || want_string(r, what, &sep) ||
        run_step(r, last ? find_last_steps(s->text.len, sep.text.len) : s->text.len / 8))
        return -1;
    if (sep.text.len == 0)
        return run_fail(r, "empty separator");
    size_t n = s->text.len, at = text_find(s->text, sep.text, 0, n, last), end = at + sep.text.len;
    if (at == SIZE_MAX)
        at = end = last ? 0 : n;
    if (run_list_new(r, out) || push_slice(r, out, s, 0, at) || push_slice(r, out, s, at, end) ||
        push_slice(r, out, s, end, n))
        return -1;
    out->kind = VALUE_TUPLE;
    return 0;
}

int str_partition(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return partition(r, s, args, "partition", false, out);
}

int str_rpartition(struct run *r, const struct value *s, const struct call_args *args, struct value *out)
{
    return partition(r, s, args, "rpartition", true, out);
}
