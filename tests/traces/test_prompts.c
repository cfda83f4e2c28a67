/* Files of prompts as traces, and as workloads. */

#include "tests/support/scratch.h"
#include "traces/reader.h"
#include "traces/workload.h"

/* A text has as many tokens as bytes; what was taken is written down. */
struct taken {
    char words[512];
    int n;
};

static int take(void *state, const struct prompt *prompt, uint32_t *tokens, struct err *err) {
    struct taken *taken = state;
    size_t used = strlen(taken->words);
    snprintf(taken->words + used, sizeof taken->words - used, "%d:%s:%s:%s:%d ",
             (int)prompt->number, prompt->id != NULL ? prompt->id : "-",
             prompt->task != NULL ? prompt->task : "-",
             prompt->answer != NULL ? prompt->answer : "-", (int)prompt->line);
    taken->n++;
    *tokens = prompt->text != NULL ? (uint32_t)prompt->text_bytes : prompt->n_ids;
    return *tokens < 100 ? 0 : err_usage(err, "%s:%d: too long", prompt->path, (int)prompt->line);
}

static const char lines[] =
    "{\"id\": \"a-0\", \"task\": \"add\", \"prompt\": \"two\\nlines\", \"answer\": \"5\"}\n"
    "{\"ids\": [1, 2, 3], \"id\": 7, \"answer\": 2.5, \"output_tokens\": 12}\n"
    "{\"prompt\": \"x\", \"more\": [1]}\n";

TEST(prompts_are_rows_whose_tokens_the_taker_counts) {
    struct trace *trace = NULL;
    struct err err = {0};
    struct taken taken = {0};
    struct arrival row;
    const char *path = scratch_write("prompts.jsonl", lines);
    ck_assert_int_eq(trace_open(path, &trace, &err), 0);
    ck_assert(trace_has_prompts(trace) && trace_has_times(trace) && !trace_has_answers(trace));
    trace_set_taker(trace, &(struct prompt_taker){&taken, take});
    struct arrival_source source = trace_source(trace);
    static const uint32_t tokens[] = {9, 3, 1}, outputs[] = {256, 12, 256};
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 0; i < 3; i++) {
            ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
            ck_assert(row.arrival_ns == 0 && row.id == i && row.prompt == i + 1);
            ck_assert_uint_eq(row.prompt_tokens, tokens[i]);
            ck_assert_uint_eq(row.output_tokens, outputs[i]);
        }
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_END);
        ck_assert_str_eq(taken.words, "0:a-0:add:5:1 1:7:-:2.5:2 2:-:-:-:3 ");
        taken.words[0] = '\0';
        ck_assert_int_eq(trace_rewind(trace, &err), 0);
    }
    trace_close(trace);
}

TEST(a_broken_line_is_told_with_its_file_and_line) {
    static const struct {
        const char *line, *says;
    } bad[] = {
        {"{\"prompt\": }", ":1: found"},
        {"{\"prompt\": \"x\"", ":1: found"},
        {"{\"prompt\": \"\"}", "no text in 'prompt'"},
        {"{\"prompt\": 5}", "no text in 'prompt'"},
        {"{\"prompt\": \"x\", \"ids\": [1]}", "both"},
        {"{\"x\": {\"prompt\": \"x\"}}", "neither"},
        {"{\"ids\": []}", "no token in 'ids'"},
        {"{\"ids\": [1, -1]}", "whole numbers"},
        {"{\"ids\": [1, \"2\"]}", "whole numbers"},
        {"{\"prompt\": \"x\", \"output_tokens\": 0}", "output_tokens"},
        {"{\"prompt\": \"\xff\"}", "0xff"},
        {"{\"messages\": []}", "texts in 'messages'"},
        {"{\"messages\": [{\"content\": \"\"}]}", "texts in 'messages'"},
        {"{\"messages\": [{\"content\": \"x\"}, {\"content\": 7}]}", "texts in 'messages'"},
        {"{\"messages\": [{\"content\": [{\"text\": \"x\"}, {\"image\": \"y\"}]}]}",
         "texts in 'messages'"},
        {"{\"messages\": [{\"content\": [7]}, {\"content\": \"x\"}]}", "texts in 'messages'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct trace *trace = NULL;
        struct err err = {0};
        struct taken taken = {0};
        struct arrival row;
        const char *path = scratch_write("bad.jsonl", bad[i].line);
        ck_assert_int_eq(trace_open(path, &trace, &err), 0);
        trace_set_taker(trace, &(struct prompt_taker){&taken, take});
        struct arrival_source source = trace_source(trace);
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_BAD);
        ck_assert_msg(err.kind == ERR_USAGE, "%s", err.text);
        ck_assert_msg(strstr(err.text, "bad.jsonl:1: ") != NULL, "%s", err.text);
        ck_assert_msg(strstr(err.text, bad[i].says) != NULL, "%s: %s", bad[i].line, err.text);
        ck_assert_int_eq(taken.n, 0);
        trace_close(trace);
    }
}

