/* Hosts: the machines that the GPUs are in, as far as time depends on them.
 *
 * A host is a file of experiments/study/hosts, or of the user's. Host terms of a runtime (`unmask
 * list runtimes`) were measured on one reference host; a host's `factor` is its time over that
 * one's, a number or $CONSTANT of calibrated.ini; `kind` is measured, calibrated or assumed, `gpu`
 * lists the GPUs that it was measured or printed with. A system names its host (`host = NAME`), by
 * GPU where they differ (`host@GPU = NAME`); --host replaces it, and --set host.factor=X changes
 * the factor. A published system keeps its paper's host on a GPU that the paper did not use, and
 * outputs say so. */
#ifndef UNMASK_SIM_SYSTEM_HOST_H
#define UNMASK_SIM_SYSTEM_HOST_H

#include <stdbool.h>

#include "sim/base/input/config.h"
#include "sim/base/param.h"
#include "sim/base/provenance.h"

struct host {
    char name[192];    /* while it is looked up, the name given */
    const char *path;  /* of the user's file; NULL: it is one of the data folder's */
    char gpus[96];     /* measured or printed with these, between blanks; "": with none */
    double factor;     /* its time over the reference host's */
    char constant[48]; /* the calibrated constant that the factor is; "": none */
    struct provenance provenance;
};

/* The key `host.factor`. */
extern const struct param host_params[];
extern const size_t host_n_params;

/* The host of that name, or of the file at that path; its constant is looked up in calibrated.ini
 * (`constants`). */
int host_find(const char *name, const struct config *constants, struct host *out, struct err *err);

/* Whether it was measured or printed with that GPU; a host of no GPU suits any. */
bool host_is_beside(const struct host *host, const char *gpu);

/* All hosts of the data folder by name, each with its `doc`. */
int host_list(int (*each)(void *state, const struct host *host, const char *doc), void *state,
              struct err *err);

#endif
