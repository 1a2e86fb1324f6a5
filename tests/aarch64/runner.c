// Runs the tests of the files that it is linked with, or those whose names contain its argument, in the order of their
// definition.
#include <criterion/criterion.h>

static struct test *first, **last = &first;

void test_add(struct test *test)
{
    *last = test;
    last = &test->next;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (const struct test *t = first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        printf("%s::%s\n", t->suite, t->name);
        fflush(stdout);
        t->run();
        n++;
    }
    printf("%d tests passed\n", n);
    return n > 0 ? 0 : 1;
}
