// Tests the search for models that other programs have stored on the disk: made-up trees of the five layouts are found
// by name and never written to.
#include "cmd/catalog.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HEX_C "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"

static char home[64];

// --- a tree ---

static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
}

static const char *below_home(const char *path)
{
    static char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s/%s", home, path);
    return whole;
}

static void put(const char *path, const char *content)
{
    char whole[PATH_MAX];
    snprintf(whole, sizeof whole, "%s/%s", home, path);
    make_folders(whole);
    FILE *f = fopen(whole, "w");
    cr_assert(f, "%s", whole);
    fputs(content, f);
    fclose(f);
}

static void put_ollama(const char *manifest, const char *digest, bool blob)
{
    char json[1000], path[200];
    snprintf(json, sizeof json,
             "{\"schemaVersion\":2,\"layers\":[{\"mediaType\":\"application/"
             "vnd.ollama.image.license\",\"digest\":\"sha256:" HEX_C
             "\"},{\"mediaType\":\"application/vnd.ollama.image.model\",\"digest\":\"sha256:%s\",\"size\":4}]}",
             digest);
    snprintf(path, sizeof path, ".ollama/models/manifests/%s", manifest);
    put(path, json);
    snprintf(path, sizeof path, ".ollama/models/blobs/sha256-%s", digest);
    if (blob)
        put(path, "GGUF");
}

static void put_hub(const char *repo, const char *commit, const char *file)
{
    char path[300], link[300], blob[300];
    snprintf(blob, sizeof blob, ".cache/huggingface/hub/%s/blobs/%s", repo, commit);
    put(blob, "0123456789");
    snprintf(path, sizeof path, ".cache/huggingface/hub/%s/snapshots/%s/%s", repo, commit, file);
    snprintf(link, sizeof link, "%s/%s", home, path);
    make_folders(link);
    char target[300];
    snprintf(target, sizeof target, "%s/%s", home, blob);
    cr_assert_eq(symlink(target, link), 0);
}

static void setup(void)
{
    snprintf(home, sizeof home, "/tmp/quern-catalog-XXXXXX");
    cr_assert(mkdtemp(home));
    setenv("HOME", home, 1);
    for (const char *const *v =
             (const char *const[]){"OLLAMA_MODELS", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "LLAMA_CACHE", NULL};
         *v; v++)
        unsetenv(*v);
    put_ollama("registry.ollama.ai/library/llama3.2/3b", HEX_A, true);
    put_ollama("registry.ollama.ai/library/llama3.2/latest", HEX_B, true);
    put_ollama("registry.ollama.ai/someone/coder/7b", HEX_A, true);
    put_ollama("hf.co/org/repo-GGUF/Q4_K_M", HEX_B, true);
    put_ollama("registry.ollama.ai/library/gone/latest", HEX_C, false);
    put_ollama("registry.ollama.ai/library/evil/latest", "../../../../../../etc/passwd", false);
    put(".ollama/models/manifests/registry.ollama.ai/library/broken/latest", "{\"layers\": [");
    put("/.cache/huggingface/hub/models--org--Small-7B-GGUF/refs/main", "c2\n");
    put_hub("models--org--Small-7B-GGUF", "c1", "small-7b-Q8_0.gguf");
    put_hub("models--org--Small-7B-GGUF", "c2", "small-7b-Q4_K_M.gguf");
    put_hub("models--org--Small-7B-GGUF", "c2", "Q6_K/small-7b-Q6_K-00001-of-00002.gguf");
    put_hub("models--org--Small-7B-GGUF", "c2", "Q6_K/small-7b-Q6_K-00002-of-00002.gguf");
    put_hub("models--org--Small-7B-GGUF", "c2", "mmproj-small-f16.gguf");
    put_hub("models--solo", "d1", "readme.txt");
    put_hub("models--solo", "d1", "plain.gguf");
    put(".lmstudio/models/maker/Tiny/tiny-IQ2_XXS.gguf", "12345");
    put(".cache/llama.cpp/ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf", "123");
    put(".cache/llama.cpp/manifest=ggml-org=x.json", "{}");
    put(".docker/models/models.json",
        "{\"models\":[{\"id\":\"sha256:" HEX_A "\",\"tags\":[\"ai/smol:latest\",\"ai/smol:360M\"],"
        "\"files\":[]},{\"id\":\"sha256:" HEX_B "\",\"tags\":[\"ai/parts:big\"]}]}");
    put(".docker/models/manifests/sha256/" HEX_A,
        "{\"layers\":[{\"mediaType\":\"application/vnd.docker.ai.gguf.v3\",\"digest\":\"sha256:" HEX_C "\"}]}");
    put(".docker/models/blobs/sha256/" HEX_C, "123456");
    put(".docker/models/manifests/sha256/" HEX_B,
        "{\"layers\":[{\"mediaType\":\"application/vnd.docker.ai.gguf.v3\",\"digest\":\"sha256:" HEX_A "\"},"
        "{\"mediaType\":\"application/vnd.docker.ai.gguf.v3\",\"digest\":\"sha256:" HEX_B "\"}]}");
    put(".docker/models/bundles/sha256/" HEX_B "/model/model-00001-of-00002.gguf", "12");
    put(".docker/models/bundles/sha256/" HEX_B "/model/model-00002-of-00002.gguf", "345");
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void teardown(void)
{
    nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(catalog, .init = setup, .fini = teardown);

static struct catalog read_all(void)
{
    struct catalog c = {0};
    struct error err;
    cr_assert_eq(catalog_read(&c, &err), 0);
    return c;
}

static const struct catalog_entry *named(const struct catalog *c, const char *source, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->entries[i].source, source) && !strcmp(c->entries[i].name, name))
            return &c->entries[i];
    return NULL;
}

