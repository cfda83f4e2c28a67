/* unmask calibrate: measure the operators of a model on a device and write its profile. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/calibrate/calibrate.h"
#include "engine/calibrate/calibration_log.h"
#include "engine/calibrate/describe.h"
#include "engine/device/neighbours.h"
#include "engine/device/surroundings.h"
#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/interrupt.h"
#include "experiments/run/cli/progress.h"
#include "sim/base/monotonic.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/base/output.h"
#include "sim/base/system.h"
#include "sim/model/ranks.h"

static const struct option own_options[] = {
    {"backend", "NAME", "cpu or cuda", false},
    {"model", "NAME",
     "the model (list models), an INI file or a Hugging Face folder; default: that of --weights, "
     "or the system's own",
     false},
    {"gpu", "NAME", "what the device is (list gpus; default: found by its name)", false},
    {"out", "FILE", "the profile, such as h200/llada-8b.csv", false},
    {"weights", "SOURCE", "a checkpoint's folder or random:SEED (default: random:1)", false},
    {"system", "NAME",
     "whose operators are measured and whose pages are counted (default: one that serves the "
     "model)",
     false},
    {"tensor-parallel", "N", "devices of this machine that hold the model together (default: 1)",
     false},
    {"expert-parallel", NULL, "they divide a mixture's experts instead of every expert's width",
     false},
    {"set", "storage.KEY=TYPE",
     "measure products and attention of other types: storage.weights, storage.activations, "
     "storage.head and storage.cache (default: all as the back end computes)",
     true},
    {"max-tokens", "N", "of the largest step (default: 16384, on the CPU 1024)", false},
    {"minutes", "M",
     "how long to measure (default: 6); less time means fewer rounds of operators, one at least, "
     "then fewer of whole steps, then fewer steps",
     false},
    {"clocks", NULL,
     "let the card rest between measurements and hold steps, for its clock and power (where it "
     "counts its energy)",
     false},
    {"quick", NULL, "few points, short measurements", false},
    {"replace", NULL, "measure anew what FILE holds already", false},
    {"shared", NULL,
     "keep it in FILE even if others computed on the device meanwhile, it was slowed or this "
     "program stopped; else it is set aside in FILE.shared",
     false},
    {"library", "PATH", "of the CUDA back end, libunmask_cuda.so", false},
    {"device", "N", "which of the machine's GPUs, counted from 0 (default: 0)", false},
    {"describe", NULL,
     "instead: write what the device is as the file of a GPU, for cards that list gpus has not",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_calibrate[] = {own_options, json_options,
                                                            format_option, NULL};

/* What the command line asks for, and what is open while it runs. */
struct asked_calibration {
    enum backend backend;
    const char *path, *weights_source;
    const char *model; /* NULL: the system's own */
    char config_path[256];
    int32_t device_number;
    uint64_t max_tokens, n_ranks;
    double minutes;
    struct engine_device device;
    struct system *system;
    struct weights weights;
};

/* ---- asking ---- */

static int check_path(const struct options *options, const char *path, struct err *err) {
    int status = output_may_replace(path, PROFILE_FILE_HEAD, "a profile", err);
    struct stat file;
    bool holds_one = stat(path, &file) == 0 && S_ISREG(file.st_mode) && file.st_size > 0;
    if (status == 0 && holds_one && !options_has(options, "replace")) {
        status = err_usage(err, "%s holds a profile already; --replace measures it anew", path);
    }
    if (status == 0) {
        char log[CALIBRATION_LOG_PATH_CHARS];
        status = output_may_replace(calibration_log_path(path, log), CALIBRATION_LOG_HEAD,
                                    "the log of a calibration", err);
    }
    return status;
}

