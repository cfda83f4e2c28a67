/* What a step costs beyond the device's time, fitted to whole steps.
 *
 * For each kind of step, wall - device = step_ns + request_ns n, where n counts the requests.
 * Robust regression (bisquare weights: Holland and Welsch, "Robust regression using iteratively
 * reweighted least-squares", 1977) with each step's equation divided by its wall time: what is made
 * small is the relative error, by which predictions are judged. Neither term is below 0; where the
 * best fit has one there, it is 0 and the other is fitted alone. */
#ifndef UNMASK_ENGINE_CALIBRATE_HOST_FIT_H
#define UNMASK_ENGINE_CALIBRATE_HOST_FIT_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

struct host_sample {
    double n_requests, wall_ns, device_ns;
};

struct host_fit {
    bool given; /* there were samples */
    double step_ns, request_ns;
    double covariance[3]; /* of step and step, step and request, request and request; ns^2 */
};

/* With one number of requests alone the request's term is 0. ERR_WORLD where GSL cannot
 * solve for them. */
int host_fit(const struct host_sample *samples, size_t n, struct host_fit *out, struct err *err);

#endif
