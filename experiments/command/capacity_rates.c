/* The rates that `unmask capacity` tried, as CSV. */
#include <math.h>

#include "experiments/command/capacity_show.h"
#include "sim/base/output.h"

static void write_cell(FILE *out, double value) {
    fputc(',', out);
    if (isfinite(value)) {
        fprintf(out, "%.9g", value);
    }
}

static void write_rate(const struct capacities *c, size_t i, const struct search *search,
                       const struct trial *trial, const char *role, FILE *out) {
    for (size_t a = 0; a < c->n_axes; a++) {
        output_csv_text(out, c->configs[i].values[a]);
        fputc(',', out);
    }
    fprintf(out, "%llu,%s,%.9g,%.9g,%d,%s", (unsigned long long)search->request.options.seed, role,
            trial->rate_per_s, trial->offered_req_s, trial->is_met, offered_words[trial->state]);
    for (size_t t = 0; t < c->objectives.n; t++) {
        if (c->objectives.items[t].statistic != STATISTIC_EACH) {
            write_cell(out, trial->values[t]);
        }
    }
    write_cell(out, trial->attainment);
    write_cell(out, trial->attained_req_s);
    write_cell(out, trial->served_req_s);
    write_cell(out, trial->queue_share);
    write_cell(out, trial->full_share);
    write_cell(out, trial->gpu_share);
    if (capacity_knows_energy(c)) {
        write_cell(out, trial->joules_per_token);
    }
    fprintf(out, ",%s\n", capacity_limit_words[trial->limit]);
}

int capacity_write_rates(const struct capacities *c, const char *path, struct err *err) {
    struct output output;
    if (output_open(path, &output, err) != 0) {
        return err_status(err);
    }
    FILE *out = output.file;
    for (size_t a = 0; a < c->n_axes; a++) {
        output_csv_text(out, c->axes[a]);
        fputc(',', out);
    }
    fputs("seed,role,rate_req_s,offered_req_s,met,state", out);
    for (size_t t = 0; t < c->objectives.n; t++) {
        const struct objective *o = &c->objectives.items[t];
        if (o->statistic != STATISTIC_EACH) {
            char name[OBJECTIVE_CHARS + 8];
            snprintf(name, sizeof name, "%s%s", o->name, o->metric == METRIC_GOODPUT ? "" : "_s");
            fputc(',', out);
            output_csv_text(out, name);
        }
    }
    fprintf(out,
            ",attainment,attained_req_s,served_req_s,queue_share,kv_full_share,gpu_share%s,limit\n",
            capacity_knows_energy(c) ? ",joules_per_answer_token" : "");
    for (size_t i = 0; i < c->found.n_configs * c->found.n_seeds; i++) {
        const struct search *search = &c->found.searches[i];
        const struct trial *ends[] = {&search->met, &search->missed};
        static const char *const roles[] = {"capacity", "first_missed"};
        for (size_t k = 0; k < 2 + CAPACITY_CURVE; k++) {
            const struct trial *trial = k < 2 ? ends[k] : &search->curve[k - 2];
            if (trial->rate_per_s > 0) {
                write_rate(c, i / c->found.n_seeds, search, trial, k < 2 ? roles[k] : "curve", out);
            }
        }
    }
    return output_close(&output, true, err);
}
