/* The rate at which requests came, next to the one that was asked for.
 *
 * A trace is rescaled so that both are one. Draws of finitely many requests, classes, and turns
 * that wait for earlier ones to end come close to what was asked for; where they are further off
 * than RATE_TOLERANCE, every output shows what was offered instead. */
#ifndef UNMASK_ANALYSIS_RATE_H
#define UNMASK_ANALYSIS_RATE_H

#include <stdbool.h>
#include <stddef.h>

#include "sim/base/err.h"

#define RATE_TOLERANCE 0.005

enum { RATE_CHARS = 64 };

/* Requests a second; one that is not known, 0 or NaN, is met. */
bool rate_is_met(double asked_req_s, double offered_req_s);

/* "1 req/s", "0.945 req/s (1 asked for)", or "1 req/s asked for" where the offered rate is
 * not known; "" where none was asked for. Returns `text`. */
const char *rate_text(double asked_req_s, double offered_req_s, char text[RATE_CHARS]);

/* Reads a number above 0; NULL leaves `*out`. ERR_USAGE that begins with `place`, such as "--rate";
 * of infinity, as load generators call all requests at once, it says what that is called here. */
int rate_read(const char *place, const char *text, double *out, struct err *err);

#endif
