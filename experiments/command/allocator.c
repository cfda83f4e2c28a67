/* unmask plan allocator: how much memory an unplanned program holds, by an allocator model. */
#include <inttypes.h>
#include <string.h>

#include "experiments/command/commands.h"
#include "sim/base/num.h"
#include "sim/memory/allocator.h"

static const struct option own_options[] = {
    {"stream", "FILE", "the recorded requests (sim/memory/stream.h states the format)", false},
    {"allocator", "NAME", "torch, torch-expandable or compile; else as recorded", false},
    {"limit", "BYTES", "the most to hold of the device (24GiB); 'none'; else as recorded", false},
    {"max-split", "BYTES", "blocks this large are not split; 'none'; else as recorded", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_allocator[] = {own_options, json_options,
                                                            format_option, NULL};

/* What is replayed, how, and what came of it. */
struct asked {
    const char *path;
    struct stream stream;
    const struct allocator_model *model;
    struct allocator_settings settings;
    bool is_as_recorded; /* the recording shows this model under these settings */
    struct allocator_report report;
};

static int read_bytes(const struct options *options, const char *name, int64_t *out,
                      struct err *err) {
    const char *text = options_text(options, name);
    double bytes;
    if (text == NULL) {
        return 0;
    }
    if (strcmp(text, "none") == 0) {
        *out = 0;
        return 0;
    }
    if (!num_with_unit(text, "bytes", &bytes) || bytes < 1 || bytes > (double)STREAM_MAX_BYTES) {
        return err_usage(err,
                         "--%s: '%s' is neither 'none' nor a size such as 24GiB, up to 1024GiB",
                         name, text);
    }
    *out = (int64_t)bytes;
    return 0;
}

static int read_model(const struct options *options, struct asked *asked, struct err *err) {
    const char *name = options_text(options, "allocator");
    if (name == NULL) {
        name = asked->stream.model[0] != '\0' ? asked->stream.model : "torch";
    }
    asked->model = allocator_find(name, err);
    return asked->model != NULL ? 0 : err_status(err);
}

static int read_asked(const struct options *options, struct asked *asked, struct err *err) {
    asked->path = options_text(options, "stream");
    if (asked->path == NULL) {
        return err_usage(err, "plan allocator needs --stream FILE");
    }
    int status = stream_read(asked->path, &asked->stream, err);
    if (status == 0) {
        status = read_model(options, asked, err);
    }
    const struct allocator_settings *recorded = &asked->stream.settings;
    asked->settings = *recorded;
    if (status == 0) {
        status = read_bytes(options, "limit", &asked->settings.limit_bytes, err);
    }
    if (status == 0) {
        status = read_bytes(options, "max-split", &asked->settings.max_split_bytes, err);
    }
    asked->is_as_recorded = status == 0 && strcmp(asked->model->name, asked->stream.model) == 0 &&
                            asked->settings.limit_bytes == recorded->limit_bytes &&
                            asked->settings.max_split_bytes == recorded->max_split_bytes;
    return status;
}

static void add_share(struct table *table, const char *name, double share, const char *meaning) {
    char text[32];
    snprintf(text, sizeof text, "%.1f %%", 100 * share);
    table_text(table, name);
    table_shown(table, share, text);
    table_text(table, meaning);
}

/* What the program holds; bytes and shares as programs read them. */
static struct table *held_table(const struct asked *asked) {
    const struct allocator_report *report = &asked->report;
    struct table *table = table_open("quantity|value|meaning");
    table_add(table, "s b s", "peak live", report->peak_live_bytes, "what the program asked for");
    table_add(table, "s b s", "peak allocated", report->peak_allocated_bytes,
              "the blocks that it got");
    table_add(table, "s b s", "peak reserved", report->peak_reserved_bytes, "held of the device");
    add_share(table, "inflation", allocator_inflation(report), "reserved over live");
    add_share(table, "fragmentation", allocator_fragmentation(report),
              "of what was reserved at its peak was free");
    table_add(table, "s i s", "segments", report->most_segments, "at most");
    if (report->n_refused > 0) {
        char first[512];
        snprintf(first, sizeof first, "the first at %s:%" PRIu32, asked->path,
                 asked->stream.events[report->first_refused].line);
        table_add(table, "s i s", "refused", (int64_t)report->n_refused, first);
    }
    return table;
}

static void print_setting(const char *name, int64_t bytes) {
    char text[32];
    if (bytes > 0) {
        printf(", %s %s", name, num_format_bytes(text, sizeof text, (double)bytes));
    }
}

/* How long model and recording agree, figure by figure; the line is one of the stream. */
static struct table *agreement_table(const struct asked *asked) {
    struct table *table = table_open("figure|events|equal|first difference in line|model|recorded");
    for (int f = 0; f < N_FIGURES; f++) {
        const struct figure_agreement *agreement = &asked->report.figures[f];
        if (agreement->n_compared == 0) {
            continue;
        }
        table_add(table, "s i i", allocator_figure_name((enum allocator_figure)f),
                  (int64_t)agreement->n_compared, (int64_t)agreement->n_equal);
        if (agreement->n_equal < agreement->n_compared) {
            table_add(table, "u i i", asked->stream.events[agreement->first_difference].line,
                      agreement->model, agreement->recorded);
        } else {
            table_add(table, "- - -");
        }
    }
    return table;
}

static void print_agreement(const struct asked *asked) {
    if (!asked->is_as_recorded) {
        printf("not compared: the recording was made under other settings\n");
        return;
    }
    printf("the model compared with the recording, after every event\n");
    struct table *table = agreement_table(asked);
    table_print(table, stdout);
    table_close(table);
}

static void print_people(const struct asked *asked) {
    printf("%zu events, %" PRIu32 " allocations%s%s\n", asked->stream.n_events, asked->stream.n_ids,
           asked->stream.source[0] != '\0' ? ": " : "", asked->stream.source);
    printf("model %s (%s)", asked->model->name, asked->model->doc);
    print_setting("limit", asked->settings.limit_bytes);
    print_setting("not split from", asked->settings.max_split_bytes);
    printf("\n\n");
    struct table *held = held_table(asked);
    table_print(held, stdout);
    table_close(held);
    printf("\n");
    print_agreement(asked);
}

static json_t *agreement_json(const struct asked *asked) {
    if (!asked->is_as_recorded) {
        return json_null();
    }
    json_t *figures = json_object();
    for (int f = 0; f < N_FIGURES; f++) {
        const struct figure_agreement *agreement = &asked->report.figures[f];
        if (agreement->n_compared == 0) {
            continue;
        }
        json_t *figure = json_pack("{s:I, s:I}", "events", (json_int_t)agreement->n_compared,
                                   "equal", (json_int_t)agreement->n_equal);
        if (agreement->n_equal < agreement->n_compared) {
            uint32_t line = asked->stream.events[agreement->first_difference].line;
            json_object_set_new(figure, "first_difference",
                                json_pack("{s:I, s:I, s:I}", "line", (json_int_t)line, "model",
                                          (json_int_t)agreement->model, "recorded",
                                          (json_int_t)agreement->recorded));
        }
        json_object_set_new(figures, allocator_figure_name((enum allocator_figure)f), figure);
    }
    return figures;
}

static json_t *asked_json(const struct asked *asked) {
    const struct allocator_report *report = &asked->report;
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I}", "stream",
        asked->path, "source", asked->stream.source, "model", asked->model->name, "limit_bytes",
        (json_int_t)asked->settings.limit_bytes, "max_split_bytes",
        (json_int_t)asked->settings.max_split_bytes, "events", (json_int_t)asked->stream.n_events,
        "allocations", (json_int_t)asked->stream.n_ids, "peak_live_bytes",
        (json_int_t)report->peak_live_bytes, "peak_allocated_bytes",
        (json_int_t)report->peak_allocated_bytes, "peak_reserved_bytes",
        (json_int_t)report->peak_reserved_bytes, "inflation", allocator_inflation(report),
        "fragmentation", allocator_fragmentation(report), "segments",
        (json_int_t)report->most_segments, "refused", (json_int_t)report->n_refused);
    json_object_set_new(object, "agreement", agreement_json(asked));
    return object;
}

static int run(const struct options *options, struct err *err) {
    struct asked asked = {0};
    stream_init(&asked.stream);
    int status = read_asked(options, &asked, err);
    if (status == 0) {
        allocator_replay(&asked.stream, asked.model, &asked.settings, &asked.report);
    }
    if (status == 0 && options_has(options, "json")) {
        status = cmd_print_json(asked_json(&asked), err);
    } else if (status == 0) {
        print_people(&asked);
    }
    stream_fini(&asked.stream);
    return status;
}

const struct command command_allocator = {
    .name = "plan allocator",
    .words = "",
    .doc = "how much memory recorded requests make an unplanned program hold",
    .more = "Replays a recorded stream of allocations and frees through a model of an allocator.\n"
            "Under the settings it was recorded with, the model is compared with the recording\n"
            "after every event. tests/golden/allocations.tar.gz has streams recorded from PyTorch.",
    .options = options_of_allocator,
    .run = run,
};
