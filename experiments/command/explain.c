/* unmask explain: one step's time by operator. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/caution.h"
#include "analysis/summary_output.h"
#include "experiments/command/commands.h"
#include "experiments/run/asked.h"
#include "experiments/run/cli/cautions.h"
#include "experiments/run/cli/table.h"
#include "experiments/study/measured_step.h"
#include "experiments/study/released.h"
#include "experiments/study/step.h"
#include "sim/base/names.h"
#include "sim/base/num.h"
#include "sim/price/why.h"
#include "sim/system/system_facts.h"
#include "sim/system/system_reads.h"
#include "sim/system/system_step.h"

/* explain --why: every step of the ladder that changed an operator's price, and the step's. */

enum { TITLE_CHARS = 96 };

static const char *title_of(const struct graph *graph, const struct op *op,
                            char title[TITLE_CHARS]) {
    snprintf(title, TITLE_CHARS, "%s/%s", graph->segments[op->segment].name, op->name);
    return title;
}

static bool is_called(const struct graph *graph, const struct op *op, const char *asked) {
    char title[TITLE_CHARS];
    return strcmp(asked, "all") == 0 || strcmp(asked, op->name) == 0 ||
           strcmp(asked, op_kind_names[op->kind]) == 0 ||
           strcmp(asked, title_of(graph, op, title)) == 0;
}

/* ERR_USAGE unless an operator of the graph is so called: SEGMENT/NAME as in the table, the name or
 * the kind alone, or "all". */
static int why_check(const struct system *system, const char *asked, struct err *err) {
    const struct graph *graph = &system->graph;
    const char *names[GRAPH_MAX_OPS + 1] = {NULL};
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        names[i] = graph->ops[i].name;
        if (is_called(graph, &graph->ops[i], asked)) {
            return 0;
        }
    }
    char hint[NAME_HINT_CHARS];
    return err_usage(err, "--why: '%.60s' is no operator of %s with %s%s", asked, system->name,
                     system->model->name, name_hint(asked, names, hint));
}

/* ---- who said a setting ---- */

static struct provenance of_calibrated(const struct system *s, const char *constant) {
    for (uint32_t i = 0; i < s->n_calibrated; i++) {
        if (strcmp(s->calibrated[i].name, constant) == 0) {
            return provenance_of(PROVENANCE_CALIBRATED, s->calibrated[i].fitted_to);
        }
    }
    return provenance_of(PROVENANCE_CALIBRATED, constant);
}

/* A shipped line that is neither assumed nor calibrated has its runtime's provenance. */
static struct provenance of_applied(const struct system *s, const struct setting *setting) {
    char text[PROVENANCE_SOURCE_CHARS];
    snprintf(text, sizeof text, "%.64s = %.64s, %.120s", setting->key, setting->value,
             setting->place);
    for (uint32_t i = 0; i < s->n_assumed; i++) {
        if (strcmp(s->assumed[i].key, setting->key) == 0) {
            return provenance_of(PROVENANCE_ASSUMED, s->assumed[i].why);
        }
    }
    return setting->constant[0] != '\0'       ? of_calibrated(s, setting->constant)
           : setting->said == SAID_BY_SHIPPED ? provenance_of(s->preset->host_kind, text)
                                              : provenance_of(PROVENANCE_ASSUMED, text);
}

static struct provenance of_setting(const struct system *s, const char *key) {
    const struct setting *said = setting_find(s->applied, s->n_applied, key);
    if (said != NULL) {
        return of_applied(s, said);
    }
    if (strcmp(key, "evict_wait_ns") == 0) {
        return s->runtime.issued_ns[HOST_REUSE] > 0
                   ? provenance_of(profile_kind(s->profile), "the profile's host rows, issued_ns")
                   : of_calibrated(s, "evict_ns");
    }
    if (name_behind(key, "runtime.host_") != NULL) {
        return system_host(s).provenance;
    }
    char text[PROVENANCE_SOURCE_CHARS];
    snprintf(text, sizeof text, "runtime %.40s: %.200s", s->runtime_name, s->preset->source);
    return provenance_of(s->preset->host_kind, text);
}

/* ---- out ---- */

