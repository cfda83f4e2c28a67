#include "experiments/run/compose.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/summary_output.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/compose_impl.h"
#include "experiments/run/meter.h"
#include "sim/base/mem.h"
#include "sim/model/ranks.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"
#include "traces/workload_parts.h"

enum { MOST_SINKS = 7 };

static int list_rejected(void *state, const struct request_record *record, struct err *err) {
    struct composition *c = state;
    (void)err;
    struct rejected_list *list = &c->rejected[record->reason];
    if (record->state == REQUEST_REJECTED && list->n < REJECTED_MOST_LISTED) {
        list->ids[list->n++] = record->id;
    }
    return 0;
}

static void settle_facts(struct composition *c, const struct meter *meter) {
    const struct system *system = c->system;
    struct run_facts *facts = &c->facts;
    facts->kv_peak_bytes = c->result.kv_peak_bytes;
    meter_memory(meter, &facts->activation_peak_bytes, &facts->logit_peak_bytes);
    facts->price_exact = c->pricing.lookups[PROFILE_EXACT];
    facts->price_interpolated = c->pricing.lookups[PROFILE_INTERPOLATED];
    facts->price_extrapolated = c->pricing.lookups[PROFILE_EXTRAPOLATED];
    facts->price_roofline = c->pricing.lookups[PRICE_ROOFLINE];
    facts->price_shares = cost_shares(system->cost, &c->pricing.time);
    double flops = 0, bytes = 0;
    if (c->result.steps > 0 && c->summary.makespan_s > 0) {
        cost_work(system->cost, c->result.sym, (double)c->result.steps, &flops, &bytes);
        double gpu_s = c->summary.makespan_s * system->settings.replicas;
        facts->mfu = flops / (gpu_s * gpu_roof_flops(system->gpu));
        facts->bandwidth_util = bytes / (gpu_s * system->gpu->peak_bandwidth);
    }
}

/* Of every card; idle ones idle until the last finish. */
static void price_energy(struct composition *c) {
    const struct system *system = c->system;
    const struct power *power = cost_power(system->cost);
    const uint32_t ranks = model_ranks(system->model);
    if (power != NULL) {
        c->facts.energy.priced_j =
            ranks * (c->pricing.work_joules +
                     power->idle_w * c->summary.makespan_s * system->settings.replicas);
    }
}

/* What a live run's engine reports, in the order of its figures. */
const struct compose_figure compose_figures[ENGINE_FIGURES] = {
    {"device_s", UNIT_SECONDS},
    {"wall_s", UNIT_SECONDS},
    {"overhead", UNIT_NONE},
    {"planned_bytes", UNIT_BYTES},
    {"metered_bytes", UNIT_BYTES},
    {"side_bytes", UNIT_BYTES},
    {"activation_peak_bytes", UNIT_BYTES},
    {"kv_peak_bytes", UNIT_BYTES},
    {"mapped_peak_bytes", UNIT_BYTES},
    {"lent_bytes", UNIT_BYTES},
    {"mapping_calls", UNIT_CALLS},
    {"mapping_s", UNIT_SECONDS},
};

static void measure_engine(struct composition *c, const struct meter *meter) {
    struct engine_memory memory = fleet_memory(c->fleet);
    const double values[ENGINE_FIGURES] = {
        meter->device_ns * 1e-9,
        meter->wall_ns * 1e-9,
        meter->wall_ns > 0 ? 1 - meter->device_ns / meter->wall_ns : 0,
        (double)memory.planned_bytes,
        (double)memory.metered_bytes,
        (double)memory.side_bytes,
        (double)fleet_activation_peak_bytes(c->fleet),
        (double)fleet_pool_peak_bytes(c->fleet),
        (double)memory.mapped_peak_bytes,
        (double)memory.lent_bytes,
        (double)memory.mapping_calls,
        (double)memory.mapping_ns * 1e-9,
    };
    for (size_t i = 0; i < ENGINE_FIGURES; i++) {
        c->figures[i] =
            (struct run_figure){compose_figures[i].name, values[i], compose_figures[i].unit, ""};
    }
    c->facts.engine = c->figures;
    c->facts.n_engine = memory.is_mapped ? ENGINE_FIGURES : UNMAPPED_FIGURES;
}

