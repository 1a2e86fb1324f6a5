// Tests that a killed quern batch can be resumed: the final output equals that of an undisturbed run.
//
// It is killed KILLS times (10 in the everyday suite, 200 in the long one), each time after a random delay.
#include "tests/batch_rig.h"

#include <signal.h>
#include <time.h>

#ifndef KILLS
#define KILLS 10
#endif

TestSuite(batch_kills, .init = rig_open, .fini = rig_close, .timeout = 1200);

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// One run that is killed after so many milliseconds: its status.
static int run_for(double ms, const char *order)
{
    const char *const argv[] = {"quern", "batch", "in", "-o", "out", "--format", "jsonl", "-np", "6", order, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        cr_assert(freopen("err", "w", stderr));
        execv(getenv("QUERN_BIN"), (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(ms * 1e6) % 1000000000L}, NULL);
    kill(pid, SIGKILL);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return rig_status(status);
}

Test(batch_kills, a_run_that_is_killed_at_any_point_goes_on_to_the_same_output)
{
    int kills = KILLS, done = 0, runs = 0;
    unsigned seed = 20261121;
    printf("seed %u, %d kills\n", seed, kills);
    write_rows("in", 120);
    double start = now_ms();
    cr_assert_eq(shell("$Q batch in -o whole --format jsonl -np 6"), 1);
    double whole_ms = now_ms() - start;
    while (done < kills) {
        bool ordered = runs++ % 3 != 2;
        shell("rm -f out out.*");
        // a part of the run's time each, so that most runs are killed several times
        for (int status = 137; status == 137 && done < kills; done += status == 137)
            status = run_for(whole_ms * (double)rand_r(&seed) / RAND_MAX * 0.9, ordered ? NULL : "--unordered");
        cr_assert_eq(shell("$Q batch in -o out --format jsonl -np 6 %s", ordered ? "" : "--unordered"), 1);
        if (!ordered)
            shell("$Q batch merge sorted out; mv sorted out");
        cr_assert(same_files("out", "whole"), "after %d kills", done);
    }
    printf("%d kills in %d runs\n", done, runs);
}
