// The flags of control vectors, which `quern logits` shows.
#include "gguf/gguf.h"
#include "tests/batch_rig.h"

static char tiny[600], vector[600];

static void open_folder(void)
{
    const char *tests = getenv("QUERN_TESTS");
    rig_open();
    snprintf(tiny, sizeof tiny, "%s/data/arch/tiny-smollm3.gguf", tests ? tests : "tests");
    snprintf(vector, sizeof vector, "%s/data/control/tiny-smollm3.control.gguf", tests ? tests : "tests");
    setenv("TINY", tiny, 1);
    setenv("VECTOR", vector, 1);
}
TestSuite(control_verb, .init = open_folder, .fini = rig_close, .timeout = 60);

static void logits(const char *out, const char *flags)
{
    cr_assert_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o %s %s", out, flags), 0, "%s", flags);
}

Test(control_verb, scales_sums_and_layers_are_taken)
{
    logits("plain", "");
    logits("steered", "--control-vector $VECTOR");
    cr_expect_neq(shell("cmp -s plain steered"), 0);
    static const char *const as_one[] = {
        "--control-vector $VECTOR:1", "--control-vector $VECTOR --control-vector-layers 1-3",
        "--control-vector $VECTOR:0.25 --control-vector $VECTOR:0.75", "--control-vector-scaled $VECTOR:1"};
    for (size_t i = 0; i < COUNT_OF(as_one); i++) {
        logits("out", as_one[i]);
        cr_expect_eq(shell("cmp -s steered out"), 0, "%s", as_one[i]);
    }
    static const char *const as_none[] = {"--control-vector $VECTOR:0",
                                          "--control-vector $VECTOR --control-vector-layers 2-2",
                                          "--control-vector $VECTOR:0.5 --control-vector $VECTOR:-0.5"};
    for (size_t i = 0; i < COUNT_OF(as_none); i++) {
        logits("out", as_none[i]);
        cr_expect_eq(shell("cmp -s plain out"), 0, "%s", as_none[i]);
    }
    logits("out", "--control-vector $VECTOR --control-vector-layers 3-3");
    cr_expect(shell("cmp -s steered out") && shell("cmp -s plain out"));
}

Test(control_verb, what_is_no_vector_scale_or_range_is_refused)
{
    static const struct {
        const char *flags;
        int status;
        const char *says;
    } wrong[] = {
        {"--control-vector nowhere.gguf", 5, "nowhere.gguf"},
        {"--control-vector $VECTOR:inf", 2, "the scale is no number"},
        {"--control-vector $TINY", 3, "no direction"},
        {"--control-vector $VECTOR --control-vector-layers 3", 2, "wanted is A-B"},
        {"--control-vector $VECTOR --control-vector-layers 0-3", 2, "wanted is A-B"},
        {"--control-vector $VECTOR --control-vector-layers 3-1", 2, "wanted is A-B"},
        {"--control-vector $VECTOR --control-vector-layers 1-3x", 2, "wanted is A-B"},
        {"--control-vector $VECTOR --control-vector-layer-range 1 3", 2, "--control-vector-layers A-B"},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        cr_expect_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o out %s 2>said", wrong[i].flags), wrong[i].status,
                     "%s", wrong[i].flags);
        cr_expect_eq(shell("grep -qe '%s' said", wrong[i].says), 0, "%s", wrong[i].flags);
    }
    cr_expect_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o $VECTOR --control-vector $VECTOR 2>said"), 2);
}