// --- what is found ---

Test(catalog, every_layout_is_read_and_nothing_else)
{
    static const struct {
        const char *source, *name, *path;
        uint64_t size;
        int parts;
    } wanted[] = {
        {"ollama", "llama3.2:3b", ".ollama/models/blobs/sha256-" HEX_A, 4, 1},
        {"ollama", "llama3.2:latest", ".ollama/models/blobs/sha256-" HEX_B, 4, 1},
        {"ollama", "someone/coder:7b", ".ollama/models/blobs/sha256-" HEX_A, 4, 1},
        {"ollama", "hf.co/org/repo-GGUF:Q4_K_M", ".ollama/models/blobs/sha256-" HEX_B, 4, 1},
        {"huggingface", "org/Small-7B-GGUF:Q4_K_M",
         ".cache/huggingface/hub/models--org--Small-7B-GGUF/snapshots/c2/small-7b-Q4_K_M.gguf", 10, 1},
        {"huggingface", "org/Small-7B-GGUF:Q6_K",
         ".cache/huggingface/hub/models--org--Small-7B-GGUF/snapshots/c2/Q6_K/small-7b-Q6_K-00001-of-00002.gguf", 20,
         2},
        {"huggingface", "solo/plain", ".cache/huggingface/hub/models--solo/snapshots/d1/plain.gguf", 10, 1},
        {"lmstudio", "maker/Tiny:IQ2_XXS", ".lmstudio/models/maker/Tiny/tiny-IQ2_XXS.gguf", 5, 1},
        {"llama.cpp", "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M",
         ".cache/llama.cpp/ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf", 3, 1},
        {"docker", "ai/smol:latest", ".docker/models/blobs/sha256/" HEX_C, 6, 1},
        {"docker", "ai/smol:360M", ".docker/models/blobs/sha256/" HEX_C, 6, 1},
        {"docker", "ai/parts:big", ".docker/models/bundles/sha256/" HEX_B "/model/model-00001-of-00002.gguf", 5, 2},
    };
    struct catalog c = read_all();
    cr_expect_eq(c.n, (int)COUNT_OF(wanted));
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        const struct catalog_entry *e = named(&c, wanted[i].source, wanted[i].name);
        cr_assert(e, "%s %s", wanted[i].source, wanted[i].name);
        cr_expect_str_eq(e->path, below_home(wanted[i].path));
        cr_expect_eq(e->size, wanted[i].size, "%s: %llu", e->name, (unsigned long long)e->size);
        cr_expect_eq(e->n_parts, wanted[i].parts);
    }
    catalog_free(&c);
}

Test(catalog, variables_move_the_places)
{
    char path[200];
    snprintf(path, sizeof path, "%s/.ollama/models", home);
    setenv("OLLAMA_MODELS", path, 1);
    snprintf(path, sizeof path, "%s/.cache/huggingface", home);
    setenv("HF_HOME", path, 1);
    snprintf(path, sizeof path, "%s/.cache", home);
    setenv("XDG_CACHE_HOME", path, 1);
    setenv("HOME", "/nonexistent", 1);
    struct catalog c = read_all();
    cr_expect(named(&c, "ollama", "llama3.2:3b"));
    cr_expect(named(&c, "huggingface", "solo/plain"));
    cr_expect(named(&c, "llama.cpp", "ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M"));
    cr_expect(!named(&c, "docker", "ai/smol:latest"));
    catalog_free(&c);
}

Test(catalog, a_disk_without_models_is_an_empty_list)
{
    setenv("HOME", "/nonexistent", 1);
    struct catalog c = read_all();
    cr_expect_eq(c.n, 0);
    catalog_free(&c);
}

// --- what a name means ---