static bool differs(const char *what, int64_t planned, int64_t metered, struct err *err) {
    if (planned != metered) {
        err_world(err, "%s: %" PRId64 " bytes were planned, %" PRId64 " metered", what, planned,
                  metered);
    }
    return planned != metered;
}

int compose_check_memory(const struct composition *c, struct err *err) {
    struct engine_memory memory = fleet_memory(c->fleet);
    bool bad = differs("device memory", memory.planned_bytes,
                       memory.metered_bytes + memory.unmapped_bytes, err) ||
               differs("peak of the activations", c->facts.activation_peak_bytes,
                       fleet_activation_peak_bytes(c->fleet), err) ||
               differs("peak of the cached rows", c->facts.kv_peak_bytes,
                       fleet_pool_peak_bytes(c->fleet), err);
    return bad ? (int)err->kind : 0;
}

/* A replay of what a device ran. */
static bool is_compared(const struct composition *c) {
    return c->accuracy.system != NULL;
}

static int run_loop(struct composition *c, struct meter *meter, struct arrival_source source,
                    const struct run_watch *watch, struct err *err) {
    struct sink sinks[MOST_SINKS] = {summary_sink(&c->summary),
                                     {.state = c, .request = list_rejected}};
    uint32_t n_sinks = 2;
    if (is_compared(c)) {
        sinks[n_sinks++] = accuracy_sink(&c->accuracy);
    }
    ASSERT(n_sinks + watch->n_sinks <= MOST_SINKS);
    for (uint32_t i = 0; i < watch->n_sinks; i++) {
        sinks[n_sinks++] = watch->sinks[i];
    }
    struct loop_request loop = {.system = c->system,
                                .executor = meter_interface(meter),
                                .source = source,
                                .sinks = sinks,
                                .n_sinks = n_sinks,
                                .records_members = watch->records_members,
                                .seed = c->seed,
                                .decode = c->decode != NULL ? &c->decode_source : NULL,
                                .stop = watch->stop,
                                .progress = watch->progress,
                                .progress_state = watch->progress_state};
    return loop_run(&loop, &c->result, err);
}

/* What becomes of a run, whole or not. */
static void settle(struct composition *c, const struct meter *meter,
                   const struct executor_sim *sim) {
    c->pricing = *executor_sim_pricing(sim);
    c->priced_ns = meter->priced_ns;
    c->recorded_ns = meter->device_ns;
    summary_finish(&c->summary);
    const json_t *most = json_object_get(c->facts.bound, "saturated_req_s"); /* a replay's too */
    offered_judge_by_bound(&c->summary.offered, json_number_value(most));
    compose_name_trace(c, c->summary.offered.rate_req_s);
    settle_facts(c, meter);
    price_energy(c);
    if (c->workload != NULL) {
        compose_warn_of_unused(c);
    }
    if (is_compared(c)) {
        accuracy_finish(&c->accuracy, !c->result.interrupted);
    }
    if (compose_is_live(c)) {
        measure_engine(c, meter);
        questions_settle(c->questions);
        c->facts.quality = c->questions->n > 0 ? &c->questions->quality : NULL;
    }
}

uint64_t compose_requests(const struct composition *c) {
    return c->workload != NULL  ? workload_requests(c->workload)
           : c->traffic != NULL ? c->traffic->n_arrivals
                                : 0;
}

void compose_describe_missing(const struct composition *c, char *out, size_t size) {
    uint64_t wanted = compose_requests(c);
    out[0] = '\0';
    if (wanted == 0) {
        snprintf(out, size, "how many had not arrived is not known");
    } else if (c->summary.requests < wanted) {
        snprintf(out, size, "%" PRIu64 " of the %" PRIu64 " wanted had not arrived",
                 wanted - c->summary.requests, wanted);
    }
}

static void note_incomplete(struct composition *c, int status, const struct err *err) {
    if (status != 0) {
        snprintf(c->incomplete, sizeof c->incomplete, "%s", err->text);
    } else if (c->result.interrupted) {
        char missing[96];
        compose_describe_missing(c, missing, sizeof missing);
        snprintf(c->incomplete, sizeof c->incomplete, "interrupted%s%s",
                 missing[0] != '\0' ? ": " : "", missing);
    }
    c->facts.incomplete = c->incomplete[0] != '\0' ? c->incomplete : NULL;
}

