#include "engine/calibrate/host_fit.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>

#include "sim/base/mem.h"

/* The terms that are fitted; the others are 0. */
struct terms {
    bool step, request;
};

struct system_of_equations {
    gsl_matrix *x, *covariance;
    gsl_vector *y, *c;
};

static void free_equations(struct system_of_equations *e) {
    gsl_matrix_free(e->x);
    gsl_matrix_free(e->covariance);
    gsl_vector_free(e->y);
    gsl_vector_free(e->c);
}

static void make_equations(struct system_of_equations *e, const struct host_sample *samples,
                           size_t n, struct terms terms) {
    size_t p = (size_t)terms.step + (size_t)terms.request;
    *e = (struct system_of_equations){
        mem_given(gsl_matrix_alloc(n, p)), mem_given(gsl_matrix_alloc(p, p)),
        mem_given(gsl_vector_alloc(n)), mem_given(gsl_vector_alloc(p))};
    for (size_t i = 0; i < n; i++) {
        const struct host_sample *s = &samples[i];
        gsl_vector_set(e->y, i, (s->wall_ns - s->device_ns) / s->wall_ns);
        if (terms.step) {
            gsl_matrix_set(e->x, i, 0, 1 / s->wall_ns);
        }
        if (terms.request) {
            gsl_matrix_set(e->x, i, p - 1, s->n_requests / s->wall_ns);
        }
    }
}

/* Robust where there are equations to spare, plain least squares else or when that does not come
 * to an end. */
static int solve(struct system_of_equations *e) {
    size_t n = e->x->size1, p = e->x->size2;
    int status = GSL_EFAILED;
    double chi_squared;
    if (n > p + 1) {
        gsl_multifit_robust_workspace *w =
            mem_given(gsl_multifit_robust_alloc(gsl_multifit_robust_bisquare, n, p));
        status = gsl_multifit_robust(e->x, e->y, e->c, e->covariance, w);
        gsl_multifit_robust_free(w);
    }
    if (status != GSL_SUCCESS) {
        gsl_multifit_linear_workspace *w = mem_given(gsl_multifit_linear_alloc(n, p));
        status = gsl_multifit_linear(e->x, e->y, e->c, e->covariance, &chi_squared, w);
        gsl_multifit_linear_free(w);
    }
    return status;
}

static int fit_terms(const struct host_sample *samples, size_t n, struct terms terms,
                     struct host_fit *out, struct err *err) {
    struct system_of_equations e;
    make_equations(&e, samples, n, terms);
    int status = solve(&e);
    if (status == GSL_SUCCESS) {
        size_t last = e.c->size - 1;
        *out = (struct host_fit){.given = true};
        out->step_ns = terms.step ? gsl_vector_get(e.c, 0) : 0;
        out->request_ns = terms.request ? gsl_vector_get(e.c, last) : 0;
        out->covariance[0] = terms.step ? gsl_matrix_get(e.covariance, 0, 0) : 0;
        out->covariance[1] = last > 0 ? gsl_matrix_get(e.covariance, 0, 1) : 0;
        out->covariance[2] = terms.request ? gsl_matrix_get(e.covariance, last, last) : 0;
    }
    free_equations(&e);
    return status == GSL_SUCCESS
               ? 0
               : err_world(err, "cannot fit the host's times: %s", gsl_strerror(status));
}

int host_fit(const struct host_sample *samples, size_t n, struct host_fit *out, struct err *err) {
    *out = (struct host_fit){0};
    if (n == 0) {
        return 0;
    }
    struct terms terms = {.step = true};
    for (size_t i = 1; i < n; i++) {
        terms.request = terms.request || samples[i].n_requests != samples[0].n_requests;
    }
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    int status = fit_terms(samples, n, terms, out, err);
    if (status == 0 && terms.request && (out->step_ns < 0 || out->request_ns < 0)) {
        terms = (struct terms){.step = out->request_ns < 0, .request = out->request_ns >= 0};
        status = fit_terms(samples, n, terms, out, err);
    }
    gsl_set_error_handler(handler);
    out->step_ns = fmax(0, out->step_ns);
    out->request_ns = fmax(0, out->request_ns);
    return status;
}
