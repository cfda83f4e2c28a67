/* unmask list: everything that can be named, with its parameters. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/field.h"
#include "engine/supported.h"
#include "experiments/command/commands.h"
#include "experiments/run/cli/table.h"
#include "experiments/study/collectives.h"
#include "experiments/study/released.h"
#include "sim/base/input/config.h"
#include "sim/base/input/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/warning.h"
#include "sim/decode/location.h"
#include "sim/decode/process_file.h"
#include "sim/memory/placement.h"
#include "sim/policy/plugin/registry.h"
#include "sim/price/runtime.h"
#include "sim/price/transfer.h"
#include "sim/system/system.h"
#include "sim/system/system_facts.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/marks.h"
#include "traces/reader.h"
#include "traces/workload.h"

static const struct option *const options_of_list[] = {json_options, format_option, NULL};

/* ---- parameters ---- */

static const char param_columns[] = "of|key|unit|range|initial|meaning";

static const char *range_text(const struct param *param, char *text, size_t size) {
    if (param->type == PARAM_WORD) {
        text[0] = '\0';
        for (size_t i = 0; param->words[i] != NULL; i++) {
            size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%s", i > 0 ? "|" : "", param->words[i]);
        }
    } else if (param->type == PARAM_BOOL) {
        snprintf(text, size, "on|off");
    } else {
        snprintf(text, size, "%.10g..%.10g", param->min, param->max);
    }
    return text;
}

static void add_params(struct table *table, const char *of, const char *prefix,
                       const struct param *params, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char key[128], range[256];
        snprintf(key, sizeof key, "%s%s", prefix, params[i].name);
        table_add(table, "s s s s s s", of, key, params[i].unit,
                  range_text(&params[i], range, sizeof range), params[i].initial, params[i].doc);
    }
}

/* ---- the sections: `rows` always, `params` where there are any ---- */

struct listing {
    enum policy_kind kind; /* of a section of policies */
    struct table *rows, *params;
    const char *note; /* below the rows; NULL: there is none */
    struct err *err;
};

static const char name_doc[] = "name|what";

/* Whether it runs live on one GPU, with its own model, or what of it does not. */
static const char *live_words(const char *name, char text[128], struct err *err) {
    const struct feature *lacked;
    if (released_lacks(name, &lacked, err) != 0) {
        return NULL;
    }
    snprintf(text, 128, "%s%s",
             lacked == NULL ? "yes" : "no: ", lacked == NULL ? "" : lacked->name);
    return text;
}

static int list_system(void *state, const char *name, const char *doc) {
    struct listing *out = state;
    char text[128];
    const char *live = live_words(name, text, out->err);
    struct released released;
    int status = released_named(name, &released, out->err);
    table_add(out->rows, "s s s s", name, released.is_published ? "published" : "design", doc,
              live);
    return live == NULL ? err_status(out->err) : status;
}

static void list_systems(struct listing *out) {
    out->rows = table_open("name|kind|what|live");
    out->note =
        "published: stands for code that was released; design: as designed, on our own "
        "runtime\nlive: with --backend cpu or cuda. `unmask list features` says of each thing "
        "that does not run live why not, and what to set instead\n";
    (void)system_list(list_system, out, out->err);
    out->params = table_open(param_columns);
    add_params(out->params, "every system", "", system_params, system_n_params);
}

static void list_policies(struct listing *out) {
    out->rows = table_open(name_doc);
    out->params = table_open(param_columns);
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", policy_kind_names[out->kind]);
    for (size_t i = 0; i < policy_count(out->kind); i++) {
        const struct policy *policy = policy_at(out->kind, i);
        table_add(out->rows, "s s", policy->name, policy->doc);
        add_params(out->params, policy->name, prefix, policy->params, policy->n_params);
    }
}

static void list_planners(struct listing *out) {
    out->rows = table_open(name_doc);
    for (size_t i = 0; i < planner_table_size; i++) {
        table_add(out->rows, "s s", planner_table[i].name, planner_table[i].doc);
    }
}

