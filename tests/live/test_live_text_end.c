/* Ends of text in live runs on the CPU: which tokens end a text is chosen by what a run without any
 * ends has decoded, so that the same run must stop there. */
#include <unistd.h>

#include "tests/support/live.h"
#include "tests/support/scratch.h"
#include "traces/decode_trace.h"

enum { N = 4 };

static const struct arrival together[] = {
    {.id = 0, .prompt_tokens = 3, .output_tokens = 40},
    {.id = 1, .prompt_tokens = 21, .output_tokens = 28},
    {.id = 2, .prompt_tokens = 32, .output_tokens = 33},
    {.id = 3, .prompt_tokens = 16, .output_tokens = 9},
};

static int32_t mask_token;

struct line_up {
    const char *system, *model, *settings[8];
};

static const struct line_up line_ups[] = {
    {"dllm-serve", "llada-tiny", {"block_tokens=8", "steps_per_block=4", "early_stop=block"}},
    {"fast-dllm",
     "llada-tiny",
     {"block_tokens=8", "decoder=threshold", "early_stop=block", "scheduler=continuous"}},
    {"fast-dllm", "dream-tiny", {"block_tokens=8", "early_stop=position"}},
    {"sdar", "sdar-tiny", {"block_tokens=4"}},
    {"lmdeploy", "sdar-tiny", {"block_tokens=8", "cache.commit_last=off"}},
    {"focus", "sdar-tiny", {"block_tokens=8", "decoder.threshold=0.006"}},
    {"focus",
     "sdar-tiny",
     {"block_tokens=8", "decoder.threshold=0.006", "cache.commit_last=off",
      "scheduler.multi_loop=on"}},
    {"fast-dllm-v2",
     "fast-dllm-v2-tiny",
     {"block_tokens=16", "cache.small_block=4", "decoder.small_block=4",
      "decoder.threshold=0.0098"}},
    {"dinfer-0.8", "llada-tiny", {"block_tokens=8", "decoder.threshold=0.0102", "cache=dual"}},
    {"dinfer-block-diffusion", "sdar-tiny", {"block_tokens=8"}},
    {"vllm-ar", "qwen2.5-tiny", {"runtime=unmask", "prefix_caching=off"}},
};
enum { LINE_UPS = sizeof line_ups / sizeof line_ups[0] };

static struct system *system_of(const struct line_up *line, const char *more) {
    const char *settings[10] = {"page_tokens=16"};
    uint32_t n = 1;
    for (size_t i = 0; i < 8 && line->settings[i] != NULL; i++) {
        settings[n++] = line->settings[i];
    }
    settings[n] = more;
    return live_system_of(line->system, line->model, settings);
}

static struct served *serve_ended(struct system *system, const struct end_tokens *ends,
                                  struct decode_log *passes) {
    struct serving serving = {.system = system, .arrivals = together, .n = N, .passes = passes};
    serving.ends = *ends;
    struct served *served = serve(&serving);
    ck_assert_msg(served->err.kind == ERR_NONE, "%s: %s", system->name, served->err.text);
    ck_assert_uint_eq(served->result.completed, N);
    ck_assert_int_eq(served->pool_left_bytes, 0);
    return served;
}

/* Tokens in the order of the whole outputs up to and including the first that ends them, or all. */
static uint32_t answer_of(const struct served *whole, uint64_t id, int32_t end) {
    for (uint32_t i = 0; i < whole->n_tokens[id]; i++) {
        if (whole->tokens[id][i] == end) {
            return i + 1;
        }
    }
    return whole->n_tokens[id];
}

/* What the second request decodes in the middle of its output. */
static struct end_tokens choose_end(const struct served *whole) {
    return (struct end_tokens){.tokens = {whole->tokens[1][11]}, .n = 1};
}

/* What a live run ended, simulated with its ends: the same answers after as many steps. */
static void check_simulated(struct system *system, const struct served *live, const char *path) {
    struct decode_trace *trace;
    struct err err = {0};
    ck_assert_msg(decode_trace_read(path, DECODE_COUNTS, &trace, &err) == 0, "%s", err.text);
    const struct decode_source source = decode_trace_source(trace);
    ck_assert(decode_trace_has_answers(trace));
    struct served *simulated = serve(&MAKE(struct serving, .system = system, .arrivals = together,
                                           .n = N, .simulates = true, .decode = &source));
    ck_assert_msg(simulated->err.kind == ERR_NONE, "%s: %s", system->name, simulated->err.text);
    for (uint64_t id = 0; id < N; id++) {
        const struct request_record *a = &live->records[id], *b = &simulated->records[id];
        ck_assert_uint_eq(a->answer_tokens, b->answer_tokens);
        ck_assert_uint_eq(a->committed_tokens, b->committed_tokens);
        /* Where steps are unrolled how many find their block done depends on the batch. */
        ck_assert_msg(system->settings.unroll_maximum > 1 || a->steps == b->steps,
                      "%s: request %d takes %u steps, simulated %u", system->name, (int)id,
                      a->steps, b->steps);
    }
    free(simulated);
    decode_trace_close(trace);
}

/* Of each pass the first decided row says the mask itself, the others what ends a text. */
static int say_mask_first(struct device *device, const struct call_sample *call) {
    int status = device_cpu.sample(device, call);
    for (int32_t row = 0; row < call->n_rows; row++) {
        call->token[row] = row == 0 ? mask_token : 7;
    }
    return status;
}

