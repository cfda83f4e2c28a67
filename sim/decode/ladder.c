#include "sim/decode/ladder.h"

#include <math.h>

/* Of the first n tokens. */
static double mass_of(double p, double q, double n) {
    return isinf(n) ? 1 : 1 - (1 - p) * pow(1 - q, n - 1);
}

struct ladder ladder_of(const struct draw_rule *rule, double p, double q) {
    q = fmin(q, p / (1 - p));
    struct ladder ladder = {.p = p, .q = q, .n = rule->top_k > 0 ? rule->top_k : (double)INFINITY};
    if (rule->top_p < 1) { /* the last has no more than the limit before it */
        double limit = rule->top_p * mass_of(p, q, ladder.n);
        double n = p > limit ? 1 : 2 + floor(log((1 - limit) / (1 - p)) / log1p(-q));
        ladder.n = fmin(ladder.n, n);
    }
    ladder.mass = mass_of(p, q, ladder.n);
    return ladder;
}

double ladder_untempered(double p, double q, double s) {
    double sharp = -expm1(s * log1p(-q));
    double x = (log(p / (1 - p)) - log(sharp) + s * log(q)) / s;
    return 1 / (1 + exp(-x));
}

double ladder_draw(const struct ladder *ladder, double u) {
    double share = u * ladder->mass, p = ladder->p;
    if (share < p) {
        return 0;
    }
    double place = 1 + floor(log1p(-(share - p) / (1 - p)) / log1p(-ladder->q));
    return fmin(place, ladder->n - 1);
}

double ladder_probability(const struct ladder *ladder, double place) {
    double rest = 1 - ladder->p;
    double p = place == 0 ? ladder->p : rest * ladder->q * pow(1 - ladder->q, place - 1);
    return p / ladder->mass;
}

double ladder_margin(const struct ladder *ladder) {
    double p = ladder->p, second = ladder->n > 1 ? (1 - p) * ladder->q : 0;
    return fmax(p - second, 0) / ladder->mass;
}

double ladder_entropy(const struct ladder *ladder) {
    double p = ladder->p, r = 1 - ladder->q, behind = (1 - p) * ladder->q, m = ladder->n - 1;
    if (m < 1) {
        return 0;
    }
    /* Sums of r^i and i r^i over the m tokens after the first. */
    double power = isinf(m) ? 0 : pow(r, m), times = isinf(m) ? 0 : m * power;
    double sum = (1 - power) / (1 - r), weighted = (r * (1 - power) / (1 - r) - times) / (1 - r);
    double all = p * log(p) + behind * (log(behind) * sum + log(r) * weighted);
    return all / ladder->mass - log(ladder->mass);
}