static void list_runtimes(struct listing *out) {
    out->rows = table_open("name|what|source");
    const struct runtime_preset *const *runtimes = runtime_all(out->err);
    for (size_t i = 0; runtimes != NULL && runtimes[i] != NULL; i++) {
        table_add(out->rows, "s s s", runtimes[i]->name, runtimes[i]->doc, runtimes[i]->source);
    }
    out->params = table_open(param_columns);
    add_params(out->params, "every runtime", "runtime.", runtime_params, runtime_n_params);
}

static int list_host(void *state, const struct host *host, const char *doc) {
    table_add(((struct listing *)state)->rows, "s %.4g s s s s", host->name, host->factor,
              provenance_words[host->provenance.kind], host->gpus[0] != '\0' ? host->gpus : NULL,
              doc, host->provenance.source);
    return 0;
}

static void list_hosts(struct listing *out) {
    out->rows = table_open("name|factor|kind|gpu|what|source");
    (void)host_list(list_host, out, out->err);
    out->params = table_open(param_columns);
    add_params(out->params, "every host", "host.", host_params, host_n_params);
}

/* "8 of 256 and 1 shared, first layers dense: 1", and how they are chosen. */
static void add_mixture(struct table *rows, const struct model *m) {
    char experts[96], router[128];
    int n =
        snprintf(experts, sizeof experts, "%" PRIu32 " of %" PRIu32, m->experts_active, m->experts);
    if (m->shared_experts > 0) {
        n += snprintf(experts + n, sizeof experts - (size_t)n, " and %" PRIu32 " shared",
                      m->shared_experts);
    }
    if (m->dense_layers > 0) {
        snprintf(experts + n, sizeof experts - (size_t)n, ", first layers dense: %" PRIu32,
                 m->dense_layers);
    }
    n = snprintf(router, sizeof router, "%s", router_kind_names[m->router]);
    if (m->expert_groups > 1) {
        n += snprintf(router + n, sizeof router - (size_t)n, ", %" PRIu32 " of %" PRIu32 " groups",
                      m->expert_groups_active, m->expert_groups);
    }
    snprintf(router + n, sizeof router - (size_t)n, "%s%s, x %g", m->expert_bias ? ", bias" : "",
             m->norm_topk ? ", normalised" : "", m->routed_scale);
    table_add(rows, "s s", m->experts > 0 ? experts : NULL, m->experts > 0 ? router : NULL);
}

static void list_models(struct listing *out) {
    out->rows = table_open("name|title|parameters|weights|KV/token|rotated|positions|attention|"
                           "block|experts|router|source");
    const struct model *const *models = model_all(out->err);
    for (size_t i = 0; models != NULL && models[i] != NULL; i++) {
        const struct model *model = models[i];
        double parameters = (double)model_parameters(model);
        char text[32];
        table_add(out->rows, "s s", model->name, model->title);
        snprintf(text, sizeof text, "%.2f B", parameters * 1e-9);
        table_shown(out->rows, parameters, text);
        snprintf(text, sizeof text, "%" PRIu32 " of %" PRIu32, model_rotary_dim(model),
                 model->head_dim);
        table_add(out->rows, "b b s u s u", model_weights_bytes(model, &(struct storage){0}),
                  model_kv_bytes_per_token(model, NUMBER_BF16), text, model->max_positions,
                  attention_mask_names[model->mask], model->block_tokens);
        add_mixture(out->rows, model);
        table_text(out->rows, model->source);
    }
}

/* "transferred from h100 (products off by 15 %, p90 36 %, from h100 to a100-80g)". */
static const char *transfer_words(const struct gpu *gpu, char *text, size_t size, struct err *err) {
    struct transfer_check check;
    const struct gpu *donor = gpu_find(gpu->donor, err);
    size_t used = (size_t)snprintf(text, size, "transferred from %s", gpu->donor);
    if (donor != NULL && transfer_check_nearest(donor, gpu, &check, err) == 0 && check.n > 0) {
        const struct profile_errors *products = &check.by_class[TRANSFER_LARGE_GEMM];
        snprintf(text + used, size - used, " (products off by %.0f %%, p90 %.0f %%, from %s to %s)",
                 100 * products->median_abs, 100 * products->p90_abs, check.from->name,
                 check.to->name);
    }
    return text;
}

