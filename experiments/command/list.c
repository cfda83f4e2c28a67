/* unmask list: everything that can be named, with its parameters. */
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/cli/cmd.h"
#include "experiments/cli/table.h"
#include "sim/base/config.h"
#include "sim/base/datadir.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/cost/runtime.h"
#include "sim/cost/transfer.h"
#include "sim/memory/placement.h"
#include "sim/policy/registry.h"
#include "sim/system/system.h"
#include "traces/generate.h"
#include "traces/lengths.h"
#include "traces/reader.h"
#include "traces/workload.h"

static const struct option *const options_of_list[] = {json_options, NULL};

/* ---- parameters ---- */

static const char *const param_columns[] = {"of", "key", "unit", "range", "initial", "meaning"};
enum { N_PARAM_COLUMNS = sizeof param_columns / sizeof param_columns[0] };

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
        table_text(table, of);
        table_text(table, key);
        table_text(table, params[i].unit);
        table_text(table, range_text(&params[i], range, sizeof range));
        table_text(table, params[i].initial);
        table_text(table, params[i].doc);
    }
}

/* ---- the sections: `rows` always, `params` where there are any ---- */

struct listing {
    struct table *rows, *params;
    struct err *err;
};

static const char *const name_doc[] = {"name", "what"};

static int list_system(void *state, const char *name, const char *doc) {
    struct listing *out = state;
    table_text(out->rows, name);
    table_text(out->rows, doc);
    return 0;
}

static void list_systems(struct listing *out) {
    out->rows = table_open(name_doc, 2);
    (void)system_list(list_system, out, out->err);
    out->params = table_open(param_columns, N_PARAM_COLUMNS);
    add_params(out->params, "every system", "", system_params, system_n_params);
}

static void list_policies(struct listing *out, enum policy_kind kind) {
    out->rows = table_open(name_doc, 2);
    out->params = table_open(param_columns, N_PARAM_COLUMNS);
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", policy_kind_names[kind]);
    for (size_t i = 0; i < policy_count(kind); i++) {
        const struct policy *policy = policy_at(kind, i);
        table_text(out->rows, policy->name);
        table_text(out->rows, policy->doc);
        add_params(out->params, policy->name, prefix, policy->params, policy->n_params);
    }
}

static void list_schedulers(struct listing *out) {
    list_policies(out, POLICY_SCHEDULER);
}

static void list_caches(struct listing *out) {
    list_policies(out, POLICY_CACHE);
}

static void list_decoders(struct listing *out) {
    list_policies(out, POLICY_DECODER);
}

static void list_routers(struct listing *out) {
    list_policies(out, POLICY_ROUTER);
}

static void list_planners(struct listing *out) {
    out->rows = table_open(name_doc, 2);
    for (size_t i = 0; i < planner_table_size; i++) {
        table_text(out->rows, planner_table[i].name);
        table_text(out->rows, planner_table[i].doc);
    }
}

static void list_runtimes(struct listing *out) {
    static const char *const columns[] = {"name", "what", "source"};
    out->rows = table_open(columns, 3);
    const struct runtime_preset *const *runtimes = runtime_all(out->err);
    for (size_t i = 0; runtimes != NULL && runtimes[i] != NULL; i++) {
        table_text(out->rows, runtimes[i]->name);
        table_text(out->rows, runtimes[i]->doc);
        table_text(out->rows, runtimes[i]->source);
    }
    out->params = table_open(param_columns, N_PARAM_COLUMNS);
    add_params(out->params, "every runtime", "runtime.", runtime_params, runtime_n_params);
}

static int list_host(void *state, const struct host *host, const char *doc) {
    struct listing *out = state;
    table_text(out->rows, host->name);
    table_number(out->rows, host->factor, "%.4g");
    table_text(out->rows, provenance_words[host->provenance.kind]);
    table_text(out->rows, host->gpus[0] != '\0' ? host->gpus : NULL);
    table_text(out->rows, doc);
    table_text(out->rows, host->provenance.source);
    return 0;
}

