// Each layout has a reader that walks its folders, at most 6 levels deep, and adds up to 10000 models in all; for
// Ollama and Docker, JSON manifests tell which file holds the weights. A name is resolved by four rules from the
// strictest to the loosest: the exact name, NAME:latest, NAME:QUANT or NAME/FILE, and any name that contains it. The
// first rule that matches decides; it is an error if it matches several files.
#include "cmd/catalog.h"
#include "engine/json.h"
#include "engine/model.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ENTRIES_MAX = 10000,
    DEPTH_MAX = 6, // of folders below a root that are searched
    JSON_BYTES_MAX = 4 << 20,
    HEX_DIGITS = 64,   // of a SHA-256
    NAMED_AT_MOST = 6, // candidates listed in the error of an ambiguous name
};

// --- names ---

static bool ends_with(const char *s, const char *tail)
{
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcasecmp(s + n - m, tail) == 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Reads the part number and the number of parts from "-00002-of-00005.gguf". False if the file is not a part.
static bool part_of(const char *file, int *part, int *parts)
{
    size_t n = strlen(file), tail = strlen("-00001-of-00005.gguf");
    int used = 0;
    return n > tail && sscanf(file + n - tail, "-%5d-of-%5d.gguf%n", part, parts, &used) == 2 && (size_t)used == tail;
}

// Whether a file is a model or the first part of one. A vision projector (mmproj) or a later part is not.
static bool is_model_file(const char *file)
{
    int part, parts;
    if (!ends_with(file, ".gguf") || strstr(file, "mmproj"))
        return false;
    return !part_of(file, &part, &parts) || part == 1;
}

// Whether a piece of a file name is a quantisation: Q4_K_M, IQ2_XXS, TQ1_0, MXFP4, BF16, F16, F32.
static bool is_quant(struct str s)
{
    static const char *const heads[] = {"IQ", "TQ", "Q", "BF", "F", "MXFP", "NVFP"};
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        size_t n = strlen(heads[i]);
        if (s.len > n && strncasecmp(s.data, heads[i], n) == 0 && isdigit((unsigned char)s.data[n]))
            return true;
    }
    return false;
}

// The last such piece of a file name; empty if there is none.
static struct str quant_of(const char *file)
{
    const char *base = base_of(file);
    struct str found = {"", 0};
    for (const char *p = base; *p;) {
        size_t n = strcspn(p, "-.");
        if (is_quant((struct str){p, n}))
            found = (struct str){p, n};
        p += n + (p[n] != 0);
    }
    return found;
}

// --- the list ---

static int add(struct catalog *c, const char *source, const char *name, const char *path, struct error *err)
{
    struct stat st;
    if (c->n == ENTRIES_MAX || stat(path, &st) || !S_ISREG(st.st_mode))
        return 0;
    if (c->n == c->cap) {
        int cap = c->cap ? 2 * c->cap : 64;
        void *entries = realloc(c->entries, (size_t)cap * sizeof *c->entries);
        if (!entries)
            return fail(err, E_MEMORY, "no memory for a list of %d models", cap);
        c->entries = entries;
        c->cap = cap;
    }
    struct catalog_entry e = {.source = source, .size = (uint64_t)st.st_size, .modified = st.st_mtime, .n_parts = 1};
    e.name = arena_strdup(&c->arena, str_from(name));
    e.path = arena_strdup(&c->arena, str_from(path));
    if (!e.name || !e.path)
        return fail(err, E_MEMORY, "no memory for the list of models");
    c->entries[c->n++] = e;
    return 0;
}

// Adds the sizes of the other parts of a split model, which must exist beside the first.
static void add_parts(struct catalog_entry *e)
{
    int part, parts;
    char path[PATH_MAX];
    size_t stem = strlen(e->path) - strlen("00001-of-00005.gguf");
    if (!part_of(base_of(e->path), &part, &parts))
        return;
    e->n_parts = parts;
    for (int i = 2; i <= parts; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%.*s%05d-of-%05d.gguf", (int)stem, e->path, i, parts);
        if (stat(path, &st) == 0)
            e->size += (uint64_t)st.st_size;
    }
}

// --- folders ---

struct walk {
    struct catalog *c;
    const char *source;
    const char *root; // paths passed to `file` are relative to it
    int (*file)(struct walk *w, const char *path, const char *below, struct error *err);
    const char *prefix; // the layout's prefix of names
};

