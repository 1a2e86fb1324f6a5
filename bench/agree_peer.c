// Generates the most likely continuation of prompts with llama.cpp or ik_llama.cpp, as token ids with all logits.
// agree.py compiles it with the library of one of them and compares the output with quern's. It is not part of quern's
// build.
//
//     agree_peer MODEL OUT N_GEN THREADS SEQUENCES KV FLASH BANNED < PROMPTS
//
// KV is f16, f32, q8_0 or q4_0. FLASH is 0 or 1. BANNED is a comma-separated list of ids that are never chosen. Each
// line of PROMPTS holds the ids of one prompt. OUT holds int32 n_prompts, n_gen, n_vocab; int32 ids[n_prompts][n_gen];
// and float32 logits[n_prompts][n_gen][n_vocab]. SEQUENCES prompts are decoded in one batch. Any failure exits with
// status 1.
#include <llama.h>

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS_MOST = 4096, IDS_MOST = 4096, BANNED_MOST = 64, STEP_MOST = 512 };

struct prompt {
    int32_t *ids;
    int n;
};

struct peer {
    struct llama_context *context;
    struct llama_batch batch;
    int n_vocab, n_gen, n_prompts, n_banned;
    int32_t banned[BANNED_MOST];
    struct prompt prompts[PROMPTS_MOST];
    FILE *out;
};