/* The folders that lead to it, before time is spent on drawing a model. */
static int make_folders(const char *path, struct err *err) {
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
            return err_world(err, "cannot make the folder '%s' of --out: %s", folder,
                             strerror(errno));
        }
        *slash = '/';
    }
    char *end = strrchr(folder, '/');
    snprintf(end != NULL ? end + 1 : folder, 2, "%s", end != NULL ? "" : ".");
    return access(folder, W_OK) == 0
               ? 0
               : err_world(err, "cannot write to the folder '%s' of --out: %s", folder,
                           strerror(errno));
}

static int read_asked(const struct options *options, struct asked_calibration *asked,
                      struct err *err) {
    const char *backend = options_text(options, "backend");
    int kind = backend != NULL ? name_find(backend_names, backend) : BACKEND_SIM;
    *asked = (struct asked_calibration){.path = options_text(options, "out"),
                                        .weights_source = options_text(options, "weights"),
                                        .n_ranks = 1,
                                        .minutes = 6};
    if (asked->weights_source == NULL) {
        asked->weights_source = "random:1";
    }
    if (backend == NULL || asked->path == NULL) {
        return err_usage(err, "calibrate: --%s is missing", backend == NULL ? "backend" : "out");
    }
    if (kind <= BACKEND_SIM) {
        return err_usage(err, "unknown device '%s': there are cpu and cuda", backend);
    }
    asked->backend = (enum backend)kind;
    asked->max_tokens = kind == BACKEND_CPU ? 1024 : 16384;
    int status = options_whole(options, "max-tokens", 1, 1 << 20, &asked->max_tokens, err);
    status = status == 0
                 ? options_whole(options, "tensor-parallel", 1, MAX_RANKS, &asked->n_ranks, err)
                 : status;
    status = status == 0 ? options_positive(options, "minutes", &asked->minutes, err) : status;
    status = status == 0 ? asked_device(options, &asked->device_number, err) : status;
    if (status == 0 && asked->device_number > 0 &&
        (asked->backend != BACKEND_CUDA || asked->n_ranks > 1)) {
        status = err_usage(err, "calibrate: --device is for one GPU of the cuda back end");
    }
    status = status == 0 ? check_path(options, asked->path, err) : status;
    return status == 0 ? make_folders(asked->path, err) : status;
}

/* The GPU that was asked for, which must be the one in this machine; without --gpu, that one. */
static int name_gpu(const struct options *options, const struct asked_calibration *asked,
                    const char **gpu, struct err *err) {
    const struct device_facts *facts = &asked->device.facts;
    *gpu = options_text(options, "gpu");
    if (*gpu == NULL) {
        return engine_find_gpu(facts, gpu, err);
    }
    const struct gpu *found = gpu_find(*gpu, err);
    struct err other = {0};
    if (found == NULL) {
        return err_status(err);
    }
    if (engine_check_device(facts, found, &other) != 0) {
        return err_usage(err, "%s: leave --gpu out, or describe the card in a file", other.text);
    }
    *gpu = found->path != NULL ? found->path : found->name;
    return 0;
}

/* The system that was asked for; without --system, one that serves the model. */
static int name_system(const struct options *options, struct asked_calibration *asked,
                       const char **system, struct err *err) {
    const char *name = options_text(options, "model");
    const struct model *model =
        name != NULL ? model_find(name, err)
                     : asked_model_of_weights(asked->weights_source, asked->config_path, err);
    if (err->kind != ERR_NONE) {
        return err_status(err);
    }
    asked->model = name != NULL || model == NULL ? name
                   : model->path != NULL         ? model->path
                                                 : model->name;
    *system = options_text(options, "system");
    if (*system == NULL) {
        *system = asked_system_for(model);
    }
    return 0;
}

/* Number types that are not the back end's own. */
enum { OWN_SETTINGS = 3, MOST_TYPES = 4 };

