// Tests filters, tests, methods, formats, operators and statements of templates one by one: what each gives was computed by
// Jinja2 3.1 in a sandbox whose values do not change, and what fails here fails there.
#include "tests/jinja_case_tables.h"
#include "tests/jinja_expect.h"
#include "tests/jinja_failure_tables.h"

static char *printed(const char *expression)
{
    struct text source = {0};
    text_print(&source, "{{ %s }}", expression);
    text_append(&source, (struct str){"", 1});
    return source.data;
}

static void expect_printed(const struct jinja_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *source = printed(cases[i].source);
        jinja_expect(source, JINJA_CONTEXT, cases[i].gives);
        free(source);
    }
}

static void refuse_printed(const struct jinja_failure *failures, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *source = printed(failures[i].source);
        jinja_refuse(source, JINJA_CONTEXT, failures[i].error);
        free(source);
    }
}

Test(jinja_library, expressions_give_what_jinja2_gives)
{
    expect_printed(jinja_cases, COUNT_OF(jinja_cases));
}

Test(jinja_library, statements_give_what_jinja2_gives)
{
    for (size_t i = 0; i < COUNT_OF(jinja_templates); i++)
        jinja_expect(jinja_templates[i].source, JINJA_CONTEXT, jinja_templates[i].gives);
}

Test(jinja_library, a_few_expressions_give_something_else)
{
    expect_printed(jinja_own_cases, COUNT_OF(jinja_own_cases));
}

Test(jinja_library, expressions_that_fail_in_jinja2_fail)
{
    refuse_printed(jinja_failures, COUNT_OF(jinja_failures));
    refuse_printed(jinja_own_failures, COUNT_OF(jinja_own_failures));
}

Test(jinja_library, statements_that_fail_in_jinja2_fail)
{
    for (size_t i = 0; i < COUNT_OF(jinja_refused); i++)
        jinja_refuse(jinja_refused[i].source, JINJA_CONTEXT, jinja_refused[i].error);
    for (size_t i = 0; i < COUNT_OF(jinja_own_refused); i++)
        jinja_refuse(jinja_own_refused[i].source, JINJA_CONTEXT, jinja_own_refused[i].error);
}
