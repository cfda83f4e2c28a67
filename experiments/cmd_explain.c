/* unmask explain: one step's time by operator. */
#include <inttypes.h>
#include <math.h>

#include "experiments/asked.h"
#include "experiments/cmd.h"
#include "experiments/step.h"
#include "experiments/table.h"
#include "sim/base/num.h"

static const struct option *const options_of_explain[] = {
    system_option, device_options, policy_options, step_options, json_options, NULL,
};

static const char *const match_words[PRICE_MATCH_COUNT] = {"exact", "interpolated", "extrapolated",
                                                           "roofline"};

static double rate(double amount, double ns, double scale) {
    return ns > 0 && amount > 0 ? amount / ns * scale : NAN;
}

/* Rows in the order of the graph; what the runtime launches beyond it is the last one. */
static struct table *operators(const struct system *system, const struct step *step,
                               const struct step_price *price) {
    static const char *const columns[] = {"operator", "kind", "times", "ms",   "share_%",
                                          "TFLOP/s",  "GB/s", "bound", "price"};
    struct table *table = table_open(columns, sizeof columns / sizeof columns[0]);
    struct op_price prices[GRAPH_MAX_OPS];
    double sum_ns = 0;
    cost_explain(system->cost, &step->shape, prices);
    for (uint32_t i = 0; i < system->graph.n_ops; i++) {
        const struct op *op = &system->graph.ops[i];
        const struct op_price *p = &prices[i];
        if (p->executions == 0) {
            continue;
        }
        char name[96];
        snprintf(name, sizeof name, "%s/%s", system->graph.segments[op->segment].name, op->name);
        table_text(table, name);
        table_text(table, op_kind_names[op->kind]);
        table_whole(table, p->executions);
        table_number(table, p->ns * 1e-6, "%.3f");
        table_number(table, 100 * p->ns / price->device_ns, "%.1f");
        table_number(table, rate(p->flops, p->ns, 1e-3), "%.1f");
        table_number(table, rate(p->bytes, p->ns, 1), "%.0f");
        table_text(table, op_bound_names[p->bound]);
        table_text(table, match_words[p->match]);
        sum_ns += p->ns;
    }
    double other_ns = price->device_ns - sum_ns;
    if (other_ns > 0.5) {
        table_text(table, "other launches");
        table_text(table, NULL);
        table_text(table, NULL);
        table_number(table, other_ns * 1e-6, "%.3f");
        table_number(table, 100 * other_ns / price->device_ns, "%.1f");
        table_text(table, NULL);
        table_text(table, NULL);
        table_text(table, op_bound_names[BOUND_LAUNCH]);
        table_text(table, "runtime");
    }
    return table;
}

static int print(const struct options *options, const struct system *system,
                 const struct step *step, struct err *err) {
    struct step_price price;
    cost_price(system->cost, &step->shape, &price);
    struct table *table = operators(system, step, &price);
    bool serial = system->runtime.host_mode == HOST_SERIAL;
    int status = 0;
    if (options_has(options, "json")) {
        status = cmd_print_json(
            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:f, s:f, s:o}", "system",
                      system->name, "model", system->model->name, "gpu", system->gpu->name,
                      "profile_kind", system_profile_kind(system), "runtime", system->runtime_name,
                      "step", step->text, "tokens", (json_int_t)step->shape.sym[SYM_TOKENS],
                      "device_ms", price.device_ns * 1e-6, "host_ms", price.host_ns * 1e-6,
                      "wall_ms", price.wall_ns * 1e-6, "operators", table_json(table)),
            err);
    } else {
        printf("%s, %s on %s: %s\n", system->name, system->model->name, system->gpu->name,
               step->text);
        printf("prices from  %s: %s\n", system_profile_kind(system), system_profile_source(system));
        printf("shape        %" PRId64 " query tokens, %" PRId64 " logit rows, %" PRId64
               " cached rows attended%s\n\n",
               step->shape.sym[SYM_TOKENS], step->shape.sym[SYM_LOGIT_ROWS],
               step->shape.sym[SYM_CONTEXT_ROWS],
               system->runtime.varlen ? "" : ", padded to the longest request");
        table_print(table, stdout);
        printf("\ndevice %.3f ms, host %.3f ms (runtime %s, host factor %.4g); the step takes "
               "%.3f ms: %s\n",
               price.device_ns * 1e-6, price.host_ns * 1e-6, system->runtime_name,
               system->runtime.host_factor, price.wall_ns * 1e-6,
               serial                            ? "the host waits, so both add up"
               : price.host_ns > price.device_ns ? "the host is the longer"
                                                 : "the host runs ahead");
        for (uint32_t i = 0; i < system->n_calibrated; i++) {
            printf("calibrated   %s = %.6g (%s)\n", system->calibrated[i].name,
                   system->calibrated[i].value, system->calibrated[i].fitted_to);
        }
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
    .options = options_of_explain,
    .run = run,
};
