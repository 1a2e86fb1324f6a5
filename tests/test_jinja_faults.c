// Tests templates for which memory or steps run out. Each allocation of parsing and rendering fails once, the N-th one for
// every N, and each number of steps up to those that the rendering takes is its limit once. The error must say so, or the
// output be what it is otherwise; nothing may leak.
#include "tests/arena_faults.h"
#include "tests/jinja_case_tables.h"
#include "tests/jinja_expect.h"
#include "tests/jinja_failure_tables.h"

// What one template gives: its text, or the text of its error.
struct outcome {
    int status;
    int code;
    char text[ERR_TEXT];
};

static struct value context;
static struct arena context_arena;

static void open_context(void)
{
    struct json_reader reader = {.arena = &context_arena, .flags = JSON_INPUT | JSON_NAN};
    struct error err;
    cr_assert_eq(json_read(&context, &reader, STR_LIT(JINJA_CONTEXT), &err), 0, "%s", err.text);
}

static void close_context(void)
{
    arena_free(&context_arena);
}

TestSuite(jinja_faults, .init = open_context, .fini = close_context, .timeout = 120);

static struct outcome outcome_of(struct str source, int64_t max_steps)
{
    struct jinja_template *t = NULL;
    struct jinja_output out = {0};
    struct jinja_options o = jinja_noon;
    struct error err = {0};
    o.max_steps = max_steps;
    const int status = jinja_parse(&t, source, &err) || jinja_render(t, &context, &o, &out, &err) ? -1 : 0;
    struct outcome made = {.status = status, .code = (int)err.code};
    snprintf(made.text, sizeof made.text, "%s", status ? err.text : out.text);
    jinja_output_free(&out);
    jinja_free(t);
    return made;
}

// An error about a missing element names it by a question mark if there is nothing left to print it with.
static bool same(const struct outcome *got, const struct outcome *want)
{
    const char *unknown = got->status ? strstr(got->text, " has no element ?") : NULL;
    const size_t n = unknown ? (size_t)(unknown - got->text) : sizeof got->text;
    return got->status == want->status && got->code == want->code && !strncmp(got->text, want->text, n);
}

// Returns how many of the calls were needed.
static long fail_each_allocation(struct str source, const struct outcome *want)
{
    long n = 0, needed = 0;
    const long live = heap_live;
    do {
        fault_arm(&memory_fault, n++);
        const struct outcome got = outcome_of(source, 0);
        fault_disarm(&memory_fault);
        const bool refused = got.status && got.code == (int)E_MEMORY && strstr(got.text, "memory");
        cr_expect(refused || same(&got, want), "%.*s, allocation %ld: %d '%s', not '%s'", STR_ARG(source), n,
                  got.status, got.text, want->text);
        cr_assert_eq(heap_live, live, "%.*s, allocation %ld: %ld blocks leak", STR_ARG(source), n, heap_live - live);
        needed += refused;
    } while (memory_fault.fired);
    return needed;
}

// The limits up to that at which the outcome is what it is without one, but not more than STEPS. Returns how many were too
// small.
enum { STEPS = 400 };
static long limit_steps(struct str source, const struct outcome *want)
{
    for (long n = 1; n <= STEPS; n++) {
        const struct outcome got = outcome_of(source, n);
        char says[64];
        snprintf(says, sizeof says, "the template takes more than %ld steps", n);
        if (same(&got, want))
            return n - 1;
        cr_expect(got.status && got.code == (int)E_MODEL && strstr(got.text, says),
                  "%.*s, %ld steps: %d '%s', not '%s'", STR_ARG(source), n, got.status, got.text, want->text);
    }
    return STEPS;
}

static void run_short(struct str source)
{
    const struct outcome want = outcome_of(source, 0);
    const long needed = fail_each_allocation(source, &want), steps = limit_steps(source, &want);
    // a template that is refused when it is read takes no step, nor does an empty one
    cr_expect(needed > 0 && (want.status || !want.text[0] || steps > 0), "%.*s: %ld allocations, %ld steps",
              STR_ARG(source), needed, steps);
}

static void run_short_of_printed(const char *expression)
{
    struct text source = {0};
    text_print(&source, "{{ %s }}", expression);
    run_short((struct str){source.data, source.size});
    text_free(&source);
}

Test(jinja_faults, expressions_without_memory_or_steps_say_so)
{
    for (size_t i = 0; i < COUNT_OF(jinja_cases); i++)
        run_short_of_printed(jinja_cases[i].source);
}

Test(jinja_faults, statements_without_memory_or_steps_say_so)
{
    for (size_t i = 0; i < COUNT_OF(jinja_templates); i++)
        run_short(str_from(jinja_templates[i].source));
}

Test(jinja_faults, expressions_that_fail_say_that_or_the_lack_of_memory_or_steps)
{
    for (size_t i = 0; i < COUNT_OF(jinja_failures); i++)
        run_short_of_printed(jinja_failures[i].source);
}

Test(jinja_faults, statements_that_fail_say_that_or_the_lack_of_memory_or_steps)
{
    for (size_t i = 0; i < COUNT_OF(jinja_refused); i++)
        run_short(str_from(jinja_refused[i].source));
}
