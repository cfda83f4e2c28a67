/* Live runs under prefix caching on the CPU: requests that begin alike hold the same pages, and
 * get the tokens that they get without. */
#include <jansson.h>

#include "tests/support/cli.h"
#include "tests/support/live.h"

enum { N = 4, LATER = 1000000000 };

/* Prompts with a beginning that no row left, whole blocks and a part of one; a prompt that begins
 * like another's; a turn of a conversation, which begins with what the first one was answered. */
static const struct arrival alike[] = {
    {.id = 0,
     .prompt_tokens = 21,
     .output_tokens = 10,
     .shares = 9,
     .prefix_tokens = 18,
     .leaves = 1},
    {.id = 1, .prompt_tokens = 26, .output_tokens = 9, .shares = 9, .prefix_tokens = 18},
    {.id = 2,
     .arrival_ns = LATER,
     .prompt_tokens = 37,
     .output_tokens = 12,
     .shares = 1,
     .prefix_tokens = 31,
     .leaves = 2},
    {.id = 3,
     .arrival_ns = 2LL * LATER,
     .prompt_tokens = 52,
     .output_tokens = 7,
     .shares = 2,
     .prefix_tokens = 49},
};

static const struct arrival unlike[] = {
    {.id = 0, .prompt_tokens = 21, .output_tokens = 10},
    {.id = 1, .prompt_tokens = 26, .output_tokens = 9},
    {.id = 2, .prompt_tokens = 37, .output_tokens = 12},
    {.id = 3, .prompt_tokens = 52, .output_tokens = 7},
};

/* All at once: the pages of one are computed while another waits for them, or computes them, too.
 */
static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 34, .output_tokens = 12, .shares = 9, .prefix_tokens = 32},
    {.id = 1, .prompt_tokens = 35, .output_tokens = 9, .shares = 9, .prefix_tokens = 32},
    {.id = 2, .prompt_tokens = 33, .output_tokens = 14, .shares = 9, .prefix_tokens = 32},
    {.id = 3, .prompt_tokens = 32, .output_tokens = 7, .shares = 9, .prefix_tokens = 32},
};

static const struct {
    const char *name, *model, *settings[6];
} systems[] = {
    {"sdar", "sdar-tiny", {"block_tokens=4", "page_tokens=4"}},
    {"sdar", "sdar-tiny", {"block_tokens=8", "page_tokens=4", "max_batched_tokens=16"}},
    {"sdar", "sdar-tiny", {"block_tokens=4", "page_tokens=4", "cache.cross_block=on"}},
    {"lmdeploy", "sdar-tiny", {"block_tokens=8", "page_tokens=8"}},
    {"sglang", "llada2-tiny", {"block_tokens=4", "page_tokens=4"}},
    {"sdar", "fast-dllm-v2-tiny", {"block_tokens=4", "page_tokens=4"}},
    {"sdar", "sdar-tiny", {"block_tokens=4", "page_tokens=32"}},
    {"lmdeploy", "sdar-tiny", {"block_tokens=12", "page_tokens=8"}},
    /* What the row before a window said is kept, and is computed where its block is found. */
    {"d2f",
     "fast-dllm-v2-tiny",
     {"block_tokens=4", "page_tokens=4", "decoder=several-blocks", "decoder.threshold=0.01",
      "blocks_in_flight=3"}},
    {"multibd",
     "fast-dllm-v2-tiny",
     {"block_tokens=4", "page_tokens=8", "decoder=several-blocks", "decoder.threshold=0.05"}},
    {"vllm-ar", "qwen2.5-tiny", {"block_tokens=1", "page_tokens=4", "max_batched_tokens=24"}},
};
enum { N_SYSTEMS = sizeof systems / sizeof systems[0], AUTOREGRESSIVE = N_SYSTEMS - 1 };

static struct system *open_system(size_t i, bool caches, const char *decoder) {
    const char *settings[LIVE_SETTINGS] = {
        "runtime=unmask", caches ? "prefix_caching=on" : "prefix_caching=off", decoder};
    for (uint32_t n = 0; n < 6 && systems[i].settings[n] != NULL; n++) {
        settings[3 + n] = systems[i].settings[n];
    }
    return live_system_of(systems[i].name, systems[i].model, settings);
}

static const char *const decoders[] = {"decoder=fixed", "decoder=threshold"};

static void check_served(const struct served *served) {
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    ck_assert_uint_eq(served->result.completed, N);
    ck_assert_uint_eq(served->n_outputs, N);
    ck_assert_int_le(served->pool_bytes, served->result.kv_peak_bytes);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    ck_assert_int_eq(served->activation_bytes, served->planned_activation_bytes);
    ck_assert_int_eq(served->memory.metered_bytes + served->memory.unmapped_bytes,
                     served->memory.planned_bytes);
}

static uint64_t tokens_found(const struct served *served) {
    uint64_t sum = 0;
    for (int i = 0; i < N; i++) {
        sum += served->records[i].prefix_tokens;
    }
    return sum;
}