static int walk_folder(struct walk *w, const char *path, int depth, struct error *err);

static int walk_entry(struct walk *w, const char *path, int depth, struct error *err)
{
    struct stat st;
    if (stat(path, &st))
        return 0;
    if (S_ISDIR(st.st_mode))
        return depth < DEPTH_MAX ? walk_folder(w, path, depth + 1, err) : 0;
    return S_ISREG(st.st_mode) ? w->file(w, path, path + strlen(w->root) + 1, err) : 0;
}

static int walk_folder(struct walk *w, const char *path, int depth, struct error *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    int status = 0;
    for (struct dirent *d; !status && w->c->n < ENTRIES_MAX && (d = readdir(dir));) {
        char below[PATH_MAX];
        if (d->d_name[0] == '.' || snprintf(below, sizeof below, "%s/%s", path, d->d_name) >= (int)sizeof below)
            continue;
        status = walk_entry(w, below, depth, err);
    }
    closedir(dir);
    return status;
}

static int walk(struct walk *w, const char *root, struct error *err)
{
    w->root = root;
    return walk_folder(w, root, 0, err);
}

// Builds the path $variable/below, or ~/otherwise if the variable is not set. False if there is neither.
static bool place(char out[PATH_MAX], const char *variable, const char *below, const char *otherwise)
{
    const char *root = getenv(variable), *home = getenv("HOME");
    if (root && *root)
        return snprintf(out, PATH_MAX, "%s%s", root, below) < PATH_MAX;
    return otherwise && home && *home && snprintf(out, PATH_MAX, "%s/%s", home, otherwise) < PATH_MAX;
}

// --- JSON ---

// The parsed content of a JSON file, which lives in the arena; NULL if the file cannot be read or parsed.
static const struct value *read_json(struct arena *arena, const char *path)
{
    struct value *json = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0 && st.st_size <= JSON_BYTES_MAX) {
        size_t size = (size_t)st.st_size;
        char *data = malloc(size);
        struct json_reader reader = {.arena = arena};
        struct error why;
        json = ARENA_ARRAY(arena, struct value, 1);
        if (!data || !json || read(fd, data, size) != (ssize_t)size ||
            json_read(json, &reader, (struct str){data, size}, &why))
            json = NULL;
        free(data);
    }
    if (fd >= 0)
        close(fd);
    return json;
}

static struct str text_at(const struct value *object, const char *key)
{
    const struct value *v = value_get(object, key);
    return value_is(v, VALUE_STRING) ? v->text : STR_LIT("");
}

static const struct value_list *list_at(const struct value *object, const char *key)
{
    static const struct value_list none = {0};
    const struct value *v = value_get(object, key);
    return value_is(v, VALUE_LIST) ? v->list : &none;
}

// The 64 hex digits of "sha256:...", to be printed with %.64s. NULL if the text has another form: a path is made of
// the digits, so they must be checked.
static const char *digits_of(struct str digest)
{
    static const char head[] = "sha256:";
    size_t skip = sizeof head - 1;
    if (digest.len != skip + HEX_DIGITS || memcmp(digest.data, head, skip))
        return NULL;
    for (size_t i = skip; i < digest.len; i++)
        if (!memchr("0123456789abcdefABCDEF", digest.data[i], 22))
            return NULL;
    return digest.data + skip;
}

// Finds the layers of a manifest whose media type begins with `type`. Returns how many there are, and the digits of
// the first.
static int find_layers(const struct value *manifest, const char *type, const char **digits)
{
    const struct value_list *layers = list_at(manifest, "layers");
    int n = 0;
    for (size_t i = 0; i < layers->n; i++) {
        const char *hex = digits_of(text_at(&layers->items[i], "digest"));
        struct str media = text_at(&layers->items[i], "mediaType");
        if (!hex || media.len < strlen(type) || memcmp(media.data, type, strlen(type)))
            continue;
        if (n++ == 0)
            *digits = hex;
    }
    return n;
}

// --- Ollama: manifests/HOST/NAMESPACE/MODEL/TAG is JSON that names blobs/sha256-HEX ---