static void list_hosts(struct listing *out) {
    static const char *const columns[] = {"name", "factor", "kind", "gpu", "what", "source"};
    out->rows = table_open(columns, sizeof columns / sizeof columns[0]);
    (void)host_list(list_host, out, out->err);
    out->params = table_open(param_columns, N_PARAM_COLUMNS);
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
    table_text(rows, m->experts > 0 ? experts : NULL);
    table_text(rows, m->experts > 0 ? router : NULL);
}

static void list_models(struct listing *out) {
    static const char *const columns[] = {"name",     "title",   "parameters", "weights",
                                          "KV/token", "rotated", "positions",  "attention",
                                          "block",    "experts", "router",     "source"};
    out->rows = table_open(columns, sizeof columns / sizeof columns[0]);
    const struct model *const *models = model_all(out->err);
    for (size_t i = 0; models != NULL && models[i] != NULL; i++) {
        const struct model *model = models[i];
        double weights = (double)model_weights_bytes(model);
        double kv = (double)model_kv_bytes_per_token(model);
        double parameters = (double)model_parameters(model);
        char text[32];
        table_text(out->rows, model->name);
        table_text(out->rows, model->title);
        snprintf(text, sizeof text, "%.2f B", parameters * 1e-9);
        table_shown(out->rows, parameters, text);
        table_shown(out->rows, weights, num_format_bytes(text, sizeof text, weights));
        table_shown(out->rows, kv, num_format_bytes(text, sizeof text, kv));
        snprintf(text, sizeof text, "%" PRIu32 " of %" PRIu32, model_rotary_dim(model),
                 model->head_dim);
        table_text(out->rows, text);
        table_whole(out->rows, model->max_positions);
        table_text(out->rows, attention_mask_names[model->mask]);
        table_whole(out->rows, model->block_tokens);
        add_mixture(out->rows, model);
        table_text(out->rows, model->source);
    }
}

/* "transferred from h100 (products off by 15 %, p90 36 %, from h100 to a100-80g)". */
static const char *transfer_words(const struct gpu *gpu, char *text, size_t size) {
    struct err err = {0};
    struct transfer_check check;
    const struct gpu *donor = gpu_find(gpu->donor, &err);
    size_t used = (size_t)snprintf(text, size, "transferred from %s", donor->name);
    if (transfer_check_nearest(donor, gpu, &check, &err) == 0 && check.n > 0) {
        const struct profile_errors *products = &check.by_class[TRANSFER_LARGE_GEMM];
        snprintf(text + used, size - used, " (products off by %.0f %%, p90 %.0f %%, from %s to %s)",
                 100 * products->median_abs, 100 * products->p90_abs, check.from->name,
                 check.to->name);
    }
    return text;
}

/* The kind of a profile without reading the whole of it; `text` holds "" when that fails. */
static const char *profile_words(const struct gpu *gpu, char *text, size_t size) {
    if (gpu->profile == NULL && gpu->donor == NULL) {
        return "roofline";
    }
    if (gpu->profile == NULL) {
        return transfer_words(gpu, text, size);
    }
    char path[4096];
    return profile_kind_of_file(gpu_profile_path(gpu, path, sizeof path), text, size);
}

static void list_gpus(struct listing *out) {
    static const char *const columns[] = {"name", "title", "memory", "TFLOP/s",
                                          "GB/s", "SMs",   "prices", "source"};
    out->rows = table_open(columns, sizeof columns / sizeof columns[0]);
    const struct gpu *const *gpus = gpu_all(out->err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        const struct gpu *gpu = gpus[i];
        char text[160];
        table_text(out->rows, gpu->name);
        table_text(out->rows, gpu->title);
        table_shown(out->rows, (double)gpu->memory_bytes,
                    num_format_bytes(text, sizeof text, (double)gpu->memory_bytes));
        table_number(out->rows, gpu->peak_bf16_flops * 1e-12, "%.4g");
        table_number(out->rows, gpu->peak_bandwidth * 1e-9, "%.4g");
        table_whole(out->rows, gpu->sms);
        table_text(out->rows, profile_words(gpu, text, sizeof text));
        table_text(out->rows, gpu->source);
    }
}