static int read_types(const struct options *options, struct setting *settings, uint32_t *n,
                      struct err *err) {
    const char *sets[OPTIONS_MOST_GIVEN];
    const size_t n_sets = options_values(options, "set", sets);
    for (size_t i = 0; i < n_sets; i++) {
        const char *equals = strchr(sets[i], '=');
        struct setting *setting = &settings[*n];
        if (equals == NULL || name_behind(sets[i], "storage.") == NULL || i == MOST_TYPES ||
            equals - sets[i] >= (ptrdiff_t)sizeof setting->key) {
            return err_usage(err,
                             "calibrate: --set '%s' is no storage.KEY=TYPE, of which there may "
                             "be %d",
                             sets[i], MOST_TYPES);
        }
        *setting = (struct setting){.place = "--set"};
        snprintf(setting->key, sizeof setting->key, "%.*s", (int)(equals - sets[i]), sets[i]);
        snprintf(setting->value, sizeof setting->value, "%s", equals + 1);
        ++*n;
    }
    return 0;
}

static int open_system(const struct options *options, struct asked_calibration *asked,
                       struct err *err) {
    const char *gpu, *system;
    int status = name_gpu(options, asked, &gpu, err);
    status = status == 0 ? name_system(options, asked, &system, err) : status;
    if (status != 0) {
        return status;
    }
    struct setting settings[OWN_SETTINGS + MOST_TYPES] = {
        {.key = "storage.weights", .place = "--backend"},
        {.key = "tensor_parallel", .place = "--tensor-parallel"},
        {.key = "expert_parallel", .place = "--expert-parallel"},
    };
    uint32_t n_settings = OWN_SETTINGS;
    status = read_types(options, settings, &n_settings, err);
    if (status != 0) {
        return status;
    }
    snprintf(settings[0].value, sizeof settings[0].value, "%s",
             number_words[engine_number(&asked->device)]);
    snprintf(settings[1].value, sizeof settings[1].value, "%" PRIu64, asked->n_ranks);
    snprintf(settings[2].value, sizeof settings[2].value, "%s",
             options_has(options, "expert-parallel") ? "on" : "off");
    const struct system_request request = {.system = system,
                                           .model = asked->model,
                                           .gpu = gpu,
                                           .overrides = settings,
                                           .n_overrides = n_settings,
                                           .roofline = true};
    return system_open(&request, &asked->system, err);
}

static int open_asked(const struct options *options, struct asked_calibration *asked,
                      struct err *err) {
    int status = engine_device_open_at(asked->backend, options_text(options, "library"),
                                       asked->device_number, &asked->device, err);
    if (status == 0 && options_has(options, "clocks") && !asked->device.counts_energy) {
        status = err_usage(err, "%s does not say what energy it takes: leave --clocks out",
                           asked->device.facts.name);
    }
    asked->device.counts_energy = options_has(options, "clocks");
    status = status == 0 ? open_system(options, asked, err) : status;
    return status == 0
               ? weights_open_stored(&asked->weights, &asked->device, asked->system->model,
                                     &asked->system->graph.storage, 0, asked->weights_source, err)
               : status;
}

static void close_asked(struct asked_calibration *asked) {
    if (asked->weights.block != NULL) {
        weights_close(&asked->weights);
    }
    system_close(asked->system);
    engine_device_close(&asked->device);
}

/* ---- telling ---- */

static void add_errors(struct table *table, const char *steps, const struct error_summary *errors) {
    if (errors->n > 0) {
        table_add(table, "s i %.2f %.2f", steps, (int64_t)errors->n, 100 * errors->median,
                  100 * errors->p95);
    }
}

/* How far off the prices of whole steps are. */
static void print_errors(const struct calibration_report *report) {
    struct table *table = table_open("steps|number|median error %|95th percentile %");
    add_errors(table, "fitted", &report->fitted);
    add_errors(table, "held out", &report->held_out);
    add_errors(table, "mixed", &report->mixed);
    table_print(table, stdout);
    table_close(table);
}

