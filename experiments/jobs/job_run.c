/* Jobs that give runs: made now, or recorded in a database. */
#include <stdio.h>
#include <string.h>

#include "analysis/store/store.h"
#include "engine/weights/weights.h"
#include "experiments/cli/asked.h"
#include "experiments/jobs/jobs.h"
#include "experiments/run/compose.h"
#include "sim/base/names.h"

static int take_options(const json_t *args, struct workload_options *out, struct err *err) {
    uint64_t input = 0, output = 0;
    out->seed = 1;
    int status = job_whole(args, "seed", INT64_MAX, &out->seed, err);
    status = status != 0 ? status : job_whole(args, "requests", UINT32_MAX, &out->requests, err);
    status = status != 0 ? status : job_whole(args, "input_tokens", UINT32_MAX, &input, err);
    status = status != 0 ? status : job_whole(args, "output_tokens", UINT32_MAX, &output, err);
    out->input_tokens = (uint32_t)input;
    out->output_tokens = (uint32_t)output;
    return status != 0 ? status : job_number(args, "rate", 1e-9, 1e9, &out->rate_per_s, err);
}

/* Paths are looked for as other files of a study are. */
struct live_paths {
    char weights[1024], tokenizer[1024], reference[1024], config[256];
};

static const char *path_of(const json_t *args, const char *key, char path[1024]) {
    const char *given = job_text(args, key);
    bool is_path = given != NULL && weights_seed(given) == NULL;
    return is_path ? job_path(path, 1024, given) : given;
}

/* Runs of a device, which skip idle time; prompts also of simulated ones. */
static int take_backend(const json_t *args, struct live_paths *paths, struct setting *settings,
                        struct run_request *request, struct err *err) {
    struct backend_request *backend = &request->backend;
    const char *name = job_text(args, "backend");
    int kind = name != NULL ? name_find(backend_names, name) : BACKEND_SIM;
    request->questions =
        (struct questions_request){.tokenizer = path_of(args, "tokenizer", paths->tokenizer),
                                   .reference = path_of(args, "reference", paths->reference),
                                   .chat = job_text(args, "chat")};
    if (kind < 0) {
        return err_usage(err, "backend: this program has no '%s'; it has: sim, cpu, cuda", name);
    }
    backend->kind = (enum backend)kind;
    if (kind == BACKEND_SIM) {
        return 0;
    }
    backend->skips_idle = true;
    backend->weights = path_of(args, "weights", paths->weights);
    backend->weights = backend->weights != NULL ? backend->weights : "random:1";
    request->questions.weights = backend->weights;
    if (kind == BACKEND_CPU && request->n_settings < JOB_MOST_SETTINGS) {
        struct setting *setting = &settings[request->n_settings++];
        *setting = (struct setting){0};
        snprintf(setting->key, sizeof setting->key, "runtime.element_bytes");
        snprintf(setting->value, sizeof setting->value, "4");
        snprintf(setting->place, sizeof setting->place, "backend = cpu of the study");
    }
    const struct model *model = asked_model_of_weights(backend->weights, paths->config, err);
    if (request->model == NULL && model != NULL) {
        request->model = model->path != NULL ? model->path : model->name;
    }
    return err->kind == ERR_NONE ? 0 : (int)err->kind;
}

/* A run that does not fit its GPU is a row that says so. */
static int run(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    struct setting settings[JOB_MOST_SETTINGS];
    struct run_request request = {.system = job_text(args, "system"),
                                  .gpu = job_text(args, "gpu"),
                                  .model = job_text(args, "model"),
                                  .systems_path = job_text(args, "systems_file"),
                                  .workload = job_text(args, "workload"),
                                  .settings = settings};
    struct live_paths paths;
    json_t *summary = NULL;
    int status = job_settings(args, settings, &request.n_settings, err);
    status = status != 0 ? status : take_options(args, &request.options, err);
    status = status != 0 ? status : take_backend(args, &paths, settings, &request, err);
    status = status != 0 ? status : compose_summary(&request, &summary, err);
    if (status != 0 && err->code == ERR_NO_ROOM) {
        json_object_set_new(row, "no_result", json_string(err->text));
        *err = (struct err){0};
        status = 0;
    }
    if (status == 0) {
        json_object_update_missing(row, summary);
        json_array_append(rows, row);
    }
    json_decref(summary);
    return status;
}

const struct job job_run = {
    .name = "run",
    .doc = "runs, simulated or of a back end; its columns are the fields of `unmask run --json`",
    .required = (const char *const[]){"system", "gpu", "workload", NULL},
    .optional = (const char *const[]){"model", "rate", "input_tokens", "output_tokens", "requests",
                                      "seed", "systems_file", "backend", "weights", "tokenizer",
                                      "chat", "reference", NULL},
    .takes_settings = true,
    .fill = run,
};

/* ---- recorded ---- */

struct taking {
    json_t *row, *rows;
};

static int take_run(void *state, const struct stored_run *stored, struct err *err) {
    struct taking *taking = state;
    json_t *row = json_copy(taking->row), *summary = NULL;
    if (stored->damage != NULL) {
        json_decref(row);
        return err_world(err, "run %lld is damaged: %s", (long long)stored->run, stored->damage);
    }
    summary = json_loads(stored->summary, 0, NULL);
    json_object_set_new(row, "run", json_integer(stored->run));
    json_object_set_new(row, "config", json_string(stored->config));
    json_object_update_missing(row, summary);
    json_decref(summary);
    json_array_append_new(taking->rows, row);
    return 0;
}

static int recorded(void **state, const json_t *args, json_t *row, json_t *rows, struct err *err) {
    (void)state;
    char path[1024];
    struct store *store = NULL;
    struct taking taking = {row, rows};
    int status =
        store_open(job_path(path, sizeof path, job_text(args, "file")), STORE_READ, &store, err);
    status = status == 0 ? store_list_runs(store, take_run, &taking, err) : status;
    store_close(store);
    return status;
}

const struct job job_recorded = {
    .name = "recorded",
    .doc = "runs that `unmask run --db` or `sweep --db` recorded, with the same columns",
    .required = (const char *const[]){"file", NULL},
    .fill = recorded,
};