/* In a block that is done it is a token like others, and what is behind it is decoded. */
TEST(a_decoded_mask_token_hides_no_end_behind_it) {
    static const struct arrival alone = {.prompt_tokens = 16, .output_tokens = 16};
    struct system *system = LIVE_SYSTEM("llada-tiny", "page_tokens=16", "block_tokens=8",
                                        "steps_per_block=1", "early_stop=block");
    struct device_table table = device_cpu;
    table.sample = say_mask_first;
    mask_token = (int32_t)system->model->mask_token;
    struct served *served = serve(&MAKE(struct serving, .system = system, .arrivals = &alone,
                                        .n = 1, .table = &table, .ends = {.tokens = {7}, .n = 1}));
    ck_assert_msg(served->err.kind == ERR_NONE, "%s", served->err.text);
    ck_assert_uint_eq(served->records[0].answer_tokens, 2);
    ck_assert_uint_eq(served->records[0].committed_tokens, 8);
    free(served);
    system_close(system);
}

TEST_EACH(a_live_run_stops_at_the_end_of_text_and_is_simulated_with_its_ends, LINE_UPS) {
    struct system *system = system_of(&line_ups[_i], NULL);
    static const struct end_tokens none;
    struct served *whole = serve_ended(system, &none, NULL);
    struct end_tokens ends = choose_end(whole);
    const char *path = scratch_path("decisions");
    struct decode_log *log;
    struct err err = {0};
    ck_assert_int_eq(decode_log_open(path, system->settings.block_tokens, &log, &err), 0);
    struct served *served = serve_ended(system, &ends, log);
    ck_assert_msg(decode_log_close(log, "", &err) == 0, "%s", err.text);
    uint32_t n_ended = 0;
    for (uint64_t id = 0; id < N; id++) {
        uint32_t answer = answer_of(whole, id, ends.tokens[0]);
        const struct request_record *r = &served->records[id];
        ck_assert_msg(r->answer_tokens == answer, "%s: request %d answers %u, not %u", system->name,
                      (int)id, r->answer_tokens, answer);
        ck_assert_uint_eq(served->n_tokens[id], answer);
        ck_assert_mem_eq(served->tokens[id], whole->tokens[id],
                         answer * sizeof served->tokens[id][0]);
        ck_assert_uint_ge(r->committed_tokens, answer);
        ck_assert_uint_eq(r->steps_after_end, 0);
        n_ended += r->committed_tokens < r->output_tokens;
    }
    ck_assert_msg(n_ended > 0, "%s", system->name);
    ck_assert_uint_lt(served->result.request_steps, whole->result.request_steps);
    check_simulated(system, served, path);
    free(whole);
    free(served);
    system_close(system);
}

TEST(without_early_stop_the_answer_is_known_and_what_is_behind_it_counted) {
    struct system *system = system_of(&line_ups[0], "early_stop=off");
    static const struct end_tokens none;
    struct served *whole = serve_ended(system, &none, NULL);
    struct end_tokens ends = choose_end(whole);
    struct served *served = serve_ended(system, &ends, NULL);
    uint64_t n_behind = 0;
    ck_assert_uint_eq(served->result.request_steps, whole->result.request_steps);
    for (uint64_t id = 0; id < N; id++) {
        const struct request_record *r = &served->records[id];
        ck_assert_uint_eq(r->answer_tokens, answer_of(whole, id, ends.tokens[0]));
        ck_assert_uint_eq(r->committed_tokens, r->output_tokens);
        ck_assert_uint_eq(served->n_tokens[id], r->answer_tokens); /* what a user is given */
        n_behind += r->steps_after_end;
    }
    ck_assert_uint_gt(n_behind, 0);
    free(whole);
    free(served);
    system_close(system);
}

/* Random weights say nothing of ends; arrivals that do are taken at their word. */
TEST(where_no_token_ends_a_text_arrivals_say_where_it_ends) {
    struct arrival arrivals[N];
    memcpy(arrivals, together, sizeof arrivals);
    arrivals[1].answer_tokens = 11;
    struct system *system = system_of(&line_ups[0], NULL);
    struct served *whole = serve_live(system, together, N),
                  *served = serve_live(system, arrivals, N);
    ck_assert_uint_eq(served->records[1].answer_tokens, 11);
    ck_assert_uint_eq(served->records[1].committed_tokens, 16);
    ck_assert_uint_eq(served->n_tokens[1], 11);
    ck_assert_mem_eq(served->tokens[1], whole->tokens[1], 11 * sizeof served->tokens[1][0]);
    ck_assert_uint_eq(served->records[0].committed_tokens, 40);
    free(whole);
    free(served);
    system_close(system);
}

static void write_config(const char *folder, const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

TEST(a_checkpoint_says_what_ends_a_text) {
    char folder[] = "/tmp/unmask_ends_XXXXXX", path[128];
    struct err err = {0};
    struct end_tokens ends;
    const struct model *model = model_find("llada-tiny", &err);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(end_tokens_read("random:3", model, &ends, &err), 0);
    ck_assert_uint_eq(ends.n, 0);
    ck_assert_int_eq(end_tokens_read(folder, model, &ends, &err), 0);
    ck_assert_uint_eq(ends.n, 0);
    write_config(folder, "config.json", "{\"eos_token_id\": 7}");
    ck_assert_int_eq(end_tokens_read(folder, model, &ends, &err), 0);
    ck_assert_uint_eq(ends.n, 1);
    ck_assert_int_eq(ends.tokens[0], 7);
    write_config(folder, "generation_config.json", "{\"eos_token_id\": [5, 6]}");
    ck_assert_int_eq(end_tokens_read(folder, model, &ends, &err), 0);
    ck_assert_uint_eq(ends.n, 2);
    ck_assert_int_eq(ends.tokens[1], 6);
    write_config(folder, "generation_config.json", "{\"eos_token_id\": 1024}");
    ck_assert_int_eq(end_tokens_read(folder, model, &ends, &err), ERR_WORLD);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    remove(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    remove(path);
    rmdir(folder);
}

SUITE("live text end")