/* What a step takes beyond its operators. */
static void print_host(const struct calibration_report *report) {
    struct table *table = table_open("kind of step|beyond its operators|for each request");
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct host_fit *fit = &report->host[kind];
        if (fit->given) {
            char step[32], request[32];
            table_text(table, step_kind_names[kind]);
            table_shown(table, fit->step_ns, num_format_ns(step, sizeof step, fit->step_ns));
            table_shown(table, fit->request_ns,
                        num_format_ns(request, sizeof request, fit->request_ns));
        }
    }
    table_print(table, stdout);
    table_close(table);
}

static void print_report(const struct asked_calibration *asked,
                         const struct calibration_report *report) {
    char free_text[32], peak[32];
    const struct calibration_steps *steps = &report->steps;
    printf("%s on %s: %zu points, each measured in %" PRIu32 " round%s\n",
           asked->system->model->name, asked->device.facts.name, report->n_points, report->n_rounds,
           report->n_rounds == 1 ? "" : "s");
    if (asked->n_ranks > 1) {
        printf("ranks        %" PRIu64 " hold the model together: one's operators, what they "
               "exchange, and steps of all\n",
               asked->n_ranks);
    }
    printf("spread       %.2f %% (median), %.2f %% (95th percentile) between a point's repeats\n",
           100 * report->spread_median, 100 * report->spread_p95);
    printf("reference    a product of %" PRId64 "^3 took %.6g us at first, %.6g us (median): drift "
           "%.2f %%\n",
           report->reference_size, report->reference_first_us, report->reference_median_us,
           100 * report->reference_drift);
    printf("best rates   products at %.4g TFLOP/s, weights read at %.4g TB/s\n",
           report->best_flops * 1e-12, report->best_bandwidth * 1e-12);
    printf("steps        %zu of %zu whole steps were fitted to\n", report->n_fitted,
           report->n_fittable);
    printf(
        "correction   whole steps take %.3f of the sum of their operators; by operator and rows in "
        "the profile\n",
        report->correction.all);
    const struct power *power = &report->power;
    if (power_is_known(power)) {
        printf("power        %.4g W at rest, %.4g W more when busy%s, %.4g W more where "
               "operations bind, %.4g W at the limit; %.3g pJ an "
               "operation, %.3g pJ a byte, the clock lags %.3g ms%s; repeated steps off by %.2f "
               "%% (without clocks %.2f %%), "
               "their power by %.2f %%\n",
               power->idle_w, power->busy_w,
               report->power_errors.busy_is_assumed ? " (assumed)" : "", power->active_w,
               power->limit_w, power->flop_pj, power->byte_pj, power->lag_ms,
               report->power_errors.lag_is_assumed ? " (assumed)" : "",
               100 * report->power_errors.time, 100 * report->power_errors.unslowed,
               100 * report->power_errors.watts);
    }
    if (report->mixed.n > 0) {
        printf("mixed steps  take %.3f of the time of their parts run alone; by the prices %.3f\n",
               report->additivity_measured, report->additivity_predicted);
    }
    printf("memory       %s free after the weights, %s activations at most; %" PRId64
           " pages of %" PRId64 " tokens for %s\n",
           num_format_bytes(free_text, sizeof free_text, (double)report->free_bytes),
           num_format_bytes(peak, sizeof peak, (double)steps->activation_peak_bytes),
           report->kv_pages, report->kv_page_tokens, asked->system->name);
    printf("written to   %s\n\n", asked->path);
    print_host(report);
    printf("\n");
    print_errors(report);
}

static json_t *errors_json(const struct error_summary *errors) {
    return json_pack("{s:I, s:f, s:f}", "steps", (json_int_t)errors->n, "median", errors->median,
                     "p95", errors->p95);
}

static json_t *host_json(const struct calibration_report *report) {
    json_t *host = json_object();
    for (int kind = 0; kind < HOST_KIND_COUNT; kind++) {
        const struct host_fit *fit = &report->host[kind];
        if (fit->given) {
            json_object_set_new(
                host, step_kind_names[kind],
                json_pack("{s:f, s:f}", "step_ns", fit->step_ns, "request_ns", fit->request_ns));
        }
    }
    return host;
}