static struct table *rungs_table(const struct system *system, const struct why *why) {
    struct table *table = table_open("step|before_ns|after_ns|factor|from|source|what");
    for (uint32_t i = 0; i < why->n; i++) {
        const struct why_rung *rung = &why->rungs[i];
        const struct provenance from =
            rung->setting != NULL ? of_setting(system, rung->setting) : rung->from;
        const bool is_first = rung->before_ns <= 0;
        table_add(table, "s %.1f %.1f %.4f s s s", rung->name, is_first ? NAN : rung->before_ns,
                  rung->after_ns, is_first ? NAN : rung->after_ns / rung->before_ns,
                  provenance_words[from.kind], from.source, rung->says);
    }
    return table;
}

static struct why of_operator(const struct system *system, const struct asked_step *step,
                              uint32_t op) {
    struct why why;
    why_operator(system->cost, op, &step->shape,
                 system_chunks(system, &step->shape, step->workspace_bytes), &why);
    return why;
}

static struct why of_step(const struct system *system, const struct asked_step *step,
                          const struct step_price *price) {
    struct why why;
    why_step(system->cost, &step->shape, system_chunks(system, &step->shape, step->workspace_bytes),
             price, &why);
    return why;
}

static json_t *rungs_json(const struct system *system, const struct why *why) {
    struct table *table = rungs_table(system, why);
    json_t *rungs = table_json(table);
    table_close(table);
    return rungs;
}

/* The operators of that name that the step runs, and the step from their sum on. `price` is its
 * price with the plans. */
static json_t *why_json(const struct system *system, const struct asked_step *step,
                        const struct step_price *price, const char *asked) {
    const struct graph *graph = &system->graph;
    json_t *operators = json_array();
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        char title[TITLE_CHARS];
        const struct op *op = &graph->ops[i];
        const struct why why = of_operator(system, step, i);
        if (!is_called(graph, op, asked) || why.n == 0) {
            continue;
        }
        json_array_append_new(
            operators, json_pack("{s:s, s:s, s:f, s:s, s:b, s:o}", "operator",
                                 title_of(graph, op, title), "kind", op_kind_names[op->kind], "ns",
                                 why.ns, "from", provenance_words[why.kind], "raised_by_floor",
                                 why.is_raised, "steps", rungs_json(system, &why)));
    }
    const struct why whole = of_step(system, step, price);
    return json_pack("{s:o, s:f, s:o}", "operators", operators, "step_ns", whole.ns, "step",
                     rungs_json(system, &whole));
}

static void print_rungs(const struct system *system, const struct why *why) {
    struct table *table = rungs_table(system, why);
    table_print(table, stdout);
    table_close(table);
}

static void why_print(const struct system *system, const struct asked_step *step,
                      const struct step_price *price, const char *asked) {
    const struct graph *graph = &system->graph;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        char title[TITLE_CHARS];
        const struct why why = of_operator(system, step, i);
        if (is_called(graph, &graph->ops[i], asked) && why.n > 0) {
            printf("why %s takes %.3f ms, %.1f %% of the step: %s%s\n",
                   title_of(graph, &graph->ops[i], title), why.ns * 1e-6,
                   100 * why.ns / price->wall_ns, provenance_words[why.kind],
                   why.is_raised ? ", raised by the floor" : "");
            print_rungs(system, &why);
            printf("\n");
        }
    }
    const struct why whole = of_step(system, step, price);
    printf("why the step takes %.3f ms, from the sum of its operators on\n", whole.ns * 1e-6);
    print_rungs(system, &whole);
}

static const struct option own_options[] = {
    {"rounds", "N", "with a back end: how often the step is measured (default: 20)", false},
    {"once", NULL,
     "with a back end: measure the step once, cold and without its operators: for long steps",
     false},
    {"why", "OPERATOR",
     "instead of the table, each step that makes its price, with factor and source: SEGMENT/NAME, "
     "a "
     "name, a kind, or all",
     false},
    {NULL, NULL, NULL, false},
};

static const struct option *const options_of_explain[] = {
    system_option, device_options, policy_options, step_options,   backend_options,
    own_options,   json_options,   format_option,  verbose_option, NULL,
};

static double rate(double amount, double ns, double scale) {
    return ns > 0 && amount > 0 ? amount / ns * scale : NAN;
}

/* What its operators take of the step as it was measured whole: their own times were taken
 * between events, which take time themselves. */
