// Shared by the tests of templates: renders a template with a context, both given as text, and compares the output.
//
// Each test links its own copy. Threads: one.
#ifndef QUERN_JINJA_EXPECT_H
#define QUERN_JINJA_EXPECT_H

#include "engine/chat/jinja.h"
#include "engine/json.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

// 2026-01-15 12:00, a Thursday.
static const struct jinja_options jinja_noon = {
    .now = {.tm_year = 126, .tm_mday = 15, .tm_hour = 12, .tm_wday = 4, .tm_yday = 14}};

// Renders; -1 with err. The context is input.
static inline int jinja_try(struct str source, struct str context, struct jinja_output *out, struct error *err)
{
    struct arena arena = {0};
    struct json_reader reader = {.arena = &arena, .flags = JSON_INPUT | JSON_NAN};
    struct value v;
    struct jinja_template *t = NULL;
    *out = (struct jinja_output){0};
    cr_assert_eq(json_read(&v, &reader, context, err), 0, "the context: %s", err->text);
    int status = jinja_parse(&t, source, err) || jinja_render(t, &v, &jinja_noon, out, err) ? -1 : 0;
    jinja_free(t);
    arena_free(&arena);
    return status;
}

static inline void jinja_expect(const char *source, const char *context, const char *want)
{
    struct jinja_output out;
    struct error err = {0};
    int status = jinja_try(str_from(source), str_from(context), &out, &err);
    cr_expect_eq(status, 0, "%s: %s", source, err.text);
    if (!status)
        cr_expect_str_eq(out.text, want, "%s\n  gives %s\n  not   %s", source, out.text, want);
    jinja_output_free(&out);
}

static inline void jinja_refuse(const char *source, const char *context, const char *want)
{
    struct jinja_output out;
    struct error err = {0};
    int status = jinja_try(str_from(source), str_from(context), &out, &err);
    cr_expect_eq(status, -1, "%s gives %s", source, out.text ? out.text : "");
    cr_expect_str_eq(err.text, want, "%s\n  fails with %s\n  not        %s", source, err.text, want);
    cr_expect_eq(err.code, E_MODEL);
    jinja_output_free(&out);
}

#define GIVES(source, want) jinja_expect(source, "{}", want)
#define FAILS(source, want) jinja_refuse(source, "{}", want)

#endif