static void list_profiles(struct listing *out) {
    static const char *const columns[] = {"gpu", "file", "kind"};
    out->rows = table_open(columns, 3);
    const struct gpu *const *gpus = gpu_all(out->err);
    for (size_t i = 0; gpus != NULL && gpus[i] != NULL; i++) {
        char file[256], text[64];
        if (gpus[i]->profile != NULL) {
            snprintf(file, sizeof file, "kernels/profiles/%s", gpus[i]->profile);
            table_text(out->rows, gpus[i]->name);
            table_text(out->rows, file);
            table_text(out->rows, profile_words(gpus[i], text, sizeof text));
        }
    }
}

static void list_workloads(struct listing *out) {
    static const char *const columns[] = {"name", "requests", "provenance", "note"};
    out->rows = table_open(columns, 4);
    char **names = workload_names();
    for (size_t i = 0; names[i] != NULL; i++) {
        struct workload *workload = NULL;
        struct workload_options options = {.seed = 1};
        if (workload_open(names[i], &options, &workload, out->err) == 0) {
            table_text(out->rows, names[i]);
            table_whole(out->rows, (int64_t)workload_requests(workload));
            table_text(out->rows, workload_provenance(workload));
            table_text(out->rows, workload_note(workload));
            workload_close(workload);
        }
        free(names[i]);
    }
    free(names);
}

static void list_arrivals(struct listing *out) {
    out->rows = table_open(name_doc, 2);
    out->params = table_open(param_columns, N_PARAM_COLUMNS);
    for (size_t i = 0; process_at(i) != NULL; i++) {
        const struct process *process = process_at(i);
        table_text(out->rows, process->name);
        table_text(out->rows, process->doc);
        add_params(out->params, process->name, "workload.arrivals.", process->params,
                   process->n_params);
    }
}

static void list_lengths(struct listing *out) {
    out->rows = table_open(name_doc, 2);
    out->params = table_open(param_columns, N_PARAM_COLUMNS);
    for (size_t i = 0; length_model_at(i) != NULL; i++) {
        const struct length_model *model = length_model_at(i);
        char name[64];
        snprintf(name, sizeof name, "%s%s", model->name, model->has_set ? ":SET" : "");
        table_text(out->rows, name);
        table_text(out->rows, model->doc);
        /* Outputs take the same keys after workload.output. */
        add_params(out->params, model->name, "workload.input.", model->params, model->n_params);
    }
}

static void list_traces(struct listing *out) {
    static const char *const columns[] = {"file", "format", "arrivals"};
    out->rows = table_open(columns, 3);
    char pattern[1024];
    glob_t found = {0};
    if (glob(data_path(pattern, sizeof pattern, "traces/samples/*.{csv,jsonl}"), GLOB_BRACE, NULL,
             &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            struct trace *trace = NULL;
            if (trace_open(found.gl_pathv[i], &trace, out->err) == 0) {
                table_text(out->rows, found.gl_pathv[i]);
                table_text(out->rows, trace_format(trace));
                table_text(out->rows, trace_has_times(trace) ? "yes" : "lengths only");
                trace_close(trace);
            }
        }
    }
    globfree(&found);
}

static void list_experiments(struct listing *out) {
    static const char *const columns[] = {"name", "title"};
    out->rows = table_open(columns, 2);
    char pattern[1024];
    glob_t found = {0};
    if (glob(data_path(pattern, sizeof pattern, "experiments/studies/*/*.ini"), 0, NULL, &found) ==
        0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            struct config config;
            if (config_read(found.gl_pathv[i], &config, out->err) == 0) {
                const struct config_entry *title = config_find(&config, "figure", "title");
                char name[128];
                const char *base = strrchr(found.gl_pathv[i], '/') + 1;
                snprintf(name, sizeof name, "%.*s", (int)strcspn(base, "."), base);
                table_text(out->rows, name);
                table_text(out->rows, title != NULL ? title->value : NULL);
                config_fini(&config);
            }
        }
    }
    globfree(&found);
}

