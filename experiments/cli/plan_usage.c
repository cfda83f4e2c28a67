#include "experiments/cli/plan_usage.h"

#include <inttypes.h>
#include <stdio.h>

#include "sim/base/num.h"

void plan_usage_print_ratio(const struct usage *usage) {
    char most[32], mean[32];
    printf("peak-to-average ratio %.2f: at most %s live, %s in the mean over the %" PRId64
           " operators executed\n",
           usage_peak_to_average(usage),
           num_format_bytes(most, sizeof most, (double)usage->most_bytes),
           num_format_bytes(mean, sizeof mean, usage->mean_bytes), usage->n_executions);
}

json_t *plan_usage_ratio_json(const struct usage *usage) {
    return json_pack("{s:f, s:I, s:f, s:I}", "peak_to_average", usage_peak_to_average(usage),
                     "most_bytes", (json_int_t)usage->most_bytes, "mean_bytes", usage->mean_bytes,
                     "operators_executed", (json_int_t)usage->n_executions);
}

static void print_part(const char *name, int64_t bytes, int64_t peak_bytes) {
    char text[32];
    if (bytes > 0) {
        printf("  %-12s %10s %6.1f %%\n", name, num_format_bytes(text, sizeof text, (double)bytes),
               100 * (double)bytes / (double)peak_bytes);
    }
}

static double inflation(const struct placement *placement) {
    return placement->lower_bound_bytes > 0
               ? (double)placement->peak_bytes / (double)placement->lower_bound_bytes - 1
               : 0;
}

void plan_usage_print_peak(const struct graph *graph, const struct placement *placement,
                           const struct usage *usage) {
    printf("the peak, at operator %s, by class of tensor; inflation over the lower bound %.2f %%\n",
           graph->ops[usage->peak_op].name, 100 * inflation(placement));
    for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
        print_part(tensor_class_names[c], usage->class_bytes[c], placement->peak_bytes);
    }
    print_part("unused", usage->unused_bytes, placement->peak_bytes);
}

json_t *plan_usage_peak_json(const struct graph *graph, const struct placement *placement,
                             const struct usage *usage) {
    json_t *object = json_pack("{s:s, s:f}", "operator", graph->ops[usage->peak_op].name,
                               "inflation", inflation(placement));
    for (int c = 0; c < TENSOR_CLASS_COUNT; c++) {
        char key[48];
        snprintf(key, sizeof key, "%s_bytes", tensor_class_names[c]);
        json_object_set_new(object, key, json_integer((json_int_t)usage->class_bytes[c]));
    }
    json_object_set_new(object, "unused_bytes", json_integer((json_int_t)usage->unused_bytes));
    return object;
}