/* Step by step the same requests, positions and commits. */
static void same_steps(const struct served *a, const struct served *b) {
    ck_assert_uint_eq(a->n_steps, b->n_steps);
    for (size_t i = 0; i < a->n_steps; i++) {
        const uint32_t n = a->steps[i].n_requests;
        ck_assert_uint_eq(n, b->steps[i].n_requests);
        ck_assert_uint_eq(a->steps[i].steps, b->steps[i].steps);
        ck_assert_mem_eq(a->ids[i], b->ids[i], n * sizeof a->ids[i][0]);
        ck_assert_mem_eq(a->commits[i], b->commits[i], n * sizeof a->commits[i][0]);
    }
    ck_assert_mem_eq(a->result.sym, b->result.sym, sizeof a->result.sym);
    ck_assert_int_eq(a->result.kv_peak_bytes, b->result.kv_peak_bytes);
    for (int i = 0; i < N; i++) {
        ck_assert_int_eq(a->records[i].prefix_tokens, b->records[i].prefix_tokens);
        ck_assert_int_eq(a->records[i].shared_tokens, b->records[i].shared_tokens);
    }
}

TEST(requests_that_begin_alike_get_the_tokens_that_they_get_without_the_cache) {
    const struct arrival *const traffic[] = {alike, together, unlike};
    for (size_t i = 0; i < 2 * N_SYSTEMS + 2; i++) {
        const struct arrival *arrivals = traffic[i < 2 * N_SYSTEMS ? i % 2 : 2];
        const size_t of = i / 2 % N_SYSTEMS;
        const char *decoder = decoders[of != AUTOREGRESSIVE && (i / 2 + i) % 2 == 0];
        struct system *with = open_system(of, true, decoder);
        struct system *without = open_system(of, false, decoder);
        struct served *a = serve_live(with, arrivals, N), *b = serve_live(without, arrivals, N);
        check_served(a);
        same_tokens(a, b, N);
        if (arrivals == unlike) {
            same_steps(a, b);
        } else {
            ck_assert_uint_gt(tokens_found(a), 0);
            ck_assert_int_lt(a->result.sym[SYM_TOKENS], b->result.sym[SYM_TOKENS]);
            ck_assert_int_lt(a->result.kv_peak_bytes, b->result.kv_peak_bytes);
        }
        ck_assert_uint_eq(tokens_found(b), 0);
        free(a);
        free(b);
        system_close(with);
        system_close(without);
    }
}

/* A prompt that takes the pages of the one before it, with which the one after it begins. */
static const struct arrival apart[] = {
    {.id = 0, .prompt_tokens = 34, .output_tokens = 12, .shares = 9, .prefix_tokens = 32},
    {.id = 1, .arrival_ns = LATER, .prompt_tokens = 30, .output_tokens = 6},
    {.id = 2,
     .arrival_ns = 2LL * LATER,
     .prompt_tokens = 33,
     .output_tokens = 9,
     .shares = 9,
     .prefix_tokens = 32},
    {.id = 3,
     .arrival_ns = 3LL * LATER,
     .prompt_tokens = 33,
     .output_tokens = 3,
     .shares = 9,
     .prefix_tokens = 32},
};

TEST(pages_that_are_evicted_and_requests_that_are_preempted_change_no_token) {
    static const size_t of[] = {0, 1, 2, 5, 8, AUTOREGRESSIVE};
    for (size_t i = 0; i < 12; i++) {
        const struct arrival *arrivals = i % 2 == 0 ? together : apart;
        const char *decoder = decoders[of[i / 2] != AUTOREGRESSIVE && i % 3 == 0];
        struct system *few = open_system(of[i / 2], true, decoder);
        struct system *many = open_system(of[i / 2], false, decoder);
        few->budget.pool_bytes = 14 * few->budget.unit_bytes;
        struct served *a = serve_live(few, arrivals, N), *b = serve_live(many, arrivals, N);
        check_served(a);
        same_tokens(a, b, N);
        ck_assert_int_le(a->result.kv_peak_bytes, few->budget.pool_bytes);
        if (arrivals == together) {
            ck_assert_uint_gt(a->n_preempted, 0);
            ck_assert_uint_gt(tokens_found(a), 0);
        } else {
            ck_assert_int_lt(a->records[2].prefix_tokens, 32);
            ck_assert_int_eq(a->records[3].prefix_tokens, 32);
        }
        free(a);
        free(b);
        system_close(few);
        system_close(many);
    }
}

/* A schedule once more, on the device. */
static struct served *play(struct system *system, const struct arrival *arrivals,
                           const struct served *played) {
    struct accuracy accuracy;
    accuracy_init(&accuracy, system, played->n_steps, 0);
    struct served *served = serve(&MAKE(struct serving, .system = system, .arrivals = arrivals,
                                        .n = N, .played = played, .accuracy = &accuracy));
    accuracy_fini(&accuracy);
    return served;
}