static void stop(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

static void quiet(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

// Parses a list of numbers, separated by spaces or commas.
static int parse_ids(char *line, int32_t *ids, int most)
{
    int n = 0;
    for (char *word = strtok(line, " ,\n"); word; word = strtok(NULL, " ,\n")) {
        if (n == most)
            stop("more than %d ids", most);
        ids[n++] = (int32_t)strtol(word, NULL, 10);
    }
    return n;
}

static void read_prompts(struct peer *p)
{
    static char line[16 * IDS_MOST];
    static int32_t ids[IDS_MOST];
    while (fgets(line, sizeof line, stdin)) {
        int n = parse_ids(line, ids, IDS_MOST);
        if (!n || p->n_prompts == PROMPTS_MOST)
            stop("prompt %d: no ids, or too many prompts", p->n_prompts);
        struct prompt *prompt = &p->prompts[p->n_prompts++];
        prompt->ids = malloc((size_t)n * sizeof *ids);
        if (!prompt->ids)
            stop("no memory for a prompt");
        memcpy(prompt->ids, ids, (size_t)n * sizeof *ids);
        prompt->n = n;
    }
}

static enum ggml_type kv_type(const char *name)
{
    if (!strcmp(name, "f32"))
        return GGML_TYPE_F32;
    if (!strcmp(name, "q8_0"))
        return GGML_TYPE_Q8_0;
    if (!strcmp(name, "q4_0"))
        return GGML_TYPE_Q4_0;
    if (strcmp(name, "f16"))
        stop("%s: no type of the KV cache that is known here", name);
    return GGML_TYPE_F16;
}

static void open_model(struct peer *p, const char *path, int threads, int sequences, const char *kv, int flash)
{
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(path, llama_model_default_params());
    if (!model)
        stop("%s: cannot be loaded", path);
    int longest = 0;
    for (int i = 0; i < p->n_prompts; i++)
        longest = p->prompts[i].n > longest ? p->prompts[i].n : longest;
    struct llama_context_params params = llama_context_default_params();
    params.n_ctx = (uint32_t)((longest + p->n_gen + 255) / 256 * 256 * sequences);
    params.n_seq_max = (uint32_t)sequences;
    params.n_batch = params.n_ubatch = STEP_MOST;
    params.n_threads = params.n_threads_batch = threads;
    params.type_k = params.type_v = kv_type(kv);
#ifdef PEER_FLASH_TYPE
    params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
#else
    params.flash_attn = flash != 0;
#endif
    p->context = llama_init_from_model(model, params);
    if (!p->context)
        stop("%s: no context of %u", path, params.n_ctx);
#ifdef PEER_VOCAB
    p->n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
#else
    p->n_vocab = llama_n_vocab(model);
#endif
    p->batch = llama_batch_init(STEP_MOST, 0, 1);
}

static void forget(struct peer *p)
{
#ifdef PEER_MEMORY
    llama_memory_clear(llama_get_memory(p->context), true);
#else
    llama_kv_cache_clear(p->context);
#endif
}

static void push(struct peer *p, int32_t id, int position, int sequence, int wanted)
{
    struct llama_batch *b = &p->batch;
    int i = b->n_tokens++;
    b->token[i] = id;
    b->pos[i] = position;
    b->n_seq_id[i] = 1;
    b->seq_id[i][0] = sequence;
    b->logits[i] = (int8_t)wanted;
}

static void decode(struct peer *p)
{
    int status = llama_decode(p->context, p->batch);
    if (status)
        stop("a step of %d tokens failed: %d", p->batch.n_tokens, status);
}

// Returns the most likely id of row `row` of the last step, the lowest one of equals, and writes the id and the logits
// to the file.
static int32_t choose(struct peer *p, int row, int prompt, int step)
{
    float *logits = llama_get_logits_ith(p->context, row);
    if (!logits)
        stop("no logits in row %d", row);
    long place = (long)prompt * p->n_gen + step, ids = (long)p->n_prompts * p->n_gen;
    if (fseek(p->out, 12 + 4 * (ids + place * p->n_vocab), SEEK_SET) ||
        fwrite(logits, sizeof *logits, (size_t)p->n_vocab, p->out) != (size_t)p->n_vocab)
        stop("the output cannot be written");
    for (int i = 0; i < p->n_banned; i++)
        logits[p->banned[i]] = -INFINITY;
    int32_t best = 0;
    for (int32_t id = 1; id < p->n_vocab; id++)
        best = logits[id] > logits[best] ? id : best;
    if (fseek(p->out, 12 + 4 * place, SEEK_SET) || fwrite(&best, sizeof best, 1, p->out) != 1)
        stop("the output cannot be written");
    return best;
}

// Processes one prompt by itself in steps of at most STEP_MOST tokens. Returns the id that follows it.
static int32_t take_prompt(struct peer *p, int prompt, int sequence)
{
    const struct prompt *all = &p->prompts[prompt];
    for (int at = 0; at < all->n;) {
        p->batch.n_tokens = 0;
        for (; at < all->n && p->batch.n_tokens < STEP_MOST; at++)
            push(p, all->ids[at], at, sequence, at + 1 == all->n);
        decode(p);
    }
    return choose(p, p->batch.n_tokens - 1, prompt, 0);
}

// Answers prompts first to first + n - 1; each step has one row for each of them.
static void answer(struct peer *p, int first, int n)
{
    int32_t last[STEP_MOST];
    forget(p);
    for (int i = 0; i < n; i++)
        last[i] = take_prompt(p, first + i, i);
    for (int step = 1; step < p->n_gen; step++) {
        p->batch.n_tokens = 0;
        for (int i = 0; i < n; i++)
            push(p, last[i], p->prompts[first + i].n + step - 1, i, 1);
        decode(p);
        for (int i = 0; i < n; i++)
            last[i] = choose(p, i, first + i, step);
    }
}

int main(int argc, char **argv)
{
    static struct peer p;
    if (argc != 9)
        stop("usage: agree_peer MODEL OUT N_GEN THREADS SEQUENCES KV FLASH BANNED < PROMPTS");
    int sequences = atoi(argv[5]);
    p.n_gen = atoi(argv[3]);
    p.n_banned = parse_ids(argv[8], p.banned, BANNED_MOST);
    if (p.n_gen < 1 || sequences < 1 || sequences > STEP_MOST)
        stop("N_GEN is 1 or more, SEQUENCES from 1 to %d", STEP_MOST);
    read_prompts(&p);
    open_model(&p, argv[1], atoi(argv[4]), sequences, argv[6], atoi(argv[7]));
    p.out = fopen(argv[2], "wb");
    int32_t head[3] = {p.n_prompts, p.n_gen, p.n_vocab};
    if (!p.out || fwrite(head, sizeof head, 1, p.out) != 1)
        stop("%s: cannot be written", argv[2]);
    for (int first = 0; first < p.n_prompts; first += sequences)
        answer(&p, first, first + sequences < p.n_prompts ? sequences : p.n_prompts - first);
    return fclose(p.out) ? 1 : 0;
}
