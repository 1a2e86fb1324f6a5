// quern embed and the rows of /v1/embeddings of quern batch: texts in, forms out, and what is refused.
#include "tests/batch_rig.h"

#include <cjson/cJSON.h>
#include <math.h>

static char bert[600], rank[600];

static void open_folder(void)
{
    const char *tests = getenv("QUERN_TESTS");
    rig_open();
    snprintf(bert, sizeof bert, "%s/data/embed/bert.gguf", tests ? tests : "tests");
    snprintf(rank, sizeof rank, "%s/data/embed/bert-rank.gguf", tests ? tests : "tests");
    setenv("BERT", bert, 1);
    setenv("RANK", rank, 1);
    write_text("lines", "a b c\nd e\nf\n");
}
TestSuite(embed_verb, .init = open_folder, .fini = rig_close, .timeout = 120);

static char *read_all(const char *path, size_t *n)
{
    static char bytes[1 << 16];
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    *n = fread(bytes, 1, sizeof bytes - 1, f);
    bytes[*n] = '\0';
    fclose(f);
    return bytes;
}

// The vectors of a raw file: float32, 32 a text.
static size_t read_vectors(const char *path, float out[][32], size_t most)
{
    FILE *f = fopen(path, "rb");
    cr_assert(f, "%s", path);
    size_t n = fread(out, 32 * sizeof(float), most, f);
    fclose(f);
    return n;
}

static void expect_vector(const cJSON *list, const float *want)
{
    cr_assert_eq(cJSON_GetArraySize(list), 32);
    for (int i = 0; i < 32; i++)
        cr_expect_eq((float)cJSON_GetArrayItem(list, i)->valuedouble, want[i], "element %d", i);
}

Test(embed_verb, every_form_has_the_same_numbers)
{
    float raw[8][32];
    size_t n;
    cr_assert_eq(shell("$Q embed -m $BERT -f lines -o v.f32"), 0);
    cr_assert_eq(read_vectors("v.f32", raw, 8), 3);
    cr_assert_eq(shell("$Q embed -m $BERT 'a b c' 'd e' f > v.json"), 0);
    cJSON *all = cJSON_Parse(read_all("v.json", &n)), *data = cJSON_GetObjectItem(all, "data");
    cr_assert_eq(cJSON_GetArraySize(data), 3);
    for (int i = 0; i < 3; i++)
        expect_vector(cJSON_GetObjectItem(cJSON_GetArrayItem(data, i), "embedding"), raw[i]);
    cr_expect_eq(cJSON_GetObjectItem(cJSON_GetObjectItem(all, "usage"), "prompt_tokens")->valueint, 12);
    cJSON_Delete(all);
    cr_assert_eq(shell("$Q embed -m $BERT --output-format array < lines > v.txt"), 0);
    all = cJSON_Parse(read_all("v.txt", &n));
    for (int i = 0; i < 3; i++)
        expect_vector(cJSON_GetArrayItem(all, i), raw[i]);
    cJSON_Delete(all);
    cr_assert_eq(shell("$Q embed -m $BERT -f lines -o v.npy && tail -c 384 v.npy | cmp - v.f32"), 0);
    cr_expect(strstr(read_all("v.npy", &n) + 10, "'shape': (3, 32)"));
    cr_expect_eq(n, 128 + 384);
}

Test(embed_verb, lines_of_json_keep_their_ids)
{
    size_t n;
    write_text("rows", "{\"id\": 7, \"text\": \"a b c\"}\n\n\"d e\"\n{\"custom_id\": \"x\", \"input\": \"f\"}\n");
    cr_assert_eq(shell("$Q embed -m $BERT -f rows -o v.jsonl"), 0);
    char *lines = read_all("v.jsonl", &n);
    cr_expect(strstr(lines, "{\"id\": 7, \"index\": 0,") && strstr(lines, "\n{\"index\": 1,") &&
                  strstr(lines, "\n{\"id\": \"x\", \"index\": 2,"),
              "%s", lines);
    write_text("bad", "{\"text\": \"a\"}\n{\"what\": 1}\n");
    cr_expect_eq(shell("$Q embed -m $BERT -f bad"), 2);
    expect_says("err", "line 2");
}

