/* unmask replay: a recorded run once more, its schedule made again and held to the record. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cmd.h"
#include "experiments/compose.h"
#include "experiments/interrupt.h"

static const struct option own_options[] = {
    {"db", "FILE", "the database", false},
    {"run", "N", "the run's number; it must hold its steps", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_replay[] = {own_options, json_options, NULL};

/* The recorded summary is the text of the same object. */
static int compare_summary(const struct composition *c, const json_t *object, struct err *err) {
    char *text = summary_json_text(object, 0);
    json_error_t trouble;
    json_t *before = json_loads(c->recorded->summary, 0, &trouble);
    char *recorded = before != NULL ? summary_json_text(before, 0) : NULL;
    int status = 0;
    if (text == NULL || recorded == NULL) {
        status = err_world(err, "run %" PRId64 " has no summary to compare with", c->recorded->run);
    } else if (strcmp(text, recorded) != 0) {
        const char *key = "the order of its keys";
        const char *name;
        json_t *value;
        json_object_foreach((json_t *)object, name, value) {
            const json_t *other = json_object_get(before, name);
            char *a = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
            char *b =
                other != NULL ? json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
            bool same = a != NULL && b != NULL && strcmp(a, b) == 0;
            free(a);
            free(b);
            if (!same) {
                key = name;
                break;
            }
        }
        status = err_world(err,
                           "the replay of run %" PRId64 " took the same steps but its summary "
                           "differs from the recorded one, first in '%s'",
                           c->recorded->run, key);
    }
    json_decref(before);
    free(text);
    free(recorded);
    return status;
}

static int print(const struct options *options, const struct composition *c, struct err *err) {
    json_t *object = NULL;
    int status = summary_json(&c->summary, &c->facts, &object, err);
    if (status != 0) {
        return status;
    }
    status = compare_summary(c, object, err);
    if (options_has(options, "json")) {
        struct err late = {0};
        (void)cmd_print_json(object, &late);
    } else {
        json_decref(object);
        summary_print(&c->summary, &c->facts, stdout);
        compose_print(c, stdout);
        printf("%-13s%zu submissions played as recorded; device time recorded %.6g s, priced now "
               "%.6g s\n",
               "replay", c->recorded->n_steps, c->recorded_ns * 1e-9, c->priced_ns * 1e-9);
    }
    return status;
}

static int play(const struct options *options, const struct recorded *recorded, struct err *err) {
    struct composition *composition = NULL;
    struct run_watch watch = {.stop = interrupt_catch()};
    int status = compose_recorded(recorded, &composition, err);
    if (status == 0) {
        status = compose_run(composition, &watch, err);
    }
    if (status == 0 && composition->result.interrupted) {
        status = err_world(err, "interrupted");
    }
    if (status == 0 && composition->result.submissions < recorded->n_steps) {
        status = err_world(err,
                           "the replay diverges: the run ends after %" PRIu64
                           " of the %zu submissions recorded",
                           composition->result.submissions, recorded->n_steps);
    }
    if (status == 0) {
        status = print(options, composition, err);
    }
    compose_close(composition);
    return status;
}

static int run(const struct options *options, struct err *err) {
    uint64_t number = 0;
    if (!options_has(options, "db") || !options_has(options, "run")) {
        return err_usage(err, "replay needs --db FILE and --run N");
    }
    struct store *store = NULL;
    struct recorded *recorded = NULL;
    int status = options_whole(options, "run", 1, INT64_MAX, &number, err);
    if (status == 0) {
        status = store_open(options_text(options, "db"), STORE_READ, &store, err);
    }
    if (status == 0) {
        status = recorded_load(store, (int64_t)number, &recorded, err);
    }
    store_close(store);
    if (status == 0) {
        status = play(options, recorded, err);
    }
    recorded_close(recorded);
    return status;
}

const struct command command_replay = {
    .name = "replay",
    .words = "",
    .doc = "play a recorded run's steps to the same scheduler and compare the summaries",
    .more =
        "The scheduler must submit what was recorded; where it does not, the replay says so and\n"
        "ends with status 1. Needs a run recorded with --levels steps.",
    .options = options_of_replay,
    .run = run,
};
