/* unmask replay: a recorded run once more, its schedule made again and held to the record. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/summary_output.h"
#include "experiments/command/commands.h"
#include "experiments/command/summary_tables.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/same_batches.h"
#include "experiments/study/released.h"

static const struct option own_options[] = {
    {"db", "FILE", "the database", false},
    {"run", "N", "the run's number; it must hold its steps", false},
    {"against", "N",
     "another run of the same requests: play nothing, and print how many batches of the two are "
     "equal",
     false},
    {"steps", "FILE", "write what was predicted and measured, one row per submission, as CSV",
     false},
    {"operators", "K", "with cpu or cuda: measure every K-th submission operator by operator",
     false},
    {"allow-plugin", NULL,
     "load the plug-ins that the run names, where they are those that it loaded (default: a "
     "database "
     "runs no code)",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_replay[] = {
    own_options, backend_options, json_options, format_option, verbose_option, NULL};

/* The first key under which two summaries differ. */
static const char *first_difference(const json_t *object, const json_t *before) {
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
            return name;
        }
    }
    json_object_foreach((json_t *)before, name, value) {
        if (json_object_get(object, name) == NULL) {
            return name;
        }
    }
    return "the order of its keys";
}

/* What another build's summary says as well: it may not have known of all that this one says. */
static json_t *known_then(const struct composition *c, const json_t *object) {
    json_t *known = json_copy((json_t *)(uintptr_t)object);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (c->is_of_another_build && json_object_get(c->recorded->summary, name) == NULL) {
            json_object_del(known, name);
        }
    }
    return known;
}

/* Whether what a device decided is not in the record: an older one wrote it. */
static bool lacks_positions(const struct composition *c) {
    return !c->recorded->is_simulated && system_leaves_out(c->system) && c->recorded->n_steps > 0 &&
           !c->recorded->has_positions;
}

static int compare_summary(const struct composition *c, const json_t *whole, struct err *err) {
    json_t *object = known_then(c, whole);
    char *text = summary_json_text(object, 0);
    char *recorded = summary_json_text(c->recorded->summary, 0);
    int status = 0;
    if (text == NULL || recorded == NULL) {
        status = err_world(err, "run %" PRId64 " has no summary to compare with", c->recorded->run);
    } else if (strcmp(text, recorded) != 0 && lacks_positions(c)) {
        status = err_world(err,
                           "run %" PRId64 " cannot be played again: what its steps ran depends on "
                           "the positions that the device chose, which an older unmask did not "
                           "record",
                           c->recorded->run);
    } else if (strcmp(text, recorded) != 0) {
        status = err_world(err,
                           "the replay of run %" PRId64 " took the same steps but its summary "
                           "differs from the recorded one, first in '%s'",
                           c->recorded->run, first_difference(object, c->recorded->summary));
    }
    free(text);
    free(recorded);
    json_decref(object);
    return status;
}

static bool is_compared(const struct composition *c) {
    return c->accuracy.n_steps > 0;
}

/* What the options ask of a device. */
struct wanted {
    struct backend_request backend;
    uint32_t operators_every;
};

/* What was played and where its times come from. */
static json_t *replay_json(const struct composition *c, const struct wanted *wanted) {
    const char *weights = wanted->backend.kind != BACKEND_SIM ? wanted->backend.weights : NULL;
    const char *measured = c->fleet != NULL ? "now" : is_compared(c) ? "recorded" : NULL;
    const char *changed = c->changed[0] != '\0' ? c->changed : NULL;
    return json_pack("{s:I, s:f, s:f, s:s?, s:s?, s:s?}", "submissions",
                     (json_int_t)c->result.submissions, "device_recorded_s", c->recorded_ns * 1e-9,
                     "device_priced_s", c->priced_ns * 1e-9, "measured", measured, "weights",
                     weights, "changed", changed);
}

/* Adds to the object of the run what is not part of its summary, and prints it. */
static int print_json(const struct composition *c, const struct wanted *wanted, json_t *object,
                      struct err *err) {
    json_t *accuracy = is_compared(c) ? accuracy_json(&c->accuracy) : NULL;
    json_object_set_new(object, "replay", replay_json(c, wanted));
    if (accuracy != NULL) {
        const char *device = c->fleet != NULL ? c->device : c->facts.device;
        json_object_set_new(accuracy, "measured_on", json_string(device));
        json_object_set_new(accuracy, "beware", caution_json(&c->around));
        json_object_set_new(object, "accuracy", accuracy);
    }
    return cmd_print_json(object, err);
}