Test(embed_verb, vectors_have_length_one_unless_asked_otherwise)
{
    float unit[1][32], plain[1][32], largest[1][32];
    double length = 0, scale = 0, top = 0;
    cr_assert_eq(shell("$Q embed -m $BERT 'a b' -o u.f32 && $Q embed -m $BERT 'a b' --no-normalize -o p.f32 && "
                       "$Q embed -m $BERT 'a b' --embd-normalize 0 -o l.f32"),
                 0);
    read_vectors("u.f32", unit, 1), read_vectors("p.f32", plain, 1), read_vectors("l.f32", largest, 1);
    for (int i = 0; i < 32; i++) {
        length += (double)unit[0][i] * (double)unit[0][i];
        scale += (double)plain[0][i] * (double)plain[0][i];
        top = fmax(top, fabs((double)largest[0][i]));
    }
    cr_expect_float_eq(length, 1, 1e-6);
    cr_expect_float_eq(top, 32760, 1e-2);
    for (int i = 0; i < 32; i++)
        cr_expect_float_eq((double)unit[0][i], (double)plain[0][i] / sqrt(scale), 1e-6);
}

Test(embed_verb, a_reranker_scores_texts_for_a_question)
{
    size_t n;
    cr_assert_eq(shell("$Q embed -m $RANK --query 'a b' 'a b' 'x y z' > v.json"), 0);
    cJSON *all = cJSON_Parse(read_all("v.json", &n)), *data = cJSON_GetObjectItem(all, "data");
    cr_expect_eq(cJSON_GetArraySize(data), 2);
    cr_expect(cJSON_IsNumber(cJSON_GetObjectItem(cJSON_GetArrayItem(data, 1), "score")));
    cr_expect_eq(cJSON_GetObjectItem(cJSON_GetObjectItem(all, "usage"), "prompt_tokens")->valueint, 7 + 8);
    cJSON_Delete(all);
    cr_expect_eq(shell("$Q embed -m $RANK a"), 2);
    expect_says("err", "--query");
    cr_expect_eq(shell("$Q embed -m $BERT --query a b"), 3);
    expect_says("err", "no reranker");
}

Test(embed_verb, long_texts_fail_or_are_cut)
{
    FILE *f = fopen("long", "w");
    for (int i = 0; i < 300; i++)
        fputs("a ", f);
    fclose(f);
    cr_expect_eq(shell("$Q embed -m $BERT -f long"), 2);
    expect_says("err", "302 tokens, limit 256");
    cr_expect_eq(shell("$Q embed -m $BERT -f long --truncate -o v.f32"), 0);
    cr_expect_eq(shell("$Q embed -m $BERT -f lines -o $BERT"), 2);
    cr_expect_eq(shell("$Q embed -m $BERT -f lines -o lines"), 2);
    cr_expect_eq(shell("$Q embed -m $BERT -f /dev/null"), 2);
    cr_expect_eq(shell("$Q run -m $BERT a"), 2);
    expect_says("err", "quern embed");
}

// ---- batch

static const cJSON *vector_of(const cJSON *line, int i)
{
    const cJSON *body = cJSON_GetObjectItem(cJSON_GetObjectItem(line, "response"), "body");
    return cJSON_GetObjectItem(cJSON_GetArrayItem(cJSON_GetObjectItem(body, "data"), i), "embedding");
}

Test(embed_verb, a_batch_embeds_rows_as_embed_does)
{
    float raw[8][32];
    size_t n;
    write_text(
        "in.jsonl",
        "{\"custom_id\":\"a\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":[\"a b c\",\"d e\"]}}\n"
        "{\"custom_id\":\"b\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"}}\n"
        "{\"custom_id\":\"c\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"f\",\"encoding_format\":\"base64\"}}\n"
        "{\"custom_id\":\"d\",\"url\":\"/v1/embeddings\",\"body\":{\"input\":\"f\",\"dimensions\":8}}\n");
    cr_assert_eq(shell("$Q embed -m $BERT -f lines -o v.f32"), 0);
    read_vectors("v.f32", raw, 8);
    cr_expect_eq(shell("$Q batch -m $BERT in.jsonl -o out"), 1);
    char *line = read_all("out", &n), *end = strchr(line, '\n');
    cJSON *row = cJSON_ParseWithLength(line, (size_t)(end - line));
    expect_vector(vector_of(row, 0), raw[0]);
    expect_vector(vector_of(row, 1), raw[1]);
    cJSON_Delete(row);
    line = end + 1, end = strchr(line, '\n');
    cr_expect(memmem(line, (size_t)(end - line), "not_supported", 13));
    cr_assert_eq(shell("sed -n 3p out | sed 's/.*\"embedding\":\"\\([^\"]*\\)\".*/\\1/' | base64 -d > v3 && "
                       "tail -c 128 v.f32 | cmp - v3"),
                 0);
    cr_assert_eq(shell("sed -n 4p out > four"), 0);
    row = cJSON_Parse(read_all("four", &n));
    cr_expect_eq(cJSON_GetArraySize(vector_of(row, 0)), 8);
    cJSON_Delete(row);
    cr_expect_eq(shell("$Q batch -m $BERT in.jsonl -o out"), 1);
    expect_says("err", "nothing to do");
}