static double measured_scale(const struct system *system, const struct measured_step *measured) {
    double sum_ns = 0;
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        sum_ns += measured->op_ns[i];
    }
    return sum_ns > 0 ? measured->device_ns / sum_ns : 0;
}

/* Rows in the order of the graph; what the runtime launches beyond it is the last one. `measured`
 * is NULL without a back end. */
static struct table *operators(const struct system *system, const struct asked_step *step,
                               const struct step_price *price,
                               const struct measured_step *measured) {
    struct table *table =
        table_open("operator|kind|times|ms|share_%|TFLOP/s|GB/s|bound|price|from");
    if (measured != NULL) {
        table_column(table, "measured_ms");
        table_column(table, "error_%");
    }
    struct op_price prices[GRAPH_MAX_OPS];
    double sum_ns = 0, scale = measured != NULL ? measured_scale(system, measured) : 0;
    cost_explain(system->cost, &step->shape,
                 system_chunks(system, &step->shape, step->workspace_bytes), prices);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        const struct op *op = &system->graph.ops[i];
        const struct op_price *p = &prices[i];
        if (p->executions == 0) {
            continue;
        }
        char name[96];
        snprintf(name, sizeof name, "%s/%s", system->graph.segments[op->segment].name, op->name);
        table_add(table, "s s u %.3f %.1f %.1f %.0f s s s", name, op_kind_names[op->kind],
                  p->executions, p->ns * 1e-6, 100 * p->ns / price->device_ns,
                  rate(p->flops, p->ns, 1e-3), rate(p->bytes, p->ns, 1), op_bound_names[p->bound],
                  price_match_words[p->match], provenance_words[p->kind]);
        double ns = measured != NULL ? scale * measured->op_ns[i] : 0;
        if (measured != NULL) {
            table_add(table, ns > 0 ? "%.3f %+.1f" : "- -", ns * 1e-6, 100 * (p->ns / ns - 1));
        }
        sum_ns += p->ns;
    }
    double other_ns = price->device_ns - sum_ns;
    if (other_ns > 0.5) {
        table_add(table, "s - - %.3f %.1f - - s s -", "other launches", other_ns * 1e-6,
                  100 * other_ns / price->device_ns, op_bound_names[BOUND_LAUNCH], "runtime");
        table_add(table, measured != NULL ? "- -" : "");
    }
    return table;
}

/* How many different experts of a layer the step's tokens would hit if every choice were random. */
static double experts_by_chance(const struct system *system, const struct asked_step *step) {
    const struct model *m = system->model;
    return model_experts_hit(m->experts, m->experts_active, (double)step->shape.sym[SYM_TOKENS]);
}

/* How many experts prices assume to be hit; NAN: as many as in the measured rows. */
static double experts_as_priced(const struct system *system, const struct asked_step *step) {
    return cost_experts_hit(system->cost, (double)step->shape.sym[SYM_TOKENS]);
}

static json_t *experts_json(const struct system *system, const struct asked_step *step,
                            const struct measured_step *measured) {
    if (system->model->experts == 0) {
        return NULL;
    }
    bool is_measured = measured != NULL && measured->experts_hit > 0;
    const struct provenance *from = &system->routing.provenance;
    double priced = experts_as_priced(system, step);
    bool is_known = !isnan(priced);
    return json_pack("{s:I, s:f, s:o, s:s, s:s, s:o*}", "experts",
                     (json_int_t)system->model->experts, "by_chance",
                     experts_by_chance(system, step), "priced",
                     is_known ? json_real(priced) : json_null(), "kind",
                     provenance_words[is_known ? from->kind : PROVENANCE_MEASURED], "source",
                     is_known ? from->source : "as many as the profile's rows hit", "measured",
                     is_measured ? json_real(measured->experts_hit) : NULL);
}

static void print_experts(const struct system *system, const struct asked_step *step,
                          const struct measured_step *measured) {
    if (system->model->experts == 0) {
        return;
    }
    const struct provenance *from = &system->routing.provenance;
    double priced = experts_as_priced(system, step);
    printf("experts      ");
    if (isnan(priced)) {
        printf("as many a layer as the measured rows hit; by chance %.1f of %" PRIu32,
               experts_by_chance(system, step), system->model->experts);
    } else {
        printf("%.1f of %" PRIu32 " a layer as priced, by chance %.1f (%s: %s)", priced,
               system->model->experts, experts_by_chance(system, step),
               provenance_words[from->kind], from->source);
    }
    if (measured != NULL && measured->experts_hit > 0) {
        printf("; measured %.1f", measured->experts_hit);
    }
    printf("\n");
}

