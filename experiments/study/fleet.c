/* How many replicas a rate takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/study/capacity.h"
#include "sim/base/mem.h"

static const double at_once_per_s = 1e6;
/* Requests for each replica at first, and how often they are doubled at most. */
enum { EACH_REQUESTS = 100, MOST_DOUBLINGS = 6 };

/* One search: what is known of numbers of replicas with as many requests. */
struct fleets {
    const struct capacity *capacity;
    struct search *search;
    uint64_t requests;
    struct trial met, missed; /* replicas 0: none is known */
    bool is_short; /* objectives were met, but so few requests do not tell whether the fleet keeps
                      up */
};

static int try_fleet(struct fleets *f, uint32_t replicas, double rate_per_s, struct trial *out,
                     struct err *err) {
    const struct run_request *asked = &f->search->request;
    struct run_request request = *asked;
    struct setting *settings = mem_zeroed(asked->n_settings + 1, sizeof *settings);
    memcpy(settings, asked->settings, asked->n_settings * sizeof *settings);
    struct setting *own = &settings[request.n_settings++];
    snprintf(own->key, sizeof own->key, "replicas");
    snprintf(own->value, sizeof own->value, "%u", replicas);
    snprintf(own->place, sizeof own->place, "--rate");
    request.settings = settings;
    request.options.requests = f->requests > 0 ? f->requests : request.options.requests;
    request.options.rate_per_s = rate_per_s;
    int status = capacity_try(f->capacity, f->search, &request, replicas * f->search->bound_per_s,
                              false, out, err);
    free(settings);
    return status;
}

/* Takes in one number of replicas, between those that are known. */
static int look(struct fleets *f, uint32_t replicas, struct trial *out, struct err *err) {
    int status = try_fleet(f, replicas, f->capacity->fleet_req_s, out, err);
    if (status == 0 && out->is_met) {
        f->met = *out;
    } else if (status == 0) {
        f->missed = *out;
        f->is_short = f->is_short || (out->state == OFFERED_UNKNOWN &&
                                      objectives_are_met(f->capacity->objectives, out->values));
    }
    return status;
}

/* Two numbers of replicas, of which the larger is met; from a first one on. search->state says
 * where there are none. */
static int bracket(struct fleets *f, uint32_t replicas, struct err *err) {
    struct trial trial;
    int status = 0;
    f->met = f->missed = (struct trial){0};
    f->is_short = false;
    for (uint32_t step = replicas / 16 + 1; status == 0; step *= 2) {
        status = look(f, replicas, &trial, err);
        if (status != 0 || f->is_short ||
            (f->met.replicas > 0 && (f->missed.replicas > 0 || replicas == 1))) {
            return status;
        }
        const bool is_hopeless = trial.is_alone && trial.state != OFFERED_UNKNOWN;
        if (!trial.is_met && (is_hopeless || replicas == FLEET_MOST_REPLICAS)) {
            f->search->state = CAPACITY_NONE;
            return 0;
        }
        if (trial.is_met) {
            replicas = replicas > step ? replicas - step : 1;
        } else {
            replicas = replicas + step < FLEET_MOST_REPLICAS ? replicas + step
                                                             : (uint32_t)FLEET_MOST_REPLICAS;
        }
    }
    return status;
}

/* The fewest replicas, with as many requests. */
static int fewest(struct fleets *f, uint32_t guess, struct err *err) {
    struct trial trial;
    int status = bracket(f, guess, err);
    while (status == 0 && f->search->state == CAPACITY_FOUND && !f->is_short &&
           f->met.replicas > f->missed.replicas + 1) {
        status = look(f, (f->met.replicas + f->missed.replicas) / 2, &trial, err);
    }
    return status;
}

int fleet_find(const struct capacity *capacity, struct search *search, struct err *err) {
    struct fleets f = {.capacity = capacity, .search = search};
    struct trial one;
    int status = released_based(search->request.system, search->request.systems_path,
                                &search->released, err);
    status = status != 0 ? status : try_fleet(&f, 1, at_once_per_s, &one, err);
    if (status != 0) {
        return status;
    }
    /* More than all of them serve when everything waits is out of reach. */
    if (capacity->fleet_req_s > FLEET_MOST_REPLICAS * one.served_req_s) {
        search->state = CAPACITY_NONE;
        search->missed = one;
        return 0;
    }
    const double wanted = ceil(capacity->fleet_req_s / fmax(one.served_req_s, 1e-9));
    uint32_t guess = wanted < FLEET_MOST_REPLICAS ? (uint32_t)wanted : FLEET_MOST_REPLICAS;
    search->n_together = one.n_together;
    f.requests = one.n_requests > EACH_REQUESTS * (uint64_t)guess ? one.n_requests
                                                                  : EACH_REQUESTS * (uint64_t)guess;
    for (int i = 0; i <= MOST_DOUBLINGS; i++, f.requests *= 2) {
        const double before = search->met.replicas;
        status = fewest(&f, before > 0 ? search->met.replicas : guess, err);
        if (status == 0 && f.is_short) {
            continue;
        }
        if (status != 0 || search->state != CAPACITY_FOUND) {
            search->missed = f.missed;
            return status;
        }
        search->met = f.met;
        search->missed = f.missed;
        search->n_requests = f.met.n_requests;
        search->gpus = f.met.gpus;
        if (before > 0 && fabs(f.met.replicas - before) <= capacity->tolerance * before) {
            return 0;
        }
    }
    search->still_moves = search->met.replicas > 0;
    search->state = search->still_moves ? CAPACITY_FOUND : CAPACITY_NONE;
    search->missed = f.missed;
    return 0;
}