Test(embed_verb, questions_and_poolings_that_do_not_fit_are_refused)
{
    cr_expect_eq(shell("$Q embed -m $BERT --override-kv bert.pooling_type=int:99 a"), 3);
    expect_says("err", "pooling_type");
    cr_expect_eq(shell("$Q embed -m $RANK --query a --pooling mean b"), 2);
    cr_expect_eq(shell("$Q embed -m $BERT --pooling rank b"), 2);
    expect_says("err", "--query");
    cr_expect_eq(shell("$Q embed -m $RANK -c 6 --truncate --query 'a b c d e f' x"), 2);
    expect_says("err", "no room");
    cr_expect_eq(shell("$Q batch -m $RANK lines -o out"), 1);
    cr_expect_eq(shell("grep -q reranker out"), 0);
    write_text("inf", "{\"text\": \"a\", \"id\": 1e999}\n");
    cr_expect_eq(shell("$Q embed -m $BERT -f inf"), 2);
    cr_expect_eq(shell("umask 022; $Q embed -m $BERT a -o v.npy && test $(stat -c %%a v.npy) = 644"), 0);
}

// The last bytes of the file are those of the last bias, which become no numbers.
Test(embed_verb, vectors_that_are_no_numbers_are_errors_of_their_rows)
{
    cr_assert_eq(shell("cp $BERT bad.gguf && head -c 64 /dev/zero | tr '\\0' '\\377' | "
                       "dd of=bad.gguf bs=1 seek=$(($(stat -c %%s bad.gguf) - 64)) conv=notrunc"),
                 0);
    cr_expect_eq(shell("$Q embed -m bad.gguf a"), 3);
    expect_says("err", "not finite");
    cr_expect_eq(shell("$Q batch -m bad.gguf lines -o out"), 1);
    cr_expect_eq(shell("test $(grep -c model_error out) = 3"), 0);
}

Test(embed_verb, lines_of_a_batch_are_texts_for_a_model_that_embeds)
{
    cr_expect_eq(shell("$Q batch -m $BERT lines -o out && grep -c embedding out > n"), 0);
    cr_expect_eq(shell("grep -qx 3 n"), 0);
    cr_expect_eq(shell("$Q batch --as embedding lines -o out2 && test $(wc -l < out2) = 3"), 0);
    cr_expect_eq(shell("$Q batch -m $BERT lines -o out --dry-run"), 0);
    cr_expect_eq(shell("$Q batch -m $BERT --as chat lines -o out3"), 2);
}

// What the flags say about a vector, embed and batch hear alike.
Test(embed_verb, a_batch_cuts_and_pools_as_embed_does)
{
    float want[2][32];
    size_t n;
    cr_assert_eq(shell("for i in $(seq 300); do printf 'a '; done > long; echo >> long; head -n 1 lines >> long"), 0);
    cr_assert_eq(shell("$Q embed -m $BERT -f long --truncate --pooling last -o v.f32"), 0);
    expect_says("err", "1 of 2 texts were cut to 256 tokens");
    read_vectors("v.f32", want, 2);
    cr_expect_eq(shell("$Q batch -m $BERT long -o out"), 1);
    cr_assert_eq(shell("$Q batch -m $BERT long -o cut --truncate --pooling last"), 0);
    expect_says("err", "texts of 1 rows were cut");
    char *line = read_all("cut", &n), *end = line;
    for (int i = 0; i < 2; i++, line = end + 1) {
        end = strchr(line, '\n');
        cJSON *row = cJSON_ParseWithLength(line, (size_t)(end - line));
        expect_vector(vector_of(row, 0), want[i]);
        cJSON_Delete(row);
    }
    cr_expect_eq(shell("$Q batch -m $BERT lines -o other --pooling none"), 2);
    expect_says("err", "quern embed makes more");
    cr_expect_eq(shell("$Q batch -m $BERT lines -o other --pooling rank"), 2);
    expect_says("err", "quern embed makes scores");
    cr_expect_eq(shell("$Q batch -m $BERT lines -o other --timeout 9"), 2);
    expect_says("err", "--timeout is for answers");
    cr_expect_eq(shell("$Q batch lines -o other --truncate"), 2);
    expect_says("err", "--truncate is for embeddings");
}