// The name of a manifest: "MODEL:TAG" for the default library, else "NAMESPACE/MODEL:TAG", with the host in front if
// it is not the default one. False if the path is not that of a manifest.
static bool ollama_name(const char *below, char name[PATH_MAX])
{
    static const char own[] = "registry.ollama.ai/", library[] = "library/";
    int slashes = 0;
    for (const char *p = below; *p; p++)
        slashes += *p == '/';
    if (slashes != 3)
        return false;
    if (!strncmp(below, own, sizeof own - 1)) {
        below += sizeof own - 1;
        if (!strncmp(below, library, sizeof library - 1))
            below += sizeof library - 1;
    }
    snprintf(name, PATH_MAX, "%s", below);
    *strrchr(name, '/') = ':';
    return true;
}

static int ollama_manifest(struct walk *w, const char *path, const char *below, struct error *err)
{
    char name[PATH_MAX], blob[PATH_MAX];
    const char *digits;
    if (!ollama_name(below, name))
        return 0;
    int status = 0;
    struct arena arena = {0};
    if (find_layers(read_json(&arena, path), "application/vnd.ollama.image.model", &digits) > 0 &&
        snprintf(blob, sizeof blob, "%s/blobs/sha256-%.64s", w->prefix, digits) < (int)sizeof blob)
        status = add(w->c, w->source, name, blob, err);
    arena_free(&arena);
    return status;
}

static int read_ollama_at(struct catalog *c, const char *root, struct error *err)
{
    char manifests[PATH_MAX + 16];
    snprintf(manifests, sizeof manifests, "%s/manifests", root);
    struct walk w = {.c = c, .source = "ollama", .file = ollama_manifest, .prefix = root};
    return walk(&w, manifests, err);
}

static int read_ollama(struct catalog *c, struct error *err)
{
    char root[PATH_MAX];
    if (place(root, "OLLAMA_MODELS", "", ".ollama/models") && read_ollama_at(c, root, err))
        return -1;
    return getenv("OLLAMA_MODELS") ? 0 : read_ollama_at(c, "/usr/share/ollama/.ollama/models", err);
}

// --- layouts in which model files have telling names ---

// Adds a file under the name "PREFIX:QUANT"; "PREFIX/FILE" if the file name does not tell the quantisation; FILE if
// there is no prefix.
static int named_file(struct walk *w, const char *path, const char *below, struct error *err)
{
    char name[PATH_MAX];
    const char *file = base_of(below);
    if (!is_model_file(file))
        return 0;
    struct str quant = quant_of(file);
    int stem = (int)(strlen(file) - strlen(".gguf"));
    if (!w->prefix)
        snprintf(name, sizeof name, "%.*s", stem, file);
    else if (quant.len)
        snprintf(name, sizeof name, "%s:%.*s", w->prefix, (int)quant.len, quant.data);
    else
        snprintf(name, sizeof name, "%s/%.*s", w->prefix, stem, file);
    int before = w->c->n;
    if (add(w->c, w->source, name, path, err))
        return -1;
    if (w->c->n > before)
        add_parts(&w->c->entries[before]);
    return 0;
}

// --- Hugging Face: models--ORG--REPO/{refs/main, snapshots/COMMIT/PATH} ---

// The name ORG/REPO of a cache folder.
static bool hub_name(const char *folder, char name[PATH_MAX])
{
    static const char head[] = "models--";
    if (strncmp(folder, head, sizeof head - 1))
        return false;
    snprintf(name, PATH_MAX, "%s", folder + sizeof head - 1);
    char *middle = strstr(name, "--");
    if (middle) {
        *middle = '/';
        memmove(middle + 1, middle + 2, strlen(middle + 2) + 1);
    }
    return true;
}

// Reads the commit that refs/main points at. Other snapshots are older.
static bool hub_commit(const char *repo, char commit[128])
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/refs/main", repo);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, commit, 127);
    if (fd >= 0)
        close(fd);
    commit[MAX(n, 0)] = 0;
    commit[strcspn(commit, "\r\n")] = 0;
    return commit[0] && !strchr(commit, '/') && commit[0] != '.';
}

static int read_hub_repo(struct catalog *c, const char *hub, const char *folder, struct error *err)
{
    char name[PATH_MAX], repo[PATH_MAX], commit[128], snapshot[PATH_MAX];
    if (!hub_name(folder, name) || snprintf(repo, sizeof repo, "%s/%s", hub, folder) >= (int)sizeof repo)
        return 0;
    bool known = hub_commit(repo, commit);
    if (snprintf(snapshot, sizeof snapshot, "%s/snapshots%s%s", repo, known ? "/" : "", known ? commit : "") >=
        (int)sizeof snapshot)
        return 0;
    struct walk w = {.c = c, .source = "huggingface", .file = named_file, .prefix = name};
    return walk(&w, snapshot, err);
}