static void tell_neighbours(struct fleet *fleet, struct neighbours *neighbours) {
    for (uint32_t r = 0; r < fleet_replicas(fleet); r++) {
        live_set_neighbours(fleet_live(fleet, r), neighbours);
    }
}

/* Whether others computed on the engine's devices while it ran. */
static struct neighbours *begin_neighbours(struct composition *c) {
    struct neighbours *neighbours = mem_zeroed(1, sizeof *neighbours);
    struct neighbours_request request = {.nvml = NVML_LIBRARY, .root = ""};
    fleet_facts(c->fleet, NEIGHBOURS_CARDS, request.facts, &request.n_devices);
    neighbours_begin(neighbours, &request);
    tell_neighbours(c->fleet, neighbours);
    return neighbours;
}

static void end_neighbours(struct composition *c, struct neighbours *neighbours) {
    if (neighbours != NULL) {
        tell_neighbours(c->fleet, NULL);
        neighbours_end(neighbours);
        neighbours_warn(neighbours, compose_is_live(c) ? &c->facts.warnings : &c->around);
        free(neighbours);
    }
}

/* Where requests come from; `reader`: of those on record. */
static struct arrival_source source_of(const struct composition *c, struct recorded_reader *reader,
                                       const struct run_watch *watch) {
    return reader != NULL          ? recorded_source(reader)
           : watch->source != NULL ? *watch->source
                                   : workload_source(c->workload);
}

int compose_run(struct composition *c, const struct run_watch *watch, struct err *err) {
    const struct system *system = c->system;
    uint32_t n_replicas = system->settings.replicas;
    struct executor_sim *sim = executor_sim_open(system, n_replicas);
    struct executor_replay *replay = NULL;
    const struct recorded *on_record = c->recorded != NULL ? c->recorded : c->traffic;
    struct recorded_reader *reader = on_record != NULL ? recorded_reader_open(on_record) : NULL;
    struct meter_request request = {.inner = executor_sim_interface(sim), .system = system};
    struct arrival_source source = source_of(c, reader, watch);
    if (c->recorded != NULL) {
        const struct replay_record record = recorded_steps(reader);
        replay = executor_replay_open(&record, n_replicas);
        request.inner = executor_replay_interface(replay);
        request.pricer = sim;
        request.places_all = !c->recorded->is_simulated;
        request.replay = replay;
        request.rerun = c->fleet;
        request.accuracy = is_compared(c) ? &c->accuracy : NULL;
    }
    const bool asks = reader == NULL && c->questions != NULL && c->questions->n > 0;
    if (asks && (compose_is_live(c) || system->settings.prefix_caching)) {
        source = questions_source(c->questions, source, system->settings.prefix_caching);
    }
    if (compose_is_live(c)) {
        fleet_set_stop(c->fleet, watch->stop);
        request.inner = fleet_interface(c->fleet);
        request.pricer = sim;
        request.places_all = true;
        if (asks) {
            questions_attach(c->questions, c->fleet);
        }
    }
    if (watch->around != NULL) {
        request.inner =
            watch->around(watch->around_state, request.inner, compose_is_live(c) ? NULL : sim);
    }
    struct meter meter;
    meter_init(&meter, &request);
    const double start_j = c->meters_energy ? fleet_energy_j(c->fleet) : 0;
    struct neighbours *neighbours = c->fleet != NULL ? begin_neighbours(c) : NULL;
    int status = run_loop(c, &meter, source, watch, err);
    end_neighbours(c, neighbours);
    if (start_j > 0) {
        c->facts.energy.measured_j = summary_as_recorded(fleet_energy_j(c->fleet) - start_j);
    }
    const bool is_kept = compose_is_live(c) || (status != 0 && err->code == ERR_STARVES);
    if (status == 0 || is_kept) {
        settle(c, &meter, sim);
    }
    if (is_kept) {
        note_incomplete(c, status, err);
    }
    c->is_played_out = replay != NULL && executor_replay_is_over(replay);
    meter_fini(&meter);
    executor_replay_close(replay);
    recorded_reader_close(reader);
    executor_sim_close(sim);
    return status;
}