/* The kind of a profile without reading the whole of it. */
static const char *profile_words(const struct gpu *gpu, char *text, size_t size, struct err *err) {
    if (gpu->profile == NULL && gpu->donor == NULL) {
        return "roofline";
    }
    if (gpu->profile == NULL) {
        return transfer_words(gpu, text, size, err);
    }
    char path[4096];
    return profile_kind_of_file(gpu_profile_path(gpu, path, sizeof path), text, size, err);
}

/* "imported; measured for llada-8b, sdar-8b": models with a profile of their own are priced by it.
 */
static const char *prices_words(const struct gpu *gpu, char text[512], struct err *err) {
    const struct model *const *models = model_all(err);
    char kind[160], path[4096], own[64];
    const char *of_all = profile_words(gpu, kind, sizeof kind, err);
    bool is_first = true;
    snprintf(text, 512, "%s", of_all != NULL ? of_all : "-");
    for (size_t i = 0; models != NULL && models[i] != NULL; i++) {
        size_t n = strlen(text);
        if (gpu_model_profile_path(gpu, models[i]->name, path, sizeof path) == NULL) {
            continue;
        }
        if (is_first) {
            const char *word = profile_kind_of_file(path, own, sizeof own, err);
            snprintf(text + n, 512 - n, "; %s for %s", word != NULL ? word : "-", models[i]->name);
        } else {
            snprintf(text + n, 512 - n, ", %s", models[i]->name);
        }
        is_first = false;
    }
    return text;
}

static void list_gpus(struct listing *out) {
    out->rows = table_open("name|title|memory|TFLOP/s|fp8 TFLOP/s|GB/s|SMs|prices|source");
    const struct gpu *const *gpus = gpu_all(out->err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        const struct gpu *gpu = gpus[i];
        char text[512];
        table_add(out->rows, "s s b %.4g %.4g %.4g u s s", gpu->name, gpu->title, gpu->memory_bytes,
                  gpu->peak_bf16_flops * 1e-12,
                  gpu->peak_fp8_flops > 0 ? gpu->peak_fp8_flops * 1e-12 : (double)NAN,
                  gpu->peak_bandwidth * 1e-9, gpu->sms, prices_words(gpu, text, out->err),
                  gpu->source);
    }
}

/* Those of single models, which come first for these and any of their shape. */
static void list_model_profiles(struct listing *out, const struct gpu *gpu) {
    const struct model *const *models = model_all(out->err);
    for (size_t i = 0; models != NULL && models[i] != NULL; i++) {
        char path[4096], file[256], text[64];
        if (gpu_model_profile_path(gpu, models[i]->name, path, sizeof path) != NULL) {
            char name[192];
            snprintf(file, sizeof file, "kernels/profiles/%s",
                     gpu_model_profile(gpu, models[i]->name, name, sizeof name));
            const char *kind = profile_kind_of_file(path, text, sizeof text, out->err);
            table_add(out->rows, "s s s s", gpu->name, models[i]->name, file,
                      kind != NULL ? kind : "-");
        }
    }
}

static void list_profiles(struct listing *out) {
    out->rows = table_open("gpu|model|file|kind");
    const struct gpu *const *gpus = gpu_all(out->err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        char file[256], text[64];
        list_model_profiles(out, gpus[i]);
        if (gpus[i]->profile != NULL) {
            snprintf(file, sizeof file, "kernels/profiles/%s", gpus[i]->profile);
            table_add(out->rows, "s s s s", gpus[i]->name, "all", file,
                      profile_words(gpus[i], text, sizeof text, out->err));
        }
    }
}