static void expect_path(const char *name, const char *path)
{
    char *found;
    struct error err = {0};
    cr_assert_eq(catalog_resolve(name, &found, NULL, &err), 0, "%s: %s", name, err.text);
    cr_expect_str_eq(found, below_home(path), "%s", name);
    free(found);
}

// A model that is found by a part of its name is called by the whole name, one that is found by its path by that.
Test(catalog, a_model_keeps_the_name_by_which_it_is_known)
{
    static const char *const names[][2] = {
        {"llama3.2", "llama3.2:latest"}, {"LLAMA3.2:3B", "llama3.2:3b"}, {"/dev/null", NULL}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char *found, *called;
        struct error err = {0};
        cr_assert_eq(catalog_resolve(names[i][0], &found, &called, &err), 0, "%s: %s", names[i][0], err.text);
        cr_expect((!called && !names[i][1]) || (called && names[i][1] && !strcmp(called, names[i][1])), "%s: %s",
                  names[i][0], called ? called : "no name");
        free(found);
        free(called);
    }
}

Test(catalog, names_tags_quantisations_and_parts_of_names_are_understood)
{
    expect_path("llama3.2", ".ollama/models/blobs/sha256-" HEX_B);
    expect_path("llama3.2:3b", ".ollama/models/blobs/sha256-" HEX_A);
    expect_path("LLAMA3.2:3B", ".ollama/models/blobs/sha256-" HEX_A);
    expect_path("someone/coder", ".ollama/models/blobs/sha256-" HEX_A);
    expect_path("org/Small-7B-GGUF:q4_k_m",
                ".cache/huggingface/hub/models--org--Small-7B-GGUF/snapshots/c2/small-7b-Q4_K_M.gguf");
    expect_path("gemma-3", ".cache/llama.cpp/ggml-org_gemma-3-1b-it-GGUF_gemma-3-1b-it-Q4_K_M.gguf");
    expect_path("Tiny", ".lmstudio/models/maker/Tiny/tiny-IQ2_XXS.gguf");
    expect_path("smol", ".docker/models/blobs/sha256/" HEX_C); // two tags, one file
}

Test(catalog, a_name_that_may_mean_several_lists_them)
{
    char *path;
    struct error err = {0};
    cr_expect_eq(catalog_resolve("org/Small-7B-GGUF", &path, NULL, &err), -1);
    cr_expect_eq(err.code, E_USAGE);
    cr_expect(strstr(err.text, "2 models") && strstr(err.text, "org/Small-7B-GGUF:Q4_K_M, org/Small-7B-GGUF:Q6_K"),
              "%s", err.text);
}

Test(catalog, an_unknown_name_is_refused_and_a_path_is_left_alone)
{
    char *path;
    struct error err = {0};
    cr_expect_eq(catalog_resolve("no-such-model", &path, NULL, &err), -1);
    cr_expect_eq(err.code, E_USAGE);
    cr_expect(strstr(err.text, "no-such-model: no such file"), "%s", err.text);
    for (const char *const *p = (const char *const[]){"./x", "/nowhere/y", "z.gguf", "../w", NULL}; *p; p++) {
        cr_assert_eq(catalog_resolve(*p, &path, NULL, &err), 0);
        cr_expect_str_eq(path, *p);
        free(path);
    }
}

// --- the verb ---

Test(catalog, the_verb_lists_what_a_word_fits_and_says_what_cannot_be_read)
{
    char command[PATH_MAX], said[8192];
    cr_assert(getenv("QUERN_BIN"), "QUERN_BIN does not say where quern is");
    snprintf(command, sizeof command, "'%s' ls --json q4_k_m", getenv("QUERN_BIN"));
    FILE *f = popen(command, "r");
    said[fread(said, 1, sizeof said - 1, f)] = 0;
    cr_expect_eq(pclose(f), 0);
    cJSON *list = cJSON_Parse(said);
    cr_assert_eq(cJSON_GetArraySize(list), 3, "%s", said);
    const cJSON *first = cJSON_GetArrayItem(list, 0);
    cr_expect_str_eq(cJSON_GetObjectItem(first, "source")->valuestring, "llama.cpp");
    cr_expect(strstr(cJSON_GetObjectItem(first, "error")->valuestring, ".gguf"), "%s", said);
    cJSON_Delete(list);
}

// --- the tree stays as it is ---

static long long sum_of_times;

static int add_time(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)path, (void)kind, (void)at;
    sum_of_times += st->st_mtim.tv_sec + st->st_mtim.tv_nsec + st->st_size + 1;
    return 0;
}

static long long fingerprint(void)
{
    sum_of_times = 0;
    nftw(home, add_time, 16, FTW_PHYS);
    return sum_of_times;
}

Test(catalog, reading_writes_nothing)
{
    long long before = fingerprint();
    struct catalog c = read_all();
    catalog_free(&c);
    cr_expect_eq(fingerprint(), before);
}
