#include "analysis/rate.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

#include "sim/base/num.h"

bool rate_is_met(double asked_req_s, double offered_req_s) {
    bool is_known = asked_req_s > 0 && offered_req_s > 0;
    return !is_known || fabs(offered_req_s - asked_req_s) <= RATE_TOLERANCE * asked_req_s;
}

const char *rate_text(double asked_req_s, double offered_req_s, char text[RATE_CHARS]) {
    text[0] = '\0';
    if (!rate_is_met(asked_req_s, offered_req_s)) {
        snprintf(text, RATE_CHARS, "%.4g req/s (%.6g asked for)", offered_req_s, asked_req_s);
    } else if (asked_req_s > 0) {
        snprintf(text, RATE_CHARS, "%.6g req/s%s", asked_req_s,
                 offered_req_s > 0 ? "" : " asked for");
    }
    return text;
}

static bool is_infinite(const char *text) {
    text += text[0] == '+';
    return strcasecmp(text, "inf") == 0 || strcasecmp(text, "infinity") == 0;
}

int rate_read(const char *place, const char *text, double *out, struct err *err) {
    if (text == NULL) {
        return 0;
    }
    if (is_infinite(text)) {
        return err_usage(err,
                         "%s: no rate is infinite; for all requests at once: --arrivals "
                         "all-at-once",
                         place);
    }
    return num_f64(text, out) && *out > 0
               ? 0
               : err_usage(err, "%s: '%s' is not a number above 0", place, text);
}