static json_t *measured_json(const struct measured_step *measured) {
    return json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I}", "device", measured->device, "ranks",
        (json_int_t)measured->n_ranks, "rounds", (json_int_t)measured->rounds, "wall_ms",
        measured->wall_ns * 1e-6, "device_ms", measured->device_ns * 1e-6, "spread",
        measured->spread, "workspace_bytes", (json_int_t)measured->workspace_bytes, "planned_bytes",
        (json_int_t)measured->planned_bytes, "own_bytes", (json_int_t)measured->own_bytes);
}

static void print_measured(const struct measured_step *measured, const struct step_price *price) {
    char workspace[32], planned[32], own[32];
    printf("measured     %s, %" PRIu32
           " round%s: device %.3f ms, wall %.3f ms (spread %.1f %%), of "
           "which %.2f %% is not the device's; the price is %+.1f %% off\n"
           "             workspace used, as metered: %s (%" PRId64 " bytes), planned %s (%" PRId64
           " bytes)\n"
           "             other device memory than weights, workspace and cached rows: %s\n%s%s",
           measured->device, measured->rounds, measured->rounds == 1 ? "" : "s",
           measured->device_ns * 1e-6, measured->wall_ns * 1e-6, 100 * measured->spread,
           100 * (1 - measured->device_ns / measured->wall_ns),
           100 * (price->wall_ns / measured->wall_ns - 1),
           num_format_bytes(workspace, sizeof workspace, (double)measured->workspace_bytes),
           measured->workspace_bytes,
           num_format_bytes(planned, sizeof planned, (double)measured->planned_bytes),
           measured->planned_bytes, num_format_bytes(own, sizeof own, (double)measured->own_bytes),
           measured->op_ns[0] > 0 ? "             operators were timed between events, and scaled "
                                    "to the whole step\n"
                                  : "",
           measured->n_ranks > 1 && measured->op_ns[0] > 0
               ? "             of several GPUs: the slowest one's time, and of what they exchange "
                 "the one's that came last\n"
               : "");
}

/* Without a back end there is nothing to measure: `*out` stays NULL. */
static int measure(const struct options *options, const struct system *system,
                   const struct asked_step *step, struct measured_step *room,
                   const struct measured_step **out, struct err *err) {
    struct backend_request backend;
    const struct measuring once = {.rounds = 1};
    struct measuring measuring = {.warm_rounds = 3, .operator_rounds = 5};
    uint64_t rounds = 20;
    *out = NULL;
    int status = asked_backend(options, &backend, err);
    const char *given = options_has(options, "rounds") ? "rounds" : "once";
    if (status == 0 && options_has(options, given) && backend.kind == BACKEND_SIM) {
        return err_usage(err, "--%s: nothing is measured without --backend cpu or cuda", given);
    }
    if (status == 0 && options_has(options, "rounds") && options_has(options, "once")) {
        return err_usage(err, "--once: the step is measured once, so --rounds has nothing to say");
    }
    status = status != 0 ? status : options_whole(options, "rounds", 1, 1000, &rounds, err);
    measuring.rounds = (uint32_t)rounds;
    if (status == 0 && backend.kind != BACKEND_SIM) {
        const struct engine_request request = {.backend = backend.kind,
                                               .library = backend.library,
                                               .device = backend.device,
                                               .weights = backend.weights,
                                               .system = system};
        status = step_measure(&request, step, options_has(options, "once") ? &once : &measuring,
                              room, err);
        *out = room;
    }
    return status;
}

static json_t *host_json(const struct system *system) {
    const struct host host = system_host(system);
    return json_pack("{s:s, s:s, s:f, s:s}", "name", host.name, "kind",
                     provenance_words[host.provenance.kind], "factor", host.factor, "source",
                     host.provenance.source);
}

static struct warnings warnings_of(const struct system *system, const struct price_shares *shares) {
    struct warnings warnings = {0};
    system_warn_of_host(system, &warnings);
    system_warn_of_settings(system, &warnings);
    system_warn_of_unread_in_step(system, &warnings);
    system_warn_of_experts(system, &warnings);
    caution_add_prices(shares, &warnings);
    return warnings;
}