static void print_device(const struct composition *c, const struct wanted *wanted) {
    if (c->fleet != NULL) {
        printf("%-13severy submission carried out: %s%s, weights %s\n", "device",
               c->emulates ? "emulated on " : "", c->device, wanted->backend.weights);
        caution_print(&c->around, stdout);
    }
}

static void print_text(const struct composition *c, const struct wanted *wanted) {
    summary_print(&c->summary, &c->facts, stdout);
    compose_print(c, stdout);
    printf("%-13s%" PRIu64 " submissions played as recorded%s; device time recorded %.6g s, priced "
           "now %.6g s\n",
           "replay", c->result.submissions,
           c->recorded->incomplete != NULL ? ", up to where the run was cut off" : "",
           c->recorded_ns * 1e-9, c->priced_ns * 1e-9);
    print_device(c, wanted);
    if (is_compared(c)) {
        accuracy_print(&c->accuracy, stdout);
    }
    released_print(&c->facts.system, 1, stdout);
    compose_print_warnings(c, stdout);
}

/* Of a replay that was cut short: what was carried out on the device until then. */
static int print_part(const struct options *options, const struct composition *c,
                      const struct wanted *wanted, struct err *err) {
    if (options_has(options, "json")) {
        json_t *object = json_object();
        json_object_set_new(object, "incomplete", json_string("interrupted"));
        return print_json(c, wanted, object, err);
    }
    printf("%-13s%zu of %zu submissions played before the interrupt\n", "replay",
           c->accuracy.n_steps, c->recorded->n_steps);
    print_device(c, wanted);
    accuracy_print(&c->accuracy, stdout);
    return 0;
}

static int print(const struct options *options, const struct composition *c,
                 const struct wanted *wanted, struct err *err) {
    json_t *object = NULL;
    int status = summary_json(&c->summary, &c->facts, &object, err);
    if (status != 0) {
        return status;
    }
    status = c->recorded->incomplete == NULL ? compare_summary(c, object, err) : 0;
    if (options_has(options, "json")) {
        (void)print_json(c, wanted, object, err);
    } else {
        print_text(c, wanted);
        summary_tables(object);
        json_decref(object);
    }
    return err->kind != ERR_NONE ? (int)err->kind : status;
}

static int read_wanted(const struct options *options, struct wanted *wanted, struct err *err) {
    uint64_t every = 0;
    int status = asked_backend(options, &wanted->backend, err);
    status = status != 0 ? status : options_whole(options, "operators", 1, INT32_MAX, &every, err);
    if (status == 0 && every > 0 && wanted->backend.kind == BACKEND_SIM) {
        status = err_usage(err, "--operators measures: it needs --backend cpu or cuda");
    }
    wanted->operators_every = (uint32_t)every;
    return status;
}

static int say_interrupted(const struct composition *composition, struct err *err) {
    return err_world(err, "interrupted: %" PRIu64 " of %zu submissions were played",
                     composition->result.submissions, composition->recorded->n_steps);
}

static int check_played(const struct composition *composition, struct err *err) {
    const struct recorded *recorded = composition->recorded;
    if (!composition->is_played_out && composition->result.submissions < recorded->n_steps) {
        return err_world(err,
                         "the replay diverges: the run ends after %" PRIu64
                         " of the %zu submissions recorded",
                         composition->result.submissions, recorded->n_steps);
    }
    return 0;
}

static bool is_interrupted(const struct composition *c) {
    return c->result.interrupted && !c->is_played_out;
}

/* What a device was used for is written and printed after an interrupt, too. */
static int tell(const struct options *options, const struct composition *composition,
                const struct wanted *wanted, struct err *err) {
    const char *path = options_text(options, "steps");
    bool is_part = is_interrupted(composition);
    if (is_part && composition->fleet == NULL) {
        return 0;
    }
    int status = is_part ? 0 : check_played(composition, err);
    if (status != 0) {
        return status;
    }
    if (path != NULL) {
        status = accuracy_write(&composition->accuracy, path, err);
    }
    if (is_part) {
        /* The table is printed even if a file cannot be written. */
        int printed = print_part(options, composition, wanted, err);
        return status != 0 ? status : printed;
    }
    return status != 0 ? status : print(options, composition, wanted, err);
}