int compose_summary(const struct run_request *request, json_t **out, struct err *err) {
    struct composition *c = NULL;
    const struct run_watch unwatched = {0};
    bool failed = compose_open(request, &c, err) != 0 || compose_run(c, &unwatched, err) != 0 ||
                  summary_json(&c->summary, &c->facts, out, err) != 0;
    compose_close(c);
    return failed ? err_status(err) : 0;
}

bool compose_says_no_memory(const struct err *err) {
    return err->code == ERR_NO_ROOM;
}

/* The resolved configuration of a run as a text: what its identity and its record hold. */

/* A policy of a shared object is named by its file, so that the text finds it again. */
static const char *plugin_path(const struct system *system, const char *key, size_t length) {
    for (uint32_t i = 0; i < system->n_applied; i++) {
        const struct setting *applied = &system->applied[i];
        if (strlen(applied->key) == length && strncmp(applied->key, key, length) == 0 &&
            strchr(applied->value, '/') != NULL) {
            return applied->value;
        }
    }
    return NULL;
}

void compose_write_system(const struct system *system, FILE *out) {
    char *text = system_text(system);
    for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t key = strcspn(line, " ");
        const char *path = plugin_path(system, line, key);
        if (path != NULL) {
            fprintf(out, "%.*s = %s\n", (int)key, line, path);
        } else {
            fprintf(out, "%.*s\n", (int)strcspn(line, "\n"), line);
        }
    }
    free(text);
}

void compose_write_memory(const struct system *system, FILE *out) {
    if (system->gpu == &system->resized) {
        fprintf(out, "\n[run]\ngpu_memory = %" PRId64 "\n", system->gpu->memory_bytes);
    }
}

void compose_write_run(const struct run_request *request, const struct decode_trace *decode,
                       FILE *out) {
    const struct workload_options *options = &request->options;
    const struct backend_request *backend = &request->backend;
    fprintf(out, "[run]\nsystem = %s\ngpu = %s\nroofline = %s\nbackend = %s\n", request->system,
            request->gpu, request->roofline ? "on" : "off", backend_names[backend->kind]);
    if (request->price_source != PRICES_BEST) {
        fprintf(out, "price_source = %s\n", price_source_words[request->price_source]);
    }
    if (backend->kind != BACKEND_SIM) {
        fprintf(out, "weights = %s\nclock = %s\n", backend->weights,
                backend->skips_idle ? "virtual" : "real");
        if (backend->eos != NULL) {
            fprintf(out, "eos = %s\n", backend->eos);
        }
    }
    if (request->statistics) {
        fprintf(out, "statistics = on\n");
    }
    const struct questions_request *questions = &request->questions;
    const char *const keys[] = {"tokenizer", "chat", "reference"};
    const char *const values[] = {questions->tokenizer, questions->chat, questions->reference};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (values[i] != NULL) {
            fprintf(out, "%s = %s\n", keys[i], values[i]);
        }
    }
    if (request->systems_path != NULL) {
        fprintf(out, "systems = %s\n", request->systems_path);
    }
    if (request->profile_path != NULL) {
        fprintf(out, "profile = %s\n", request->profile_path);
    }
    if (decode != NULL) {
        fprintf(out, "decode = %s\ndecode_digest = %" PRIu64 "\n", request->decode_path,
                decode_trace_digest(decode));
    }
    fprintf(out, "slo_latency = %" PRId64 "\nslo_ttfb = %" PRId64 "\nslo_tpot = %" PRId64 "\n",
            request->slo.latency_ns, request->slo.ttfb_ns, request->slo.tpot_ns);
    fprintf(out,
            "workload = %s\nseed = %" PRIu64 "\nrequests = %" PRIu64 "\nrate = %.17g\n"
            "input_tokens = %" PRIu32 "\noutput_tokens = %" PRIu32 "\n\n[system]\n",
            request->workload, options->seed, options->requests, options->rate_per_s,
            options->input_tokens, options->output_tokens);
}