/* The step repeated until the card's clock is stable under its power. */
struct settled {
    double slowdown, wall_ms, joules;
};

static bool settle(const struct system *system, const struct asked_step *step,
                   const struct step_price *highest, struct settled *out) {
    const struct power_step once = cost_power_step(highest, highest->wall_ns);
    const struct power *power = cost_power(system->cost);
    if (power == NULL) {
        return false;
    }
    struct step_price price = *highest;
    out->slowdown = cost_settle(system->cost, &step->shape, &price);
    out->wall_ms = price.wall_ns * 1e-6;
    out->joules =
        power->idle_w * price.wall_ns * 1e-9 + power_work_joules(power, &once, out->slowdown);
    return true;
}

static void print_settled(const struct settled *s) {
    printf("at the highest clock; repeated it settles at %.3f ms, %.4g J, %.4g W (compute %.3f "
           "times as long)\n",
           s->wall_ms, s->joules, s->joules / (s->wall_ms * 1e-3), s->slowdown);
}

static json_t *settled_json(const struct settled *s) {
    return json_pack("{s:f, s:f, s:f, s:f}", "slowdown", s->slowdown, "wall_ms", s->wall_ms,
                     "joules", s->joules, "watts", s->joules / (s->wall_ms * 1e-3));
}

static void print_head(const struct system *system, const struct asked_step *step) {
    printf("%s, %s on %s: %s\n", system->name, system->model->name, system->gpu->name, step->text);
    const char *name = system->name;
    released_print(&name, 1, stdout);
    printf("prices from  %s: %s\n", system_profile_kind(system), system_profile_source(system));
    system_print_provenance(system, stdout);
    const struct host host = system_host(system);
    printf("host         %s: %s, factor %.4g (%s)\n", host.name,
           provenance_words[host.provenance.kind], host.factor, host.provenance.source);
    printf("shape        %" PRId64 " query tokens, %" PRId64 " logit rows, %" PRId64
           " cached rows attended%s\n\n",
           step->shape.sym[SYM_TOKENS], step->shape.sym[SYM_LOGIT_ROWS],
           step->shape.sym[SYM_CONTEXT_ROWS],
           system->runtime.varlen ? "" : ", padded to the longest request");
}

static const char *how_joined(const struct system *system, const struct step_price *price) {
    switch ((enum host_mode)system->runtime.host_mode) {
    case HOST_SERIAL:
        return "the host waits, so both add up";
    case HOST_LOOPS:
        return "the host runs ahead, but for its loop over the requests";
    case HOST_OVERLAPS:
    case HOST_BY_LAYERS:
        break;
    }
    return price->host_ns > price->device_ns ? "the host is the longer" : "the host runs ahead";
}

static void print_time(const struct system *system, const struct step_price *price) {
    printf("\ndevice %.3f ms, host %.3f ms (runtime %s); the step takes "
           "%.3f ms: %s\n",
           price->device_ns * 1e-6, (price->host_ns + price->visit_ns) * 1e-6, system->runtime_name,
           price->wall_ns * 1e-6, how_joined(system, price));
}

/* ---- swapping ---- */

/* What the step's requests hold, each of the same kind alike; 0: the system swaps nothing. */
static int64_t swapped_bytes(const struct system *system, const struct asked_step *step) {
    int64_t bytes = 0;
    for (int k = 0; k < 2 && system->settings.swap_host_bytes > 0; k++) {
        const struct step_kind *kind = &step->kinds[k];
        if (kind->n_requests > 0 && kind->n_path > 0) {
            const struct request *request = &kind->path[kind->n_path - 1];
            const bool grows = request->span.exact && system->scheduler->grows;
            const uint32_t rows =
                grows ? request->rows.held
                      : cache_most_held(system->cache, system->cache_state, request);
            bytes += kind->n_requests * budget_request_bytes(&system->budget, rows);
        }
    }
    return bytes;
}

static json_t *swap_json(const struct system *system, const struct asked_step *step) {
    const int64_t bytes = swapped_bytes(system, step);
    return bytes == 0
               ? NULL
               : json_pack("{s:I, s:f, s:s?}", "bytes", (json_int_t)bytes, "copy_ms",
                           gpu_copy_ns(system->gpu, bytes) * 1e-6, "link", system->gpu->host_link);
}

