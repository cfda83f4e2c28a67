/* The job that makes runs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/offered.h"
#include "analysis/summary_output.h"
#include "engine/weights/weights.h"
#include "experiments/run/asked.h"
#include "experiments/run/compose.h"
#include "experiments/run/limit.h"
#include "experiments/study/jobs.h"
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
    return status != 0 ? status : rate_read("rate", job_text(args, "rate"), &out->rate_per_s, err);
}

static int take_objective(const json_t *args, struct slo *slo, struct err *err) {
    double latency_s = 0;
    int status = job_number(args, "slo_latency", 1e-9, 1e9, &latency_s, err);
    slo->latency_ns = (int64_t)llround(latency_s * 1e9);
    return status;
}

/* Paths are looked for as other files of a study are. */
struct live_paths {
    char weights[1024], tokenizer[1024], reference[1024], workload[1024], config[256];
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
        snprintf(setting->key, sizeof setting->key, "storage.weights");
        snprintf(setting->value, sizeof setting->value, "f32");
        snprintf(setting->place, sizeof setting->place, "backend = cpu of the study");
    }
    const struct model *model = asked_model_of_weights(backend->weights, paths->config, err);
    if (request->model == NULL && model != NULL) {
        request->model = model->path != NULL ? model->path : model->name;
    }
    return err->kind == ERR_NONE ? 0 : (int)err->kind;
}

static int put_bound(const struct run_request *request, json_t *summary, struct err *err) {
    struct bound bound;
    if (limit_find(request, NULL, &bound, err) != 0) {
        return err_status(err);
    }
    json_t *object = limit_json(&bound);
    int status = summary_put_bound(summary, object);
    json_decref(object);
    return status;
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
    if (strchr(request.workload, '/') != NULL) {
        request.workload = path_of(args, "workload", paths.workload);
    }
    bool bounds = false;
    json_t *summary = NULL;
    int status = job_settings(args, settings, &request.n_settings, err);
    status = status != 0 ? status : job_flag(args, "with_bound", &bounds, err);
    status = status != 0 ? status : take_options(args, &request.options, err);
    status = status != 0 ? status : take_objective(args, &request.slo, err);
    status = status != 0 ? status : take_backend(args, &paths, settings, &request, err);
    status = status != 0 ? status : compose_summary(&request, &summary, err);
    status = status == 0 && bounds ? put_bound(&request, summary, err) : status;
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
                                      "chat", "reference", "slo_latency", "with_bound", NULL},
    .takes_settings = true,
    .fill = run,
};
