#include "experiments/command/trace_targets.h"

#include <inttypes.h>

#include "sim/base/names.h"

static void head_plain(FILE *out, const struct beside *has) {
    fprintf(out, "arrival_us,input_tokens,output_tokens%s%s%s%s%s%s\n",
            has->tenant ? ",tenant" : "", has->prefix ? ",prefix_tokens" : "",
            has->answer ? ",answer_tokens" : "", has->session ? ",session" : "",
            has->think ? ",think_us" : "", has->group ? ",prefix_group" : "");
}

/* A time in units of `unit_ns`, with as many decimals as it needs. */
static void write_time(FILE *out, int64_t ns, int64_t unit_ns) {
    fprintf(out, "%" PRId64, ns / unit_ns);
    int64_t rest = ns % unit_ns;
    for (int64_t digit = unit_ns / 10; rest > 0; digit /= 10) {
        fprintf(out, "%s%" PRId64, digit == unit_ns / 10 ? "." : "", rest / digit);
        rest %= digit;
    }
}

static void write_beside(FILE *out, const struct arrival *row, const struct beside *has) {
    if (has->tenant) {
        fprintf(out, ",%" PRIu32, row->tenant);
    }
    if (has->prefix) {
        fprintf(out, ",%" PRIu32, row->prefix_tokens);
    }
    if (has->answer) {
        fprintf(out, ",%" PRIu32, row->answer_tokens > 0 ? row->answer_tokens : row->output_tokens);
    }
    if (has->session) {
        fputc(',', out);
        if (row->session != 0) {
            fprintf(out, "%" PRIu64, row->session);
        }
    }
    if (has->think) {
        fputc(',', out);
        if (row->think_ns >= 0) {
            write_time(out, row->think_ns, 1000);
        }
    }
    if (has->group) {
        fputc(',', out);
        if (row->prefix_group != 0) {
            fprintf(out, "%" PRIu64, row->prefix_group);
        }
    }
    fputc('\n', out);
}

static void write_plain(FILE *out, const struct arrival *row, const struct beside *has) {
    write_time(out, row->arrival_ns, 1000);
    fprintf(out, ",%" PRIu32 ",%" PRIu32, row->prompt_tokens, row->output_tokens);
    write_beside(out, row, has);
}

static void head_lengths(FILE *out, const struct beside *has) {
    fprintf(out, "input_tokens,output_tokens%s%s\n", has->answer ? ",answer_tokens" : "",
            has->session ? ",session" : "");
}

static void write_lengths(FILE *out, const struct arrival *row, const struct beside *has) {
    fprintf(out, "%" PRIu32 ",%" PRIu32, row->prompt_tokens, row->output_tokens);
    write_beside(out, row, &(const struct beside){.answer = has->answer, .session = has->session});
}

static void head_vidur(FILE *out, const struct beside *has) {
    (void)has;
    fputs("arrived_at,num_prefill_tokens,num_decode_tokens\n", out);
}

static void write_vidur(FILE *out, const struct arrival *row, const struct beside *has) {
    (void)has;
    write_time(out, row->arrival_ns, 1000000000);
    fprintf(out, ",%" PRIu32 ",%" PRIu32 "\n", row->prompt_tokens, row->output_tokens);
}

static void head_mooncake(FILE *out, const struct beside *has) {
    (void)out, (void)has;
}

/* The format has whole milliseconds: with fractions readers cannot know that they are none of
 * seconds. */
static void write_mooncake(FILE *out, const struct arrival *row, const struct beside *has) {
    (void)has;
    fprintf(out, "{\"timestamp\": %" PRId64, (row->arrival_ns + 500000) / 1000000);
    fprintf(out, ", \"input_length\": %" PRIu32 ", \"output_length\": %" PRIu32 "}\n",
            row->prompt_tokens, row->output_tokens);
}

static const struct target targets[] = {
    {"plain", head_plain, write_plain, true, true, true},
    {"plain-lengths", head_lengths, write_lengths, false, false, true},
    {"vidur", head_vidur, write_vidur, true, false, false},
    {"mooncake", head_mooncake, write_mooncake, true, false, false}};
enum { N_TARGETS = sizeof targets / sizeof targets[0] };

const struct target *target_find(const char *name, struct err *err) {
    const char *names[N_TARGETS + 1] = {NULL};
    char hint[NAME_HINT_CHARS];
    for (size_t i = 0; i < N_TARGETS; i++) {
        names[i] = targets[i].name;
    }
    int at = name_find(names, name);
    if (at < 0) {
        err_usage(err,
                  "--to: no format '%s' is written%s; plain, plain-lengths, vidur and "
                  "mooncake are",
                  name, name_hint(name, names, hint));
    }
    return at >= 0 ? &targets[at] : NULL;
}

struct beside beside_of(const struct arrivals *arrivals) {
    struct beside has = {0};
    for (size_t i = 0; i < arrivals->n; i++) {
        const struct arrival *row = &arrivals->items[i];
        has.tenant = has.tenant || row->tenant != 0;
        has.prefix = has.prefix || row->prefix_tokens != 0;
        has.answer = has.answer || row->answer_tokens != 0;
        has.session = has.session || row->session != 0;
        has.group = has.group || row->prefix_group != 0;
        has.think = has.think || (row->session != 0 && row->think_ns >= 0);
    }
    return has;
}