static bool hub_root(char root[PATH_MAX])
{
    return place(root, "HF_HUB_CACHE", "", NULL) || place(root, "HF_HOME", "/hub", NULL) ||
           place(root, "XDG_CACHE_HOME", "/huggingface/hub", ".cache/huggingface/hub");
}

static int read_hub(struct catalog *c, struct error *err)
{
    char root[PATH_MAX];
    DIR *dir = hub_root(root) ? opendir(root) : NULL;
    int status = 0;
    for (struct dirent *d; dir && !status && (d = readdir(dir));)
        status = read_hub_repo(c, root, d->d_name, err);
    if (dir)
        closedir(dir);
    return status;
}

// --- LM Studio: PUBLISHER/MODEL/FILE.gguf ---

static int studio_file(struct walk *w, const char *path, const char *below, struct error *err)
{
    char prefix[PATH_MAX];
    snprintf(prefix, sizeof prefix, "%s", below);
    char *slash = strrchr(prefix, '/');
    if (slash)
        *slash = 0;
    struct walk named = {.c = w->c, .source = w->source, .prefix = slash ? prefix : NULL};
    return named_file(&named, path, below, err);
}

static int read_studio(struct catalog *c, struct error *err)
{
    char root[PATH_MAX];
    const char *home = getenv("HOME");
    if (!home || snprintf(root, sizeof root, "%s/.lmstudio/models", home) >= (int)sizeof root)
        return 0;
    struct walk w = {.c = c, .source = "lmstudio", .file = studio_file};
    return walk(&w, root, err);
}

// --- llama.cpp: files in one folder ---

static int read_llama_cpp(struct catalog *c, struct error *err)
{
    char root[PATH_MAX];
    if (!place(root, "LLAMA_CACHE", "", NULL) && !place(root, "XDG_CACHE_HOME", "/llama.cpp", ".cache/llama.cpp"))
        return 0;
    struct walk w = {.c = c, .source = "llama.cpp", .file = named_file};
    return walk(&w, root, err);
}

// --- Docker: models.json names manifests, which name blobs ---

// Adds the weights of a Docker model: a blob, or, for a split model, the first of the parts, which a bundle stores
// under their own names.
static int add_docker_model(struct catalog *c, const char *root, const char *id, struct str tag, struct error *err)
{
    char path[PATH_MAX], name[PATH_MAX];
    const char *digits;
    struct arena arena = {0};
    if (snprintf(name, sizeof name, "%.*s", (int)MIN(tag.len, sizeof name), tag.data) >= (int)sizeof name ||
        snprintf(path, sizeof path, "%s/manifests/sha256/%.64s", root, id) >= (int)sizeof path)
        return 0;
    int n = find_layers(read_json(&arena, path), "application/vnd.docker.ai.gguf", &digits), status = 0;
    if (n == 1 && snprintf(path, sizeof path, "%s/blobs/sha256/%.64s", root, digits) < (int)sizeof path)
        status = add(c, "docker", name, path, err);
    else if (n > 1 && snprintf(path, sizeof path, "%s/bundles/sha256/%.64s/model/model-00001-of-%05d.gguf", root, id,
                               n) < (int)sizeof path) {
        int before = c->n;
        status = add(c, "docker", name, path, err);
        if (c->n > before)
            add_parts(&c->entries[before]);
    }
    arena_free(&arena);
    return status;
}

static int read_docker(struct catalog *c, struct error *err)
{
    char root[PATH_MAX], path[PATH_MAX + 16];
    const char *home = getenv("HOME");
    if (!home || snprintf(root, sizeof root, "%s/.docker/models", home) >= (int)sizeof root)
        return 0;
    snprintf(path, sizeof path, "%s/models.json", root);
    int status = 0;
    struct arena arena = {0};
    const struct value_list *models = list_at(read_json(&arena, path), "models");
    for (size_t i = 0; i < models->n; i++) {
        const char *id = digits_of(text_at(&models->items[i], "id"));
        const struct value_list *tags = list_at(&models->items[i], "tags");
        for (size_t j = 0; id && j < tags->n && !status; j++)
            if (value_is(&tags->items[j], VALUE_STRING))
                status = add_docker_model(c, root, id, tags->items[j].text, err);
    }
    arena_free(&arena);
    return status;
}