/* Decode processes: sections of experiments/decode.ini that have a location. */
static void list_confidences(struct listing *out) {
    static const char *const columns[] = {"name", "shape", "where its location is from"};
    out->rows = table_open(columns, 3);
    struct config config;
    char path[1024];
    if (config_read(data_path(path, sizeof path, "experiments/decode.ini"), &config, out->err) !=
        0) {
        return;
    }
    for (size_t i = 0; i < config.n_entries; i++) {
        const char *section = config.entries[i].section;
        if (strcmp(config.entries[i].key, "location") != 0) {
            continue;
        }
        const struct config_entry *shape = config_find(&config, section, "shape");
        struct decode_process process;
        if (decode_process_find(section, &process, out->err) != 0) {
            break;
        }
        table_text(out->rows, section);
        table_text(out->rows, shape != NULL ? shape->value : NULL);
        char text[PROVENANCE_SOURCE_CHARS + 16];
        snprintf(text, sizeof text, "%s: %s", provenance_words[process.from.kind],
                 process.from.source);
        table_text(out->rows, text);
    }
    config_fini(&config);
}

static const struct section {
    const char *name;
    void (*list)(struct listing *out);
} sections[] = {
    {"systems", list_systems},         {"schedulers", list_schedulers}, {"caches", list_caches},
    {"decoders", list_decoders},       {"routers", list_routers},       {"planners", list_planners},
    {"runtimes", list_runtimes},       {"models", list_models},         {"gpus", list_gpus},
    {"profiles", list_profiles},       {"workloads", list_workloads},   {"arrivals", list_arrivals},
    {"confidences", list_confidences}, {"lengths", list_lengths},       {"traces", list_traces},
    {"experiments", list_experiments}, {"hosts", list_hosts},
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
    const char *near = name_nearest(name, names);
    return err_usage(err, "there is nothing to list under '%s'%s%s%s", name,
                     near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                     near != NULL ? "'?" : "; `unmask list --help` names everything");
}

/* Parameters are printed when one section was asked for, and always in JSON. */
static int list(const struct section *section, bool is_only, json_t *all, struct err *err) {
    struct listing listing = {.err = err};
    section->list(&listing);
    if (err->kind == ERR_NONE && all != NULL) {
        json_t *object = json_object();
        json_object_set_new(object, "rows", table_json(listing.rows));
        if (listing.params != NULL) {
            json_object_set_new(object, "parameters", table_json(listing.params));
        }
        json_object_set_new(all, section->name, object);
    } else if (err->kind == ERR_NONE) {
        if (!is_only) {
            printf("%s\n", section->name);
        }
        table_print(listing.rows, stdout);
        if (is_only && listing.params != NULL) {
            printf("\nparameters, set with --set KEY=VALUE\n");
            table_print(listing.params, stdout);
        }
    }
    table_close(listing.rows);
    table_close(listing.params);
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
    int status = 0;
    for (size_t i = first; status == 0 && i <= last; i++) {
        if (all == NULL && i > first) {
            printf("\n");
        }
        status = list(&sections[i], first == last, all, err);
    }
    if (status == 0 && all != NULL) {
        return cmd_print_json(all, err);
    }
    json_decref(all);
    return status;
}

const struct command command_list = {
    .name = "list",
    .words = "[WHAT]",
    .doc = "everything that can be named, and with WHAT its parameters too",
    .more =
        "WHAT: systems schedulers caches decoders routers planners runtimes models gpus profiles\n"
        "workloads arrivals confidences lengths traces experiments",
    .options = options_of_list,
    .max_words = 1,
    .run = run,
};