/* null where the device tells nothing. */
static json_t *power_json(const struct calibration_report *report) {
    const struct power *p = &report->power;
    const struct power_errors *errors = &report->power_errors;
    return !power_is_known(p)
               ? json_null()
               : json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:b, s:I, s:f, s:f, s:f}",
                           "idle_w", p->idle_w, "limit_w", p->limit_w, "busy_w", p->busy_w,
                           "active_w", p->active_w, "flop_pj", p->flop_pj, "byte_pj", p->byte_pj,
                           "exponent", p->exponent, "lag_ms", p->lag_ms, "lag_is_assumed",
                           (int)errors->lag_is_assumed, "busy_is_assumed",
                           (int)errors->busy_is_assumed, "steps", (json_int_t)errors->n,
                           "time_error", errors->time, "unslowed_error", errors->unslowed,
                           "watts_error", errors->watts);
}

/* Of a step that was repeated until its clock was stable; null: it was not. */
static json_t *held_json(const struct calibration_step *step) {
    const struct power_sample *held = &step->held;
    return held->watts > 0
               ? json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "first_ns",
                           held->first_ns, "settled_ns", held->settled_ns, "late_ns", held->late_ns,
                           "gap_ns", held->gap_ns, "compute_ns", step->compute_ns, "flops",
                           step->flops, "bytes", step->bytes, "watts", held->watts, "lag_ms",
                           held->lag_ms, "held_ns", held->held_ns)
               : json_null();
}

/* What each operator took in the step, all its executions together, and its price alone. */
static json_t *operators_json(const struct calibration_step *step) {
    json_t *array = json_array();
    for (uint32_t i = 0; i < step->n_operators; i++) {
        const struct step_operator *op = &step->operators[i];
        if (op->measured_ns > 0 || op->priced_ns > 0) {
            json_array_append_new(
                array, json_pack("{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:o*}", "operator",
                                 op_kind_names[op->kind], "size", op->key.text, "rows",
                                 (json_int_t)op->rows, "executions", (json_int_t)op->executions,
                                 "between_ns", op->between_ns, "measured_ns", op->measured_ns,
                                 "priced_ns", op->priced_ns, "experts_hit",
                                 op->experts_hit > 0 ? json_real(op->experts_hit) : NULL));
        }
    }
    return array;
}

static json_t *steps_json(const struct calibration_steps *steps) {
    json_t *array = json_array();
    for (size_t i = 0; i < steps->n; i++) {
        const struct calibration_step *step = &steps->list[i];
        json_t *sides = json_array();
        for (uint32_t side = 0; side < step->n_sides; side++) {
            const struct step_side *s = &step->sides[side];
            json_array_append_new(sides,
                                  json_pack("{s:s, s:I, s:I}", "kind", step_kind_names[s->kind],
                                            "requests", (json_int_t)s->n_requests, "canvas_tokens",
                                            (json_int_t)s->canvas_tokens));
        }
        json_array_append_new(
            array,
            json_pack("{s:o, s:b, s:b, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "sides",
                      sides, "fused_head", step->is_fused, "held_out", step->is_held_out, "wall_ns",
                      step->wall_ns, "device_ns", step->device_ns, "issued_ns", step->issued_ns,
                      "operators_ns", step->operators_ns, "predicted_ns", step->predicted_ns,
                      "flops", step->flops, "bytes", step->bytes, "held", held_json(step),
                      "operators", operators_json(step)));
    }
    return array;
}

static json_t *notes_json(const struct calibration_report *report) {
    json_t *notes = json_array();
    for (size_t i = 0; i < report->n_notes; i++) {
        json_array_append_new(notes, json_string(report->notes[i]));
    }
    return notes;
}