/* What each step runs and commits, what is found, and the memory of it. */
TEST(a_simulation_a_live_run_and_its_replay_take_the_same_steps) {
    static const size_t of[] = {0, 2, 3, AUTOREGRESSIVE};
    for (size_t i = 0; i < 4; i++) {
        const struct arrival *arrivals = i == 0 ? alike : together;
        struct system *system = open_system(of[i], true, "decoder=fixed");
        system->budget.pool_bytes = (of[i] == 3 ? 10 : 20) * system->budget.unit_bytes;
        struct served *live = serve_live(system, arrivals, N);
        struct served *simulated = serve(&MAKE(struct serving, .system = system,
                                               .arrivals = arrivals, .n = N, .simulates = true));
        struct served *again = play(system, arrivals, live),
                      *carried_out = play(system, arrivals, simulated);
        check_served(again);
        check_served(carried_out);
        same_steps(live, simulated);
        same_steps(live, again);
        same_steps(live, carried_out);
        same_tokens(live, again, N);
        same_tokens(live, carried_out, N);
        ck_assert_uint_gt(tokens_found(live), 0);
        free(live);
        free(simulated);
        free(again);
        free(carried_out);
        system_close(system);
    }
}

/* ---- a trained model, and prompts of text ---- */

/* Questions after the same three examples, and two of another beginning. */
static const char *questions(void) {
    const char *path = scratch_path("questions.jsonl");
    FILE *in = fopen("experiments/train/prompts/easy.jsonl", "r"), *out = fopen(path, "w");
    char line[4096], examples[4096] = "";
    ck_assert(in != NULL && out != NULL);
    for (int i = 0; i < 18; i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof line, in));
        json_t *asked = json_loads(line, 0, NULL);
        const char *prompt = json_string_value(json_object_get(asked, "prompt"));
        char text[8192];
        if (i < 3) {
            const char *answer = json_string_value(json_object_get(asked, "answer"));
            snprintf(examples + strlen(examples), sizeof examples - strlen(examples), "%s%s\n",
                     prompt, answer);
        } else if (i >= 10) {
            snprintf(text, sizeof text, "%s%s", i < 17 ? examples : "", prompt);
            json_t *question = json_pack("{s:s, s:i}", "prompt", text, "output_tokens", 40);
            ck_assert_int_eq(json_dumpf(question, out, JSON_COMPACT), 0);
            fputc('\n', out);
            json_decref(question);
        }
        json_decref(asked);
    }
    fclose(in);
    fclose(out);
    return path;
}

/* The outputs, which the caller frees; the tokens found. */
static char *answers(const char *prompts, const char *settings[3], int64_t *found) {
    const char *outputs = scratch_path("outputs.jsonl");
    char *text = PRINTS("run", "--backend", "cpu", "--weights", "experiments/train/models/sdar-2m",
                        "--system", "sglang", "--workload", prompts, "--set", settings[0], "--set",
                        settings[1], "--set", settings[2], "--outputs", outputs, "--json");
    json_t *printed = json_loads(text, 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(printed, "completed")), 8);
    *found = json_integer_value(json_object_get(printed, "prefix_hit_tokens"));
    json_decref(printed);
    free(text);
    return scratch_read(outputs);
}

/* Pages of a part of a block, too: those of one that is shared in part are not the same. */
TEST(a_trained_model_answers_questions_that_begin_alike_as_without_the_cache) {
    static const char *cases[][3] = {
        {"prefix_caching=off", "page_tokens=32", "decoder.threshold=0.9"},
        {"prefix_caching=on", "page_tokens=32", "decoder.threshold=0.9"},
        {"prefix_caching=on", "page_tokens=4", "pool_pages=180"},
        {"prefix_caching=off", "page_tokens=4", "pool_pages=180"}};
    const char *prompts = questions();
    int64_t found[4];
    char *outputs[4];
    for (int i = 0; i < 4; i++) {
        outputs[i] = answers(prompts, cases[i], &found[i]);
    }
    ck_assert_str_eq(outputs[1], outputs[0]);
    ck_assert_str_eq(outputs[3], outputs[2]);
    ck_assert_int_eq(found[0] + found[3], 0);
    ck_assert_int_ge(found[1], 6 * 160);
    ck_assert_int_ge(found[2], 6 * 160);
    for (int i = 0; i < 4; i++) {
        free(outputs[i]);
    }
}

/* Hidden states in the wide type lie after rows in fp8. */
static struct served *serve_leading(const char *kept) {
    const char *const settings[] = {
        "block_tokens=8", "max_requests=1", "cache.depth=1", "storage.cache=fp8", kept, NULL};
    struct system *system = live_system_of("bicache", "llada-tiny", settings);
    struct served *served = serve_live(system, together, sizeof together / sizeof together[0]);
    system_close(system);
    return served;
}

TEST(leading_layers_take_over_rows_in_fp8) {
    struct served *kept = serve_leading("prefix_store_tokens=5000"),
                  *anew = serve_leading("prefix_store_tokens=0");
    ck_assert_uint_gt(kept->records[2].prefix_tokens, 0);
    ck_assert_uint_eq(anew->records[2].prefix_tokens, 0);
    same_tokens(kept, anew, sizeof together / sizeof together[0]);
    free(kept);
    free(anew);
}

SUITE("live_prefix")