static struct workload *open_ini(const char *text, struct taken *taken, struct err *err) {
    const struct workload_options options = {.seed = 1, .taker = {taken, take}};
    struct workload *workload = NULL;
    scratch_write("prompts.jsonl", lines);
    (void)workload_open(scratch_write("prompts.ini", text), &options, &workload, err);
    return workload;
}

#define INI                                                                                        \
    "[workload]\nrequests = 7\ntrace = prompts.jsonl\nprovenance.lengths = real\noutput = fixed\n" \
    "output.tokens = 20\nrate = 5\n"

/* Whatever gives the times, and whatever is dropped, an arrival says which prompt it is. */
TEST(a_workload_gives_its_prompts_over_and_over_or_draws_them) {
    static const uint32_t tokens[] = {9, 3, 1};
    static const char *const ways[] = {"arrivals = poisson\nlengths = trace\n",
                                       "arrivals = poisson\nlengths = resample\n",
                                       "arrivals = poisson\nlengths = trace\ncontext = 25\n"};
    for (int way = 0; way < 3; way++) {
        struct taken taken = {0};
        struct err err = {0};
        char text[512];
        snprintf(text, sizeof text, INI "%s", ways[way]);
        struct workload *workload = open_ini(text, &taken, &err);
        ck_assert_msg(workload != NULL, "%s", err.text);
        struct arrival_source source = workload_source(workload);
        struct arrival row;
        for (uint64_t i = 0; i < 7; i++) {
            ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
            ck_assert(row.id == i && row.prompt >= 1 && row.prompt <= 3);
            ck_assert(way != 0 || row.prompt == i % 3 + 1);
            ck_assert(way != 2 || row.prompt == i % 2 + 2);
            ck_assert_uint_eq(row.prompt_tokens, tokens[row.prompt - 1]);
            ck_assert_uint_eq(row.output_tokens, 20);
        }
        ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_END);
        ck_assert_ptr_nonnull(strstr(trace_path(workload_prompts(workload)), "prompts.jsonl"));
        workload_close(workload);
    }
}

TEST(prompts_keep_their_lengths) {
    static const char *const bad[] = {
        INI "arrivals = poisson\nlengths = trace\ninput = fixed\ninput.tokens = 5\n",
        INI "arrivals = poisson\nlengths = trace\ncontext = 25\nover_context = truncate\n"};
    for (int i = 0; i < 2; i++) {
        struct taken taken = {0};
        struct err err = {0};
        ck_assert(open_ini(bad[i], &taken, &err) == NULL && err.kind == ERR_USAGE);
        ck_assert_msg(strstr(err.text, "as long as they are") != NULL, "%s", err.text);
    }
}

TEST(ids_need_nobody_who_counts) {
    struct err err = {0};
    struct workload *workload = NULL;
    const struct workload_options options = {.seed = 1};
    struct arrival row;
    const char *path = scratch_write("ids.jsonl", "{\"ids\": [4, 5]}\n{\"prompt\": \"x\"}\n");
    ck_assert_int_eq(workload_open(path, &options, &workload, &err), 0);
    struct arrival_source source = workload_source(workload);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_ROW);
    ck_assert(row.prompt_tokens == 2 && row.output_tokens == 256);
    ck_assert_int_eq(source.next(source.state, &row, &err), SOURCE_BAD);
    ck_assert_msg(strstr(err.text, "ids.jsonl:2: ") != NULL, "%s", err.text);
    workload_close(workload);
}

SUITE("prompts")