static void list_workloads(struct listing *out) {
    out->rows = table_open("name|requests|provenance|note");
    char **names = workload_names(out->err);
    for (size_t i = 0; names[i] != NULL; i++) {
        struct workload *workload = NULL;
        struct workload_options options = {.seed = 1};
        if (workload_open(names[i], &options, &workload, out->err) == 0) {
            table_add(out->rows, "s i s s", names[i], (int64_t)workload_requests(workload),
                      workload_provenance(workload), workload_note(workload));
            workload_close(workload);
        }
        free(names[i]);
    }
    free(names);
}

static void list_arrivals(struct listing *out) {
    out->rows = table_open(name_doc);
    out->params = table_open(param_columns);
    for (size_t i = 0; process_at(i) != NULL; i++) {
        const struct process *process = process_at(i);
        table_add(out->rows, "s s", process->name, process->doc);
        add_params(out->params, process->name, "workload.arrivals.", process->params,
                   process->n_params);
    }
}

static void list_lengths(struct listing *out) {
    out->rows = table_open(name_doc);
    out->params = table_open(param_columns);
    for (size_t i = 0; length_model_at(i) != NULL; i++) {
        const struct length_model *model = length_model_at(i);
        char name[64];
        snprintf(name, sizeof name, "%s%s", model->name, model->has_set ? ":SET" : "");
        table_add(out->rows, "s s", name, model->doc);
        /* Outputs take the same keys after workload.output. */
        add_params(out->params, model->name, "workload.input.", model->params, model->n_params);
    }
}

static void list_marks(struct listing *out) {
    out->rows = table_open("mark|name|doc");
    out->params = table_open(param_columns);
    for (size_t i = 0; mark_model_at(i) != NULL; i++) {
        const struct mark_model *model = mark_model_at(i);
        char prefix[64];
        snprintf(prefix, sizeof prefix, "workload.%s.", mark_words[model->mark]);
        table_add(out->rows, "s s s", mark_words[model->mark], model->name, model->doc);
        add_params(out->params, model->name, prefix, model->params, model->n_params);
    }
}

static void list_traces(struct listing *out) {
    out->rows = table_open("file|format|arrivals");
    char **found = data_files("traces/samples", 0, ".csv", out->err);
    for (size_t i = 0; found[i] != NULL; i++) {
        struct trace *trace = NULL;
        if (trace_open(found[i], &trace, out->err) == 0) {
            table_add(out->rows, "s s s", found[i], trace_format(trace),
                      trace_has_times(trace) ? "yes" : "lengths only");
            trace_close(trace);
        }
    }
    names_free(found);
}

static void list_experiments(struct listing *out) {
    out->rows = table_open("name|title");
    char **found = data_files("experiments/study/studies", 1, ".ini", out->err);
    for (size_t i = 0; found[i] != NULL; i++) {
        struct config config;
        if (config_read(found[i], &config, out->err) == 0) {
            const struct config_entry *title = config_find(&config, "figure", "title");
            char name[128];
            const char *base = strrchr(found[i], '/') + 1;
            snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
            table_add(out->rows, "s s", name, title != NULL ? title->value : NULL);
            config_fini(&config);
        }
    }
    names_free(found);
}

static int add_process(struct listing *out, const char *name, const char *shape) {
    struct decode_process process;
    char text[PROVENANCE_SOURCE_CHARS + 16];
    if (decode_process_find(name, &process, out->err) != 0) {
        return err_status(out->err);
    }
    snprintf(text, sizeof text, "%s: %s", provenance_words[process.from.kind], process.from.source);
    table_add(out->rows, "s s s", name, shape, text);
    return 0;
}

/* Decode processes: rows of experiments/study/locations.csv, and sections of
 * experiments/study/decode.ini that have a location. */
