/* unmask compare: several systems, one workload, one table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/asked.h"
#include "experiments/campaign.h"
#include "experiments/cmd.h"
#include "experiments/interrupt.h"
#include "experiments/table.h"
#include "sim/base/num.h"

static const struct option own_options[] = {
    {"systems", "A,B,...", "the systems; speed-ups are over the first", false},
    {"systems-file", "FILE", "read the systems from this INI file", false},
    {NULL, NULL, NULL, false},
};

/* As device_options, but --systems are names here. */
static const struct option compare_device_options[] = {
    {"model", "NAME", "the model (list models); the systems' own unless given", false},
    {"gpu", "NAME", "the GPU (list gpus); l40s unless given", false},
    {"profile", "FILE", "price by this profile, measured on the GPU that --gpu names", false},
    {"roofline", NULL, "price by the data sheet, not by the GPU's profile", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_compare[] = {
    own_options, compare_device_options, policy_options, workload_options, record_options,
    job_options, json_options,           NULL,
};

struct comparison {
    char names[ASKED_MOST_SYSTEMS][ASKED_NAME_CHARS];
    struct campaign_point points[ASKED_MOST_SYSTEMS];
    size_t n;
    struct asked asked;
};

static int read_systems(const char *text, struct comparison *out, struct err *err) {
    if (text == NULL) {
        return err_usage(err, "compare needs --systems A,B,...; `unmask list systems` names them");
    }
    return asked_system_names(text, out->names, &out->n, err);
}

static double speedup(const struct comparison *c, size_t i) {
    double base = cmd_number(c->points[0].summary, "throughput_tok_s", NULL);
    double ours = cmd_number(c->points[i].summary, "throughput_tok_s", NULL);
    return base > 0 ? ours / base : (double)NAN;
}

static void add_bytes(struct table *table, double bytes) {
    char text[32];
    table_shown(table, bytes, isfinite(bytes) ? num_format_bytes(text, sizeof text, bytes) : "-");
}

static struct table *table_of(const struct comparison *c) {
    static const char *const columns[] = {"system", "tok/s",  "speed-up", "mean_s",  "p50_s",
                                          "p99_s",  "ttfb_s", "queue_s",  "done",    "rejected",
                                          "batch",  "GPU_%",  "MFU_%",    "KV peak", "act. peak"};
    struct table *table = table_open(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = c->points[i].summary;
        table_text(table, c->names[i]);
        table_number(table, cmd_number(s, "throughput_tok_s", NULL), "%.2f");
        table_number(table, speedup(c, i), "%.2fx");
        table_number(table, cmd_number(s, "latency_s", "mean"), "%.1f");
        table_number(table, cmd_number(s, "latency_s", "p50"), "%.1f");
        table_number(table, cmd_number(s, "latency_s", "p99"), "%.1f");
        table_number(table, cmd_number(s, "ttfb_s", "mean"), "%.1f");
        table_number(table, cmd_number(s, "queue_s", "mean"), "%.1f");
        table_number(table, cmd_number(s, "completed", NULL), "%.0f");
        table_number(table, cmd_number(s, "rejected", NULL), "%.0f");
        table_number(table, cmd_number(s, "max_batch", NULL), "%.0f");
        table_number(table, 100 * cmd_number(s, "gpu_busy", NULL), "%.1f");
        table_number(table, 100 * cmd_number(s, "mfu", NULL), "%.1f");
        add_bytes(table, cmd_number(s, "kv_peak_bytes", NULL));
        add_bytes(table, cmd_number(s, "activation_peak_bytes", NULL));
    }
    return table;
}

static const char *text_of(const json_t *summary, const char *key) {
    const char *text = json_string_value(json_object_get(summary, key));
    return text != NULL ? text : "";
}

static void print_constants(const struct comparison *c) {
    json_t *seen = json_object();
    for (size_t i = 0; i < c->n; i++) {
        const char *name;
        json_t *constant;
        json_object_foreach(json_object_get(c->points[i].summary, "constants"), name, constant) {
            if (json_object_get(seen, name) == NULL) {
                json_object_set(seen, name, constant);
                printf("%-13s%s = %.6g (fitted to %s)\n", "calibrated", name,
                       json_number_value(json_object_get(constant, "value")),
                       text_of(constant, "source"));
            }
        }
    }
    json_decref(seen);
}

/* Hosts differ between systems: each once, with the systems that have it. */
static void print_hosts(const struct comparison *c) {
    for (size_t i = 0; i < c->n; i++) {
        const json_t *host = json_object_get(c->points[i].summary, "host");
        size_t first = 0;
        while (first < i && !json_equal(json_object_get(c->points[first].summary, "host"), host)) {
            first++;
        }
        if (!json_is_object(host) || first < i) {
            continue;
        }
        printf("%-13s%s: %s, factor %.4g (%s); of %s", "host", text_of(host, "name"),
               text_of(host, "kind"), json_number_value(json_object_get(host, "factor")),
               text_of(host, "source"), c->names[i]);
        for (size_t j = i + 1; j < c->n; j++) {
            if (json_equal(json_object_get(c->points[j].summary, "host"), host)) {
                printf(", %s", c->names[j]);
            }
        }
        printf("\n");
    }
}

/* The notes begin with one line for each reason of rejection. */
static const char *behind_rejected(const char *notes) {
    while (strncmp(notes, "rejected", 8) == 0) {
        notes += strcspn(notes, "\n") + 1;
    }
    return notes;
}

static void print_rejected(const struct campaign_point *point, const char *name) {
    const char *notes = point->notes != NULL ? point->notes : "";
    for (const char *end = behind_rejected(notes); notes < end; notes += strcspn(notes, "\n") + 1) {
        printf("%.*s (%s)\n", (int)strcspn(notes, "\n"), notes, name);
    }
}

/* What is the same for every system stands once, above and below the table. */
static void print_people(const struct comparison *c) {
    const struct campaign_point *some = NULL;
    for (size_t i = 0; some == NULL && i < c->n; i++) {
        some = c->points[i].summary != NULL ? &c->points[i] : NULL;
    }
    if (some != NULL) {
        const json_t *s = some->summary;
        printf("%s on %s, prices %s; %s: %s, seed %lld\n\n", text_of(s, "model"), text_of(s, "gpu"),
               text_of(s, "profile_kind"), text_of(s, "trace"), text_of(s, "trace_provenance"),
               (long long)json_integer_value(json_object_get(s, "seed")));
    }
    struct table *table = table_of(c);
    table_print(table, stdout);
    table_close(table);
    printf("\n");
    for (size_t i = 0; i < c->n; i++) {
        if (c->points[i].summary == NULL) {
            printf("%-13s%s: %s\n", "no result", c->names[i], c->points[i].err.text);
        }
    }
    for (size_t i = 0; i < c->n; i++) {
        print_rejected(&c->points[i], c->names[i]);
    }
    if (some != NULL && some->notes != NULL) {
        fputs(behind_rejected(some->notes), stdout);
    }
    print_hosts(c);
    print_constants(c);
}

static int print_json(const struct comparison *c, struct err *err) {
    json_t *array = json_array();
    for (size_t i = 0; i < c->n; i++) {
        json_t *object = c->points[i].summary != NULL
                             ? json_deep_copy(c->points[i].summary)
                             : json_pack("{s:s, s:s}", "system", c->names[i], "no_result",
                                         c->points[i].err.text);
        double ratio = speedup(c, i);
        json_object_set_new(object, "speedup", isfinite(ratio) ? json_real(ratio) : json_null());
        json_array_append_new(array, object);
    }
    return cmd_print_json(array, err);
}

static int settle(const struct comparison *c, struct err *err) {
    for (size_t i = 0; i < c->n; i++) {
        const struct campaign_point *point = &c->points[i];
        if (point->summary == NULL && !point->has_no_room) {
            return err_world(err, "%s has no result: %.900s", c->names[i], point->err.text);
        }
    }
    return 0;
}

static int compare(const struct options *options, struct comparison *c, struct err *err) {
    unsigned n_threads;
    struct campaign campaign = {
        .points = c->points, .db = options_text(options, "db"), .stop = interrupt_catch()};
    int status = asked_read(options, &c->asked, err);
    status = status != 0 ? status : asked_systems_file(options, "systems-file", &c->asked, err);
    status = status != 0 ? status : read_systems(options_text(options, "systems"), c, err);
    status = status != 0 ? status : asked_level(options, &campaign.level, err);
    status = status != 0 ? status : asked_threads(options, &n_threads, err);
    if (status != 0) {
        return status;
    }
    for (size_t i = 0; i < c->n; i++) {
        c->points[i].request = c->asked.request;
        c->points[i].request.system = c->names[i];
    }
    campaign.n = c->n;
    status = campaign_run(&campaign, n_threads, err);
    if (status == 0 && options_has(options, "json")) {
        status = print_json(c, err);
    } else if (status == 0) {
        print_people(c);
    }
    status = status != 0 ? status : settle(c, err);
    campaign_fini(&campaign);
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct comparison *comparison = calloc(1, sizeof *comparison);
    ASSERT(comparison != NULL);
    int status = compare(options, comparison, err);
    free(comparison);
    return status;
}

const struct command command_compare = {
    .name = "compare",
    .words = "--systems A,B,...",
    .doc = "several systems under the same workload, side by side",
    .more = "A system that does not fit into the device is listed with the reason. Settings hold\n"
            "for every system.",
    .options = options_of_compare,
    .run = run,
};