static void print_rejected(const struct composition *c, FILE *out) {
    for (int reason = REJECT_NONE + 1; reason < REJECT_REASON_COUNT; reason++) {
        const struct rejected_list *list = &c->rejected[reason];
        uint64_t n = c->summary.rejected_by_reason[reason];
        if (n == 0) {
            continue;
        }
        fprintf(out, "%-13s%" PRIu64 " for %s: request", "rejected", n,
                reject_reason_name((uint32_t)reason, c->summary.own_reasons));
        for (uint32_t i = 0; i < list->n; i++) {
            fprintf(out, "%s %" PRIu64, i > 0 ? "," : "", list->ids[i]);
        }
        fprintf(out, "%s\n", n > list->n ? ", ..." : "");
    }
}

void compose_print(const struct composition *c, FILE *out) {
    char text[2048];
    print_rejected(c, out);
    if (c->settings[0] != '\0') {
        fprintf(out, "%-13s%s\n", "settings", c->settings);
    }
    fprintf(out, "%-13s%s: %s\n", c->facts.device != NULL ? "predictions from " : "prices from",
            system_profile_kind(c->system), system_profile_source(c->system));
    system_print_provenance(c->system, out);
    if (c->workload != NULL) {
        fprintf(out, "%-13s%s\n", "workload", workload_describe(c->workload, text, sizeof text));
    }
    if (c->decode != NULL) {
        const char *source = decode_trace_about(c->decode, "source");
        fprintf(out, "%-13splayed from %s, %zu requests%s%s\n", "decisions", c->decode_source.name,
                decode_trace_requests(c->decode), source[0] != '\0' ? ": " : "", source);
    } else if (c->facts.decisions.drawn && c->facts.device == NULL) {
        const struct run_decisions *decisions = &c->facts.decisions;
        fprintf(out, "%-13sdrawn by %s, %s: %s%s%s\n", "decisions", decisions->process,
                provenance_words[decisions->from.kind], decisions->from.source,
                decisions->error != NULL ? "; error " : "",
                decisions->error != NULL ? decisions->error : "");
    }
}

void compose_print_warnings(const struct composition *c, FILE *out) {
    struct warnings warnings = caution_of(&c->summary, &c->facts);
    caution_print(&warnings, out);
}

/* What the user set and nothing read: each key and option says in its doc where it is read
 * (sim/base/condition.h). */

/* Whether anybody says where texts end. */
static bool says_answers(const struct composition *c) {
    return c->decode != NULL ? decode_trace_has_answers(c->decode)
                             : c->ends.n > 0 || workload_says_answers(c->workload);
}

/* Of a run that is over. */
static const char *run_fact(const void *state, const char *name, char text[FACT_CHARS]) {
    const struct composition *c = state;
    const struct {
        const char *name;
        bool is_on;
    } own[] = {{"run.draws", c->facts.is_drawn},
               {"run.answers", says_answers(c)},
               {"draws", c->facts.decisions.drawn},
               {"played", c->decode != NULL}};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(name, own[i].name) == 0) {
            return own[i].is_on ? "on" : "off";
        }
    }
    const struct system_in in = {c->system, backend_names[c->backend]};
    const char *value = workload_fact(c->workload, name, text);
    return value != NULL ? value : system_in_fact(&in, name, text);
}

void stated_warn(const struct stated_option *stated, uint32_t n, const struct facts *facts,
                 struct warnings *warnings) {
    for (uint32_t i = 0; i < n; i++) {
        char text[CONDITION_CHARS], name[64];
        const char *condition = condition_of(stated[i].doc, text);
        if (condition != NULL && !condition_holds(condition, facts)) {
            snprintf(name, sizeof name, "--%s", stated[i].name);
            warnings_add_unused(warnings, name, stated[i].value, NULL, condition);
        }
    }
}

void compose_warn_of_unused(struct composition *c) {
    struct warnings *warnings = &c->facts.warnings;
    const struct facts facts = {run_fact, c};
    system_warn_of_unread(c->system, &facts, warnings);
    workload_warn_of_unread(c->workload, warnings);
    stated_warn(c->stated, c->n_stated, &facts, warnings);
}