static void list_confidences(struct listing *out) {
    out->rows = table_open("name|shape|where its location is from");
    struct locations locations;
    struct config config;
    char path[1024], shapes[1024];
    int status = locations_open(data_path(path, sizeof path, "experiments/study/locations.csv"),
                                &locations, out->err);
    if (status != 0) {
        return;
    }
    for (size_t i = 0; status == 0 && i < locations.n; i++) {
        status = add_process(out, locations.rows[i].process, locations.rows[i].shape);
    }
    locations_close(&locations);
    if (status != 0 || config_read(data_path(shapes, sizeof shapes, "experiments/study/decode.ini"),
                                   &config, out->err) != 0) {
        return;
    }
    const struct config_entry *entry = NULL;
    while (status == 0 && (entry = decode_process_next(&config, entry)) != NULL) {
        const struct config_entry *shape = config_find(&config, entry->section, "shape");
        status = add_process(out, entry->section, shape != NULL ? shape->value : NULL);
    }
    config_fini(&config);
}

static void list_fields(struct listing *out) {
    out->rows = table_open("field|unit|label|meaning");
    for (const struct column_group *g = column_groups; g->title != NULL; g++) {
        for (const struct column *c = g->columns; c->name != NULL; c++) {
            if (field_is(c)) {
                table_add(out->rows, "s s s s", c->name, c->unit, c->label, c->doc);
            }
        }
    }
}

/* A simulation has all of them. */
static void list_features(struct listing *out) {
    out->rows = table_open("feature|cpu|cuda|several GPUs|why not|instead");
    for (const struct feature *f = feature_table; f->name != NULL; f++) {
        table_add(out->rows, "s s s s s s", f->name, feature_runs(f, WHERE_CPU) ? "yes" : "no",
                  feature_runs(f, WHERE_CUDA) ? "yes" : "no",
                  feature_runs(f, WHERE_CUDA | WHERE_RANKS) ? "yes" : "no", f->why, f->instead);
    }
}

static void list_collectives(struct listing *out) {
    out->rows = collectives_table(out->err);
}

static void list_cautions(struct listing *out) {
    out->rows = table_open("caution|meaning");
    for (int code = 0; code < WARNING_CODE_COUNT; code++) {
        table_add(out->rows, "s s", warning_words[code], warning_meanings[code]);
    }
}

static const struct section {
    const char *name;
    void (*list)(struct listing *out);
    enum policy_kind kind; /* of policies */
    const char *what;
} sections[] = {
    {"systems", list_systems, 0, "everything that serves, under one name: --system, --systems"},
    {"schedulers", list_policies, POLICY_SCHEDULER,
     "which requests take part in a step: --set scheduler=NAME"},
    {"caches", list_policies, POLICY_CACHE,
     "which positions a step runs, and what it keeps: --set cache=NAME"},
    {"decoders", list_policies, POLICY_DECODER, "which tokens a pass commits: --set decoder=NAME"},
    {"routers", list_policies, POLICY_ROUTER, "which replica a request goes to: --router"},
    {"planners", list_planners, 0, "where the tensors of a step lie in memory: --set planner=NAME"},
    {"runtimes", list_runtimes, 0,
     "what executes steps, and what it costs the host: --set runtime=NAME"},
    {"models", list_models, 0, "--model NAME, an INI file or a config.json"},
    {"gpus", list_gpus, 0, "--gpu NAME, or an INI file"},
    {"profiles", list_profiles, 0, "measured times of operators, by GPU"},
    {"workloads", list_workloads, 0, "what arrives: --workload NAME, or a trace"},
    {"arrivals", list_arrivals, 0, "when requests arrive: --arrivals NAME"},
    {"confidences", list_confidences, 0,
     "how sure a model is, for simulated decisions: --set confidence=NAME"},
    {"lengths", list_lengths, 0,
     "distributions of prompts and outputs: workload.input, workload.output"},
    {"marks", list_marks, 0, "tenants, priorities and prefixes of generated requests"},
    {"traces", list_traces, 0, "samples of recorded traffic that are shipped"},
    {"experiments", list_experiments, 0, "figures of papers and of ours: unmask figure NAME"},
    {"hosts", list_hosts, 0, "the machine that a GPU is in: --host NAME"},
    {"fields", list_fields, 0, "numbers of a run, with units: plots, --where"},
    {"collectives", list_collectives, 0, "what GPUs exchange, and what it takes"},
    {"features", list_features, 0, "what runs live, on the CPU and on GPUs, and what does not"},
    {"cautions", list_cautions, 0, "what could mislead in a result: the last line, column note"},
};
enum { N_SECTIONS = sizeof sections / sizeof sections[0] };

