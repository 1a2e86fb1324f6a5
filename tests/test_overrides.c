// Keys that the flags set in place of a file's: --override-kv, and the scaling of rotary positions.
#include "gguf/gguf.h"
#include "tests/batch_rig.h"

static char tiny[600], yarn[600];

static void open_folder(void)
{
    const char *tests = getenv("QUERN_TESTS");
    rig_open();
    snprintf(tiny, sizeof tiny, "%s/data/arch/tiny-llama.gguf", tests ? tests : "tests");
    snprintf(yarn, sizeof yarn, "%s/data/arch/tiny-llama-yarn.gguf", tests ? tests : "tests");
    setenv("TINY", tiny, 1);
    setenv("YARN", yarn, 1);
}
TestSuite(overrides, .init = open_folder, .fini = rig_close, .timeout = 60);

Test(overrides, a_key_is_replaced_or_added_and_converted_as_those_of_a_file)
{
    struct gguf *g;
    struct error err = {0};
    cr_assert_eq(gguf_open(&g, tiny, GGUF_METADATA_ONLY, &err), 0, "%s", err.text);
    const size_t n = gguf_n_kv(g);
    const struct gguf_override all[] = {{.key = "llama.context_length", .type = GGUF_I64, .integer = 77},
                                        {.key = "a.new.key", .type = GGUF_STRING, .string = "words"},
                                        {.key = "llama.rope.freq_base", .type = GGUF_F64, .real = 2.5},
                                        {.key = "a.flag", .type = GGUF_BOOL, .boolean = true}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        cr_assert_eq(gguf_set(g, &all[i], &err), 0, "%s", err.text);
    uint32_t ctx = 0, heads = 0;
    float base = 0;
    bool flag = false;
    struct str words = {"", 0};
    cr_expect_eq(gguf_n_kv(g), n + 2);
    cr_expect(gguf_get_u32(g, "llama.context_length", &ctx, &err) == 1 && ctx == 77);
    cr_expect(gguf_get_u32(g, "llama.attention.head_count", &heads, &err) == 1 && heads == 4, "others stay");
    cr_expect(gguf_get_f32(g, "llama.rope.freq_base", &base, &err) == 1 && base == 2.5f);
    cr_expect(gguf_get_bool(g, "a.flag", &flag, &err) == 1 && flag);
    cr_expect(gguf_get_str(g, "a.new.key", &words, &err) == 1 && str_equal_z(words, "words"));
    cr_expect_eq(gguf_get_u32(g, "a.new.key", &ctx, &err), -1, "a key of another type");
    cr_expect(err.code == E_MODEL && strstr(err.text, "a.new.key") && !strstr(err.text, "byte"), "%s", err.text);
    gguf_close(g);
}

Test(overrides, the_flags_of_rope_are_keys_of_the_family)
{
    static const char *const same[][2] = {
        {"--rope-freq-base 777", "--override-kv llama.rope.freq_base=float:777"},
        {"--rope-scaling linear --rope-scale 4", "--rope-scaling linear --rope-freq-scale 0.25"},
        {"--rope-scaling linear --rope-scale 4",
         "--override-kv llama.rope.scaling.type=str:linear --override-kv llama.rope.scaling.factor=float:4"},
        {"--rope-scaling yarn --rope-scale 8 --yarn-orig-ctx 128",
         "--override-kv llama.rope.scaling.type=str:yarn --override-kv llama.rope.scaling.factor=int:8 "
         "--override-kv llama.rope.scaling.original_context_length=int:128"},
    };
    cr_assert_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o plain"), 0);
    for (size_t i = 0; i < COUNT_OF(same); i++) {
        cr_assert_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o a %s", same[i][0]), 0, "%s", same[i][0]);
        cr_assert_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o b %s", same[i][1]), 0, "%s", same[i][1]);
        cr_expect_eq(shell("cmp -s a b"), 0, "%s", same[i][0]);
        cr_expect_eq(shell("cmp -s a plain"), 1, "%s has no effect", same[i][0]);
    }
    // what the file says already changes nothing, and a key given by name counts
    cr_assert_eq(shell("$Q logits -m $YARN --ids $YARN.logits -o plain"), 0);
    cr_assert_eq(shell("$Q logits -m $YARN --ids $YARN.logits -o a --rope-scaling yarn --rope-scale 8"), 0);
    cr_expect_eq(shell("cmp -s a plain"), 0);
    cr_assert_eq(shell("$Q logits -m $YARN --ids $YARN.logits -o a --rope-scale 3 "
                       "--override-kv llama.rope.scaling.factor=float:8"),
                 0);
    cr_expect_eq(shell("cmp -s a plain"), 0);
}

Test(overrides, the_flags_of_rope_need_a_model_that_turns)
{
    static const char *const flags[] = {"--rope-freq-base 777", "--rope-scaling linear", "--rope-scale 4",
                                        "--rope-freq-scale 0.5", "--yarn-orig-ctx 64"};
    static const char *const models[] = {"tiny-gpt2", "tiny-mpt", "tiny-baichuan-13b"};
    for (size_t i = 0; i < COUNT_OF(models); i++)
        for (size_t j = 0; j < COUNT_OF(flags); j++) {
            cr_expect_eq(shell("M=${TINY%%/*}/%s.gguf; $Q logits -m $M --ids $M.logits -o a %s", models[i], flags[j]),
                         2, "%s %s", models[i], flags[j]);
            expect_says("err", "this model has no rotary positions (its family is ");
        }
}

Test(overrides, the_tokenizer_obeys_them_too)
{
    cr_assert_eq(shell("$Q tokenize -m m.gguf --bos 'abc' > plain"), 0);
    cr_assert_eq(shell("$Q tokenize -m m.gguf --bos 'abc' --override-kv tokenizer.ggml.add_bos_token=bool:false > a"),
                 0);
    cr_expect_eq(shell("cmp -s a plain"), 1);
}

Test(overrides, what_is_no_key_or_no_value_is_refused)
{
    static const struct {
        const char *flag;
        int status;
        const char *says;
    } cases[] = {
        {"a", 2, "KEY=TYPE:VALUE"},
        {"a=int", 2, "KEY=TYPE:VALUE"},
        {"=int:1", 2, "KEY=TYPE:VALUE"},
        {"a=u32:1", 2, "int, float, bool or str"},
        {"a=int:1x", 2, "is no number"},
        {"a=int:", 2, "is no number"},
        {"a=int:99999999999999999999", 2, "is no number"},
        {"a=bool:maybe", 2, "true or false"},
        {"llama.attention.head_count=str:x", 3, "head_count"},
        {"llama.attention.head_count=int:0", 3, "head_count"},
        {"llama.rope.freq_base=float:nan", 3, "freq_base"},
        {"general.architecture=str:nothing", 3, "nothing"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cr_expect_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o a --override-kv %s", cases[i].flag),
                     cases[i].status, "%s", cases[i].flag);
        expect_says("err", cases[i].says);
    }
    cr_expect_eq(shell("$Q logits -m $TINY --ids $TINY.logits -o a --rope-scale 2 --rope-freq-scale 0.5"), 2);
}
