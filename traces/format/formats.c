/* The formats that are recognised. */
#include <string.h>

#include "traces/format/format.h"

#define FORMAT(title, how, unit, ...)                                                              \
    .name = title, .family = &family_##how, .unit_ns = unit, .columns = {__VA_ARGS__}
enum { US = 1000, MS = 1000000, S = 1000000000 };

const struct format formats[] = {
    {FORMAT("plain", csv, US, "arrival_us", "input_tokens", "output_tokens", "tenant",
            "prefix_tokens", "answer_tokens", "session",
            "think_us", [COLUMN_GROUP] = "prefix_group", [COLUMN_DEADLINE] = "deadline_us",
            [COLUMN_PRIORITY] = "priority", [COLUMN_PREDICTED] = "predicted_tokens"),
     .think_unit_ns = US},
    /* Session ID: of the release of 2025, empty where a row is of none. */
    {FORMAT("burstgpt", csv, S, "Timestamp", "Request tokens",
            "Response tokens", [COLUMN_SESSION] = "Session ID"),
     .zero_output_is_failure = true},
    {FORMAT("azure", csv, UNIT_DATE, "TIMESTAMP", "ContextTokens", "GeneratedTokens")},
    {FORMAT("vidur", csv, S, "arrived_at", "num_prefill_tokens", "num_decode_tokens")},
    {FORMAT("splitwise-sim", csv, S, "arrival_timestamp", "prompt_size", "token_size",
            "application_id"),
     .musts = {{"request_type", "2"}, {"batch_size", "1"}}},
    /* TraceV2 of BLIS (inference-sim, sim/workload/tracev2.go): rows of requests that timed out
     * have no output, and input_tokens are those after the prefix that the group's prompts share.
     */
    {FORMAT("blis", csv, US, "arrival_time_us", "input_tokens", "output_tokens", "tenant_id",
            "prefix_length", [COLUMN_SESSION] = "session_id", [COLUMN_GROUP] = "prefix_group"),
     .says_failures = true, .any_order = true, .prefix_is_apart = true},
    {FORMAT("plain-lengths", csv, 1, NULL, "input_tokens", "output_tokens", NULL, NULL,
            "answer_tokens", "session")},
    {FORMAT("vidur-lengths", csv, 1, NULL, "num_prefill_tokens", "num_decode_tokens")},
    /* alibaba-edu/qwen-bailian-usagetraces-anon: seconds, blocks of 16 tokens, -1 for no parent. */
    {FORMAT("qwen-bailian", jsonl, S, "timestamp", "input_length",
            "output_length", [COLUMN_SESSION] = "chat_id", [COLUMN_PARENT] = "parent_chat_id",
            [COLUMN_HASHES] = "hash_ids"),
     .sign = "chat_id", .hash_tokens = 16},
    /* The published traces (Mooncake, FAST 2025) have whole milliseconds and blocks of 512; Dynamo
     * and AIPerf write such rows with sessions, a delay in ms and blocks of other sizes, GuideLLM
     * with seconds. */
    {FORMAT("mooncake", jsonl, MS, "timestamp", "input_length",
            "output_length", [COLUMN_SESSION] = "session_id", [COLUMN_THINK] = "delay",
            [COLUMN_HASHES] = "hash_ids"),
     .think_unit_ns = MS, .whole_units = true, .hash_tokens = 512},
    {FORMAT("llmservingsim", jsonl, 1, "arrival_time_ns", "input_toks", "output_toks")},
    /* AIPerf's profile_export.jsonl: rows stand as requests ended. */
    {FORMAT("aiperf", jsonl, 1, "metadata.request_start_ns", "metrics.input_sequence_length.value",
            "metrics.output_sequence_length.value", [COLUMN_SESSION] = "metadata.x_correlation_id"),
     .sign = "metadata.request_start_ns", .says_failures = true, .any_order = true},
    /* ServeGen's offline files, and Mooncake's rows without times. */
    {FORMAT("length-rows", jsonl, 1, NULL, "input_length",
            "output_length", [COLUMN_HASHES] = "hash_ids"),
     .hash_tokens = 512},
    {FORMAT("prompts", prompts, 1, NULL)},
};
const size_t n_formats = sizeof formats / sizeof formats[0];

static struct place place_of(const struct format *format, const struct layout *layout,
                             const char *name) {
    return (struct place){
        name, name != NULL && format->family->has_header ? csv_position(layout, name) : -1};
}

static bool has(const struct format *format, const struct record *first,
                const struct place *place) {
    return format->family->has_header ? place->position >= 0
                                      : json_at(first->object, place->name) != NULL;
}

bool format_opens(const struct format *format, const struct record *first, struct layout *layout) {
    bool is_json = !format->family->has_header;
    struct place sign = place_of(format, layout, format->sign);
    if (is_json ? first->object == NULL : layout->header == NULL) {
        return false;
    }
    bool opens = sign.name == NULL || has(format, first, &sign);
    for (int i = 0; i < N_NAMED_COLUMNS; i++) {
        layout->at[i] = place_of(format, layout, format->columns[i]);
        /* A row that failed may lack its counts where a sign tells the format. */
        bool must = i < COLUMN_TENANT && !(is_json && (format->sign != NULL || format->by_user));
        must = must || (format->by_user && !is_json);
        opens =
            opens && (layout->at[i].name == NULL || !must || has(format, first, &layout->at[i]));
    }
    for (int i = 0; i < MAX_MUSTS; i++) {
        layout->musts[i] = place_of(format, layout, format->musts[i].column);
        opens = opens && (layout->musts[i].name == NULL || has(format, first, &layout->musts[i]));
    }
    layout->unit_ns = format->unit_ns;
    layout->think_unit_ns = format->think_unit_ns;
    layout->hash_tokens = format->hash_tokens;
    return opens;
}