/* A recorded run that starved does so again, with the same words. */
static int play_to_its_end(struct composition *c, const struct run_watch *watch, struct err *err) {
    int status = compose_run(c, watch, err);
    if (status != 0 && err->code == ERR_STARVES && c->recorded->incomplete != NULL &&
        strcmp(err->text, c->recorded->incomplete) == 0) {
        *err = (struct err){0};
        status = 0;
    }
    return status;
}

static int play(const struct options *options, const struct recorded *recorded, struct err *err) {
    struct composition *composition = NULL;
    struct run_watch watch = {.stop = interrupt_catch()};
    struct wanted wanted = {0};
    const char *path = options_text(options, "steps");
    int status = read_wanted(options, &wanted, err);
    if (status == 0 && path != NULL && wanted.backend.kind == BACKEND_SIM &&
        recorded->is_simulated) {
        status = err_usage(err,
                           "run %" PRId64 " was simulated, so that nothing was measured; --steps "
                           "needs --backend cpu or cuda",
                           recorded->run);
    }
    if (status == 0) {
        status =
            compose_recorded(recorded, &wanted.backend, wanted.operators_every, &composition, err);
    }
    if (status == 0 && recorded->incomplete != NULL) {
        fprintf(stderr,
                "unmask: run %" PRId64 " is incomplete and is played as far as it goes: %s\n",
                recorded->run, recorded->incomplete);
    }
    if (status == 0 && composition->changed[0] != '\0') {
        fprintf(stderr, "unmask: run %" PRId64 " was recorded under other conditions: %s\n",
                recorded->run, composition->changed);
    }
    status = status != 0 ? status : play_to_its_end(composition, &watch, err);
    if (status == 0) {
        const bool is_anew = composition->fleet != NULL; /* on a device: its times are measured */
        accuracy_beware(&composition->accuracy,
                        is_anew ? &composition->around : &composition->facts.warnings);
    }
    status = status != 0 ? status : tell(options, composition, &wanted, err);
    if (status == 0 && is_interrupted(composition)) {
        status = say_interrupted(composition, err);
    }
    compose_close(composition);
    return status;
}

/* Held to another run, which may have been executed where this one was simulated. */
static int hold_against(const struct options *options, struct store *store, uint64_t run,
                        struct err *err) {
    uint64_t other = 0;
    struct same_batches same;
    int status = options_whole(options, "against", 1, INT64_MAX, &other, err);
    status =
        status != 0 ? status : same_batches_count(store, (int64_t)run, (int64_t)other, &same, err);
    if (status == 0 && options_has(options, "json")) {
        json_t *object = same_batches_json(&same);
        json_dumpf(object, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(object);
    } else if (status == 0) {
        same_batches_print(&same, stdout);
    }
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
    if (status == 0 && options_has(options, "against")) {
        status = hold_against(options, store, number, err);
        store_close(store);
        return status;
    }
    if (status == 0) {
        status = recorded_load(store, (int64_t)number, &recorded, err);
    }
    if (status == 0) {
        recorded->allows_plugins = options_has(options, "allow-plugin");
        status = play(options, recorded, err);
    }
    recorded_close(recorded);
    store_close(store);
    return status;
}

const struct command command_replay = {
    .name = "replay",
    .words = "",
    .doc = "play a recorded run's steps to the same scheduler and compare the summaries",
    .more =
        "The scheduler must submit what was recorded; where it does not, the replay says so and\n"
        "ends with status 1. Needs a run recorded with --levels steps. Of a run that was executed\n"
        "on a device it prints predicted against measured step times, and what makespan, "
        "latencies\n"
        "and the time to the first block they come to in the recorded batches. With --backend cpu\n"
        "or cuda every recorded submission, of a simulated run, too, is also carried out there;\n"
        "when that is interrupted, what was done is printed and written, and the status is 1. Of\n"
        "a run that was cut off, what is on record is played and summed up, and marked as\n"
        "incomplete. With --against it holds the decisions of two runs against one another, such\n"
        "as a simulated and an executed one.",
    .options = options_of_replay,
    .run = run,
};