// --- all layouts together ---

static int by_name(const void *a, const void *b)
{
    const struct catalog_entry *x = a, *y = b;
    int order = strcasecmp(x->name, y->name);
    if (!order)
        order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path);
}

int catalog_read(struct catalog *c, struct error *err)
{
    static int (*const readers[])(struct catalog * c, struct error * err) = {read_ollama, read_hub, read_studio,
                                                                             read_llama_cpp, read_docker};
    for (size_t i = 0; i < COUNT_OF(readers); i++)
        if (readers[i](c, err))
            return -1;
    if (c->n)
        qsort(c->entries, (size_t)c->n, sizeof *c->entries, by_name);
    return 0;
}

void catalog_free(struct catalog *c)
{
    arena_free(&c->arena);
    free(c->entries);
    *c = (struct catalog){0};
}

// --- resolving a name to a file ---

static bool is_exactly(const char *name, const char *wanted)
{
    return strcasecmp(name, wanted) == 0;
}

// "llama3.2" matches llama3.2:latest.
static bool is_latest(const char *name, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncasecmp(name, wanted, n) == 0 && strcasecmp(name + n, ":latest") == 0;
}

// "org/repo" matches org/repo:QUANT for any quantisation, if there is only one.
static bool is_variant(const char *name, const char *wanted)
{
    size_t n = strlen(wanted);
    return strncasecmp(name, wanted, n) == 0 && (name[n] == ':' || name[n] == '/');
}

static bool holds(const char *name, const char *wanted)
{
    return strcasestr(name, wanted) != NULL;
}

static int ambiguous(const struct catalog *c, bool (*matches)(const char *, const char *), const char *wanted,
                     struct error *err)
{
    char names[400] = "";
    size_t used = 0;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        if (!matches(c->entries[i].name, wanted))
            continue;
        if (n++ < NAMED_AT_MOST && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", n > 1 ? ", " : "", c->entries[i].name);
    }
    return fail(err, E_USAGE, "%s: %d models on this disk may be meant: %s%s; `quern ls %s` lists them", wanted, n,
                names, n > NAMED_AT_MOST ? ", .." : "", wanted);
}

const struct catalog_entry *catalog_find(const struct catalog *c, const char *name, struct error *err)
{
    // rules from the strictest to the loosest
    static bool (*const rules[])(const char *, const char *) = {is_exactly, is_latest, is_variant, holds};
    for (size_t r = 0; r < COUNT_OF(rules); r++) {
        const struct catalog_entry *found = NULL;
        bool several = false;
        for (int i = 0; i < c->n; i++) {
            if (!rules[r](c->entries[i].name, name))
                continue;
            several |= found && strcmp(found->path, c->entries[i].path);
            found = found ? found : &c->entries[i];
        }
        if (several)
            return ambiguous(c, rules[r], name, err), NULL;
        if (found)
            return found;
    }
    return fail(err, E_USAGE, "%s: no such file, and no model on this disk has a name like it (`quern ls` lists %d)",
                name, c->n),
           NULL;
}

// Whether the name is written like a path. It then is one, even if nothing exists there.
static bool is_path(const char *name)
{
    return name[0] == '/' || name[0] == '.' || ends_with(name, ".gguf") || access(name, F_OK) == 0;
}

// Copies a path, and a name unless it or `called` is NULL.
static int give_copies(const char *found, const char *name, char **path, char **called, struct error *err)
{
    *path = strdup(found);
    if (called && name)
        *called = strdup(name);
    if (*path && (!called || !name || *called))
        return 0;
    free(*path);
    return fail(err, E_MEMORY, "no memory for a path");
}

int catalog_resolve(const char *name, char **path, char **called, struct error *err)
{
    struct catalog c = {0};
    if (called)
        *called = NULL;
    if (!strcmp(name, MODEL_BUILTIN) || is_path(name))
        return give_copies(name, NULL, path, called, err);
    int status = catalog_read(&c, err);
    const struct catalog_entry *e = status ? NULL : catalog_find(&c, name, err);
    status = e ? give_copies(e->path, e->name, path, called, err) : -1;
    catalog_free(&c);
    return status;
}