/* A number that is none would end the object here without a word. */
static void put_all(json_t *object, json_t *more) {
    ASSERT(more != NULL);
    json_object_update_new(object, more);
}

static int print_json(const struct asked_calibration *asked,
                      const struct calibration_report *report, struct err *err) {
    const struct calibration_steps *steps = &report->steps;
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f}", "file", asked->path,
        "model", asked->system->model->name, "ranks", (json_int_t)asked->n_ranks, "gpu",
        asked->system->gpu->name, "device", asked->device.facts.name, "points",
        (json_int_t)report->n_points, "rounds", (json_int_t)report->n_rounds, "spread_median",
        report->spread_median, "spread_p95", report->spread_p95, "reference_first_us",
        report->reference_first_us, "reference_median_us", report->reference_median_us,
        "reference_drift", report->reference_drift);
    put_all(object,
            json_pack("{s:f, s:f, s:I}", "estimated_s", report->estimated_ns * 1e-9, "took_s",
                      report->took_ns * 1e-9, "steps_left_out", (json_int_t)report->n_left_out));
    put_all(object, json_pack("{s:f, s:f, s:I, s:I, s:o}", "best_flops", report->best_flops,
                              "best_bandwidth", report->best_bandwidth, "steps_fitted",
                              (json_int_t)report->n_fitted, "steps_fittable",
                              (json_int_t)report->n_fittable, "beware", notes_json(report)));
    put_all(object,
            json_pack("{s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:I, s:I, s:I, s:o}", "host",
                      host_json(report), "power", power_json(report), "fitted",
                      errors_json(&report->fitted), "held_out", errors_json(&report->held_out),
                      "mixed", errors_json(&report->mixed), "additivity_measured",
                      report->additivity_measured, "additivity_predicted",
                      report->additivity_predicted, "free_bytes", (json_int_t)report->free_bytes,
                      "kv_pages", (json_int_t)report->kv_pages, "activation_peak_bytes",
                      (json_int_t)steps->activation_peak_bytes, "steps", steps_json(steps)));
    return cmd_print_json(object, err);
}

/* ---- the command ---- */

static int64_t clock_of_calibration(void *state) {
    (void)state;
    return monotonic_ns();
}

static void show_progress(void *state, uint64_t n_done, uint64_t n_total) {
    struct progress *progress = state;
    progress->n_total = n_total;
    progress_update(progress, n_done);
}

/* The progress line is drawn again after it. */
static void show_note(void *state, const char *sentence) {
    progress_end(state);
    fprintf(stderr, "unmask: %s\n", sentence);
}

static int measure(const struct options *options, struct asked_calibration *asked,
                   struct err *err) {
    static struct calibration_report report; /* large, and there is one */
    struct progress progress;
    progress_start(&progress, "measurements", 1);
    const struct calibration_request request = {.device = &asked->device,
                                                .weights = &asked->weights,
                                                .weights_source = asked->weights_source,
                                                .system = asked->system,
                                                .path = asked->path,
                                                .max_tokens = (int64_t)asked->max_tokens,
                                                .minutes = asked->minutes,
                                                .is_quick = options_has(options, "quick"),
                                                .now_ns = clock_of_calibration,
                                                .stop = interrupt_catch(),
                                                .progress = show_progress,
                                                .progress_state = &progress,
                                                .note = show_note,
                                                .note_state = &progress};
    static struct neighbours neighbours;
    const struct neighbours_request watched = {
        .facts = {&asked->device.facts}, .n_devices = 1, .nvml = NVML_LIBRARY, .root = ""};
    neighbours_begin(&neighbours, &watched);
    const int64_t begin_ns = monotonic_ns();
    int status = calibrate(&request, &report, err);
    if (asked->device.facts.capability == 0) { /* it computes all the time */
        const int64_t all = 0;
        neighbours_step(&neighbours, &all, 1, (double)(monotonic_ns() - begin_ns));
    }
    neighbours_end(&neighbours);
    double wall_s = progress_end(&progress);
    if (status == 0 && !options_has(options, "shared")) {
        status = neighbours_set_aside(&neighbours, asked->path, err);
    }
    if (status != 0) {
        return status;
    }
    fprintf(stderr, "unmask: calibrated in %.3g s\n", wall_s);
    if (options_has(options, "json")) {
        return print_json(asked, &report, err);
    }
    print_report(asked, &report);
    return 0;
}

