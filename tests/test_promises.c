// Every test that docs/promises.md names exists: as suite.test, or as the name of a test program.
#include "gguf/base.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEXT_MOST = 1 << 20, NAME_MOST = 200 };

static char *read_file(const char *folder, const char *name, size_t *size)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f, "%s", path);
    char *text = calloc(1, TEXT_MOST + 1);
    cr_assert_not_null(text);
    *size = fread(text, 1, TEXT_MOST, f);
    fclose(f);
    return text;
}

// Whether a source of the tests has this text.
static bool sources_have(const char *folder, const char *text)
{
    bool found = false;
    DIR *dir = opendir(folder);
    cr_assert_not_null(dir, "%s", folder);
    for (struct dirent *e; !found && (e = readdir(dir));) {
        const char *end = strrchr(e->d_name, '.');
        size_t size;
        if (strncmp(e->d_name, "test_", 5) != 0 || !end || strcmp(end, ".c") != 0)
            continue;
        char *source = read_file(folder, e->d_name, &size);
        found = strstr(source, text) != NULL;
        free(source);
    }
    closedir(dir);
    return found;
}

static bool exists(const char *tests, const char *meson, const char *name)
{
    char wanted[2 * NAME_MOST];
    const char *dot = strchr(name, '.');
    if (dot)
        snprintf(wanted, sizeof wanted, "Test(%.*s, %s", (int)(dot - name), name, dot + 1);
    else
        snprintf(wanted, sizeof wanted, "'%s'", name);
    return dot ? sources_have(tests, wanted) : strstr(meson, wanted) != NULL;
}

// A name in backquotes of letters, digits, underscores and at most one point.
static bool is_name(const char *at, size_t n)
{
    return n && n < NAME_MOST && strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_.") >= n && memchr(at, '_', n);
}

Test(promises, every_test_that_is_named_exists)
{
    const char *tests = getenv("QUERN_TESTS");
    if (!tests)
        cr_skip_test("skipped: QUERN_TESTS is not set");
    size_t size, n_names = 0;
    char *page = read_file(tests, "../docs/promises.md", &size), *meson = read_file(tests, "meson.build", &size);
    for (char *at = page; (at = strchr(at, '`')); at++) {
        const size_t n = strcspn(++at, "`");
        if (is_name(at, n)) {
            char name[NAME_MOST];
            snprintf(name, sizeof name, "%.*s", (int)n, at);
            cr_expect(exists(tests, meson, name), "docs/promises.md: there is no test %s", name);
            n_names++;
        }
        at += n;
        if (!*at)
            break;
    }
    cr_expect_gt(n_names, 60);
    free(page);
    free(meson);
}
