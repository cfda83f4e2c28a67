/* Fitted decode processes as a table and as an INI file. */
#include <math.h>
#include <string.h>

#include "experiments/study/decode_fit.h"

int decode_fit_print(const struct decode_fits *fits, FILE *out, struct err *err) {
    for (int s = 0; s < N_DECODE_SHAPES; s++) {
        const struct decode_process *shape = &fits->fit[s][0].process;
        fprintf(out,
                "shape %s: distance %.4f, gap %.4g, context %.4g, position_spread %.4f, "
                "step_spread %.4g, delta_distance %.4f, delta_noise %.4f\n"
                "  in the top quintile of deltas %.1f %% (printed: %.1f %%)\n",
                decode_shape_names[s], shape->distance, shape->gap, shape->context,
                shape->position_spread, shape->step_spread, shape->delta_distance,
                shape->delta_noise, 100 * fits->quintile[s], 100 * fits->quintile_target);
        fprintf(out, "  %-28s %10s %10s %9s %9s %12s %12s\n", "process", "stored", "fitted",
                "printed", "gives", "FOCUS gives", "FOCUS prints");
        for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
            const struct decode_fit *fit = &fits->fit[s][i];
            char name[64], printed[32] = "-";
            struct decode_process stored;
            decode_process_name(decode_targets[i].process, (enum decode_shape)s, name, sizeof name);
            int status = decode_process_find(name, &stored, err);
            if (status != 0) {
                return status;
            }
            if (!isnan(fits->focus_target[i])) {
                snprintf(printed, sizeof printed, "%.2f", fits->focus_target[i]);
            }
            fprintf(out, "  %-28s %10.4f %10.4f %9.2f %9.2f %12.2f %12s\n", name, stored.location,
                    fit->process.location, fit->target, fit->reached, fits->focus[s][i], printed);
        }
    }
    return 0;
}

static const char *const head =
    "; Decode processes (sim/decode/process.h): how sure a model would have been, by model and "
    "data\n"
    "; set. `unmask fit decode` fits them again; `unmask fit decode --out FILE` writes this file.\n"
    "; A location is calibrated to the one printed number that calibrated_to names, under plain\n"
    "; block diffusion with 32 positions and threshold 0.9 (LLaDA-MoE's under Fast-dLLM's blocks "
    "of\n"
    "; 64, which no pass commits once more), Table 5's at a temperature of 0.8, all others at 1; "
    "constants\n"
    "; are those at 1. Everything else follows from it. LLaDA-MoE-TD, which "
    "is\n"
    "; distilled from LLaDA-MoE, is the latter moved by one number of GSM8K (transferred_from).\n"
    "; A run of MODEL on one of `workloads` draws from MODEL/DATA, as does, where no process lists "
    "its\n"
    "; workload, one on the workload DATA, in blocks of block_tokens, unless it is told otherwise: "
    "of\n"
    "; two shapes the one that gives all of Table 5 of SDAR, and LLaDA2.0's within 11 %.\n";

static const char *const meanings[N_DECODE_SHAPES] = {
    "assumed before the first comparison and not changed since; delta_noise is calibrated",
    "distance, position_spread, delta_noise calibrated together; delta_distance is 4 distance",
};
static const char *const calibrated_to[N_DECODE_SHAPES] = {
    "57.4 % of decodable tokens in the top quintile of deltas (FOCUS Figure 12)",
    "the same share, and Table 5's FOCUS column of SDAR-8B-Chat: 3.12, 3.05, 2.69",
};

static void write_shape(const struct decode_process *shape, int s, FILE *file) {
    fprintf(file,
            "\n[%s]\nmeaning = %s\ncalibrated_to = %s\ndistance = %.4f\ngap = %.4g\n"
            "context = %.4g\nposition_spread = %.4f\nstep_spread = %.4g\ndelta_distance = %.4f\n"
            "delta_noise = %.4f\ntail = %.4g\ntail_spread = %.4g\n",
            decode_shape_names[s], meanings[s], calibrated_to[s], shape->distance, shape->gap,
            shape->context, shape->position_spread, shape->step_spread, shape->delta_distance,
            shape->delta_noise, shape->tail, shape->tail_spread);
}

void decode_fit_write(const struct decode_fits *fits, const struct paper *paper, FILE *file) {
    fputs(head, file);
    for (int s = 0; s < N_DECODE_SHAPES; s++) {
        write_shape(&fits->fit[s][0].process, s, file);
        for (size_t i = 0; i < N_DECODE_TARGETS; i++) {
            const struct decode_target *to = &decode_targets[i];
            const struct paper_row *row =
                decode_row(paper, to->source, to->model, to->dataset, to->system, to->quantity);
            char name[64];
            fprintf(file,
                    "\n[%s]\nshape = %s\nlocation = %.4f\nblock_tokens = 32\n"
                    "calibrated_to = FOCUS %s: %s, %s, %s, %g %s\n"
                    "paper_row = %s|%s|%s|%s|%s|%s|%s\n",
                    decode_process_name(to->process, (enum decode_shape)s, name, sizeof name),
                    decode_shape_names[s], fits->fit[s][i].process.location, to->source, to->model,
                    to->dataset, to->system, row->value,
                    to->per_step ? "tokens per step" : "tokens run per decoded one", row->source,
                    row->gpu, row->model, row->dataset, row->system, row->setting, row->quantity);
            if (to->workloads != NULL && s == SHAPE_FITTED) {
                fprintf(file, "workloads = %s\n", to->workloads);
            }
        }
    }
}