/* ---- what the device is ---- */

static void say_beware(void *state, const char *sentence) {
    (void)state;
    fprintf(stderr, "unmask: %s\n", sentence);
}

static int write_description(const struct engine_device *device, const struct options *options,
                             struct err *err) {
    char date[16];
    struct output out;
    struct device_rates rates;
    const char *path = options_text(options, "out"), *known = NULL;
    struct err unknown = {0};
    engine_say_surroundings(device, "", say_beware, NULL);
    int status = describe_measure(device, &rates, err);
    if (status != 0) {
        return status;
    }
    if (engine_find_gpu(&device->facts, &known, &unknown) == 0) {
        fprintf(stderr, "unmask: this device is known: --gpu %s\n", known);
    }
    if (path == NULL) {
        describe_write(&device->facts, &rates, system_today(date), stdout);
        return 0;
    }
    if (output_open(path, &out, err) != 0) {
        return err_status(err);
    }
    describe_write(&device->facts, &rates, system_today(date), out.file);
    return output_close(&out, true, err);
}

/* Of all options these alone are read. */
static int check_described(const struct options *options, struct err *err) {
    static const char *const read[] = {"describe", "backend", "library", "device",
                                       "out",      "replace", NULL};
    for (size_t i = 0; i < options->n_given; i++) {
        if (name_find(read, options->given[i].option->name) < 0) {
            return err_usage(err, "calibrate --describe takes no --%s",
                             options->given[i].option->name);
        }
    }
    const char *path = options_text(options, "out");
    struct stat file;
    if (path != NULL && stat(path, &file) == 0 && file.st_size > 0 &&
        !options_has(options, "replace")) {
        return err_usage(err, "%s is there already; --replace writes it anew", path);
    }
    return path != NULL ? output_may_replace(path, DESCRIPTION_HEAD, "a card's description", err)
                        : 0;
}

static int describe(const struct options *options, struct err *err) {
    struct engine_device device;
    int32_t number = 0;
    const char *backend = options_text(options, "backend");
    const int kind = backend != NULL ? name_find(backend_names, backend) : BACKEND_SIM;
    int status = check_described(options, err);
    if (status == 0 && kind <= BACKEND_SIM) {
        status = err_usage(err, "calibrate --describe: --backend is cpu or cuda");
    }
    status = status == 0 ? asked_device(options, &number, err) : status;
    status = status == 0
                 ? engine_device_open_at((enum backend)kind, options_text(options, "library"),
                                         number, &device, err)
                 : status;
    if (status == 0) {
        status = write_description(&device, options, err);
        engine_device_close(&device);
    }
    return status;
}

static int run(const struct options *options, struct err *err) {
    struct asked_calibration asked;
    if (options_has(options, "describe")) {
        return describe(options, err);
    }
    int status = read_asked(options, &asked, err);
    if (status == 0) {
        status = open_asked(options, &asked, err);
        status = status == 0 ? measure(options, &asked, err) : status;
        close_asked(&asked);
    }
    return status;
}

const struct command command_calibrate = {
    .name = "calibrate",
    .words = "--backend NAME --out FILE",
    .doc = "measure every operator of a model on a device and write its profile",
    .more =
        "Next to the profile NAME.csv, NAME.log.csv says what the device was doing. Until all is\n"
        "measured the samples are in NAME.csv.partial; an interrupted one continues there "
        "when\n"
        "the same command is given again.",
    .options = options_of_calibrate,
    .run = run,
};