static void print_swap(const struct system *system, const struct asked_step *step) {
    const int64_t bytes = swapped_bytes(system, step);
    char size[32];
    if (bytes > 0) {
        printf("swapping     the requests hold %s: %.3f ms out to the host's memory and as much "
               "back, over %s at %.3g GB/s (%s)\n",
               num_format_bytes(size, sizeof size, (double)bytes),
               gpu_copy_ns(system->gpu, bytes) * 1e-6,
               system->gpu->host_link != NULL ? system->gpu->host_link : "its link",
               gpu_host_bandwidth(system->gpu) * 1e-9,
               system->gpu->best_host_bandwidth > 0 ? "measured" : "assumed");
    }
}

/* The text under the table. */
static void print_rest(const struct system *system, const struct asked_step *step,
                       const struct step_price *price, const struct settled *settled,
                       const struct price_shares *shares, const struct measured_step *measured) {
    print_time(system, price);
    if (settled != NULL) {
        print_settled(settled);
    }
    summary_print_price_shares(shares, stdout);
    print_experts(system, step, measured);
    if (measured != NULL) {
        print_measured(measured, price);
    }
    print_swap(system, step);
    for (uint32_t i = 0; i < system->n_calibrated; i++) {
        printf("calibrated   %s = %.6g (%s)\n", system->calibrated[i].name,
               system->calibrated[i].value, system->calibrated[i].fitted_to);
    }
}

static int print(const struct options *options, const struct system *system,
                 const struct asked_step *step, struct err *err) {
    struct step_price price;
    struct measured_step room;
    const struct measured_step *measured;
    const char *why = options_text(options, "why");
    int status = why != NULL ? why_check(system, why, err) : 0;
    status = status != 0 ? status : measure(options, system, step, &room, &measured, err);
    if (status != 0) {
        return status;
    }
    system_price(system, &step->shape, step->workspace_bytes, &price);
    struct price_shares shares = cost_shares(system->cost, &price.time);
    struct warnings warnings = warnings_of(system, &shares);
    struct table *table = operators(system, step, &price, measured);
    struct settled settled;
    const bool settles = settle(system, step, &price, &settled);
    if (options_has(options, "json")) {
        status = cmd_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:s, s:I, s:f, s:f, s:f, s:o, s:o, s:o*, "
                      "s:o*, s:o*, s:o*, s:o*, s:o}",
                      "system", system->name, "model", system->model->name, "gpu",
                      system->gpu->name, "profile_kind", system_profile_kind(system), "runtime",
                      system->runtime_name, "host", host_json(system), "step", step->text, "tokens",
                      (json_int_t)step->shape.sym[SYM_TOKENS], "device_ms", price.device_ns * 1e-6,
                      "host_ms", (price.host_ns + price.visit_ns) * 1e-6, "wall_ms",
                      price.wall_ns * 1e-6, "price_time_shares", summary_price_shares(&shares),
                      "operators", table_json(table), "measured",
                      measured != NULL ? measured_json(measured) : NULL, "experts_hit",
                      experts_json(system, step, measured), "settled",
                      settles ? settled_json(&settled) : NULL, "why",
                      why != NULL ? why_json(system, step, &price, why) : NULL, "swap",
                      swap_json(system, step), "warnings", caution_json(&warnings)),
            err);
    } else {
        print_head(system, step);
        if (why != NULL) {
            why_print(system, step, &price, why);
        } else {
            table_print(table, stdout);
            print_rest(system, step, &price, settles ? &settled : NULL, &shares, measured);
        }
        caution_print(&warnings, stdout);
    }
    table_close(table);
    return status;
}

static int run(const struct options *options, struct err *err) {
    return step_show(options, print, err);
}

const struct command command_explain = {
    .name = "explain",
    .words = "",
    .doc = "one step's time by operator: compute, bandwidth, launches, host",
    .more =
        "In the table `bound` is what limits an operator: compute, bandwidth (of memory), launch\n"
        "(of the kernel), latency or link (of an exchange between GPUs). `price` says how its "
        "time\n"
        "was found: exact (that size is in the profile), interpolated, extrapolated, or roofline\n"
        "(from the data sheet). `from` is the source: measured, imported (published by others),\n"
        "transferred (from another GPU) or assumed.",
    .options = options_of_explain,
    .run = run,
};