static int find_section(const char *name, size_t *out, struct err *err) {
    const char *names[N_SECTIONS + 1] = {NULL};
    for (*out = 0; *out < N_SECTIONS; (*out)++) {
        if (strcmp(sections[*out].name, name) == 0) {
            return 0;
        }
        names[*out] = sections[*out].name;
    }
    char hint[NAME_HINT_CHARS];
    return err_usage(err,
                     "there is nothing to list under '%s'%s; `unmask list --help` names "
                     "everything",
                     name, name_hint(name, names, hint));
}

/* Into `all`, or printed where that is NULL. */
static int list(const struct section *section, json_t *all, struct err *err) {
    struct listing listing = {.kind = section->kind, .err = err};
    section->list(&listing);
    if (err->kind == ERR_NONE && all != NULL) {
        json_t *object = json_object();
        json_object_set_new(object, "rows", table_json(listing.rows));
        if (listing.params != NULL) {
            json_object_set_new(object, "parameters", table_json(listing.params));
        }
        json_object_set_new(all, section->name, object);
    } else if (err->kind == ERR_NONE) {
        table_print(listing.rows, stdout);
        printf("%s%s", listing.note != NULL ? "\n" : "", listing.note != NULL ? listing.note : "");
        if (listing.params != NULL) {
            printf("\nparameters, set with --set KEY=VALUE\n");
            table_print(listing.params, stdout);
        }
    }
    table_close(listing.rows);
    table_close(listing.params);
    return (int)err->kind;
}

/* How many there are of each kind. */
static int print_overview(struct err *err) {
    struct table *table = table_open("kind|names|what");
    for (size_t i = 0; err->kind == ERR_NONE && i < N_SECTIONS; i++) {
        struct listing listing = {.kind = sections[i].kind, .err = err};
        sections[i].list(&listing);
        json_t *rows = err->kind == ERR_NONE ? table_json(listing.rows) : NULL;
        table_add(table, "s i s", sections[i].name, (int64_t)json_array_size(rows),
                  sections[i].what);
        json_decref(rows);
        table_close(listing.rows);
        table_close(listing.params);
    }
    if (err->kind == ERR_NONE) {
        table_print(table, stdout);
        printf("\n`unmask list KIND` names them, with their parameters: unmask list systems\n");
    }
    table_close(table);
    return (int)err->kind;
}

static int run(const struct options *options, struct err *err) {
    size_t first = 0, last = N_SECTIONS - 1;
    if (options->n_words == 1) {
        if (find_section(options->words[0], &first, err) != 0) {
            return (int)err->kind;
        }
        last = first;
    }
    json_t *all = options_has(options, "json") ? json_object() : NULL;
    if (all == NULL && options->n_words == 0) {
        return print_overview(err);
    }
    int status = 0;
    for (size_t i = first; status == 0 && i <= last; i++) {
        status = list(&sections[i], all, err);
    }
    if (status == 0 && all != NULL) {
        return cmd_print_json(all, err);
    }
    json_decref(all);
    return status;
}

const struct command command_list = {
    .name = "list",
    .words = "[KIND]",
    .doc = "kinds of things that have names; with a KIND their names and parameters",
    .more =
        "KIND: systems schedulers caches decoders routers planners runtimes models gpus profiles\n"
        "workloads arrivals confidences lengths marks traces experiments hosts fields\n"
        "collectives features cautions. --json without a KIND has everything.",
    .options = options_of_list,
    .max_words = 1,
    .run = run,
};
