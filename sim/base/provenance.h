/* Where a number comes from, as a value that outputs print and code compares.
 *
 * The words are promises (README, "Can the numbers be trusted?"):
 *   measured     timed or counted on the very thing the result speaks of
 *   imported     someone else's published measurement of it
 *   transferred  scaled from a measurement of something else (another GPU, another model)
 *   roofline     computed from a data sheet
 *   calibrated   fitted so that one known result comes out
 *   assumed      chosen; rests on nothing measured or printed */
#ifndef UNMASK_SIM_BASE_PROVENANCE_H
#define UNMASK_SIM_BASE_PROVENANCE_H

enum provenance_kind {
    PROVENANCE_MEASURED,
    PROVENANCE_IMPORTED,
    PROVENANCE_TRANSFERRED,
    PROVENANCE_ROOFLINE,
    PROVENANCE_CALIBRATED,
    PROVENANCE_ASSUMED,
};
enum { PROVENANCE_KIND_COUNT = PROVENANCE_ASSUMED + 1, PROVENANCE_SOURCE_CHARS = 256 };

/* The words above, by kind; NULL after the last. */
extern const char *const provenance_words[PROVENANCE_KIND_COUNT + 1];

struct provenance {
    enum provenance_kind kind;
    char source[PROVENANCE_SOURCE_CHARS]; /* for people; "" where the kind says it all */
    double share; /* of the result that rests on it, 0 to 1; negative: not known */
};

/* A provenance whose share is not known; `source` may be NULL and is cut to fit. */
struct provenance provenance_of(enum provenance_kind kind, const char *source);

/* The kind of a word, or -1. */
int provenance_find(const char *word);

#endif
