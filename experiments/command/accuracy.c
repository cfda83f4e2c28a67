/* unmask profile accuracy: the cost model as it is now against steps that were measured once,
 * anywhere. */
#include <inttypes.h>

#include "analysis/caution.h"
#include "experiments/command/commands.h"
#include "experiments/run/accuracy.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/cautions.h"
#include "sim/system/system_facts.h"

static const struct option own_options[] = {
    {"steps", "FILE", "the steps, as replay --steps wrote them on the GPU that --gpu names", false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_accuracy[] = {
    own_options,  system_option, device_options, policy_options,
    json_options, format_option, verbose_option, NULL,
};

static uint64_t steps_of(const struct accuracy *accuracy) {
    uint64_t n = 0;
    for (size_t i = 0; i < accuracy->n_steps; i++) {
        n += accuracy->steps[i].steps;
    }
    return n;
}

static int print_json(const struct accuracy *accuracy, const char *path, struct err *err) {
    const struct system *system = accuracy->system;
    json_t *errors = accuracy_json(accuracy);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "system", system->name, "model",
        system->model->name, "gpu", system->gpu->name, "profile_kind", system_profile_kind(system),
        "profile_source", system_profile_source(system), "steps_file", path, "submissions",
        (json_int_t)accuracy->n_steps, "steps", (json_int_t)steps_of(accuracy));
    json_object_update(object, errors);
    json_decref(errors);
    json_object_set_new(object, "beware", caution_json(&accuracy->beware));
    return cmd_print_json(object, err);
}

static void print_text(const struct accuracy *accuracy, const char *path) {
    const struct system *system = accuracy->system;
    printf("%s, %s on %s: %zu submissions, %" PRIu64 " steps of %s\n", system->name,
           system->model->name, system->gpu->name, accuracy->n_steps, steps_of(accuracy), path);
    printf("prices from  %s: %s\n", system_profile_kind(system), system_profile_source(system));
    system_print_provenance(system, stdout);
    accuracy_print(accuracy, stdout);
    caution_print(&accuracy->beware, stdout);
}

static int run(const struct options *options, struct err *err) {
    const char *path = options_text(options, "steps");
    if (path == NULL) {
        return err_usage(err, "profile accuracy needs --steps FILE");
    }
    struct asked asked;
    struct system *system = NULL;
    struct accuracy accuracy;
    int status = asked_read_system(options, &asked, &system, err);
    if (status != 0) {
        return status;
    }
    asked_say_unread(system, "step");
    status = accuracy_read(path, system, &accuracy, err);
    if (status == 0) {
        if (options_has(options, "json")) {
            status = print_json(&accuracy, path, err);
        } else {
            print_text(&accuracy, path);
        }
        accuracy_fini(&accuracy);
    }
    system_close(system);
    return status;
}

const struct command command_accuracy = {
    .name = "profile accuracy",
    .words = "",
    .doc = "price recorded steps anew and compare with what was measured",
    .more =
        "Judges a changed cost model, profile or setting on any machine: of the file the sizes\n"
        "and the measured times are read, not its predictions. System, model and GPU are those\n"
        "of the run; the file does not name them. Where the run was marked, because others\n"
        "computed on the device, it was slowed or the program was stopped, that is said.",
    .options = options_of_accuracy,
    .run = run,
};
