/* A parcel: a sequence of values, taken out in the order in which they were put in.
 *
 * It goes between ranks of one build on machines of one kind: numbers are as in memory. */
#ifndef UNMASK_EXPERIMENTS_RUN_RANKS_PARCEL_H
#define UNMASK_EXPERIMENTS_RUN_RANKS_PARCEL_H

#include <jansson.h>
#include <stddef.h>

struct parcel {
    unsigned char *bytes;
    size_t n, room;
    size_t at; /* what was taken out ends here */
};

/* Bytes of any kind, whose number the taker knows. */
void parcel_put(struct parcel *parcel, const void *bytes, size_t n);
void parcel_take(struct parcel *parcel, void *bytes, size_t n);

/* Texts and JSON values; NULL comes out as NULL. What is taken is the caller's. */
void parcel_put_text(struct parcel *parcel, const char *text);
char *parcel_take_text(struct parcel *parcel);
void parcel_put_json(struct parcel *parcel, const json_t *value);
json_t *parcel_take_json(struct parcel *parcel);

/* Empty again, with its room; and without. */
void parcel_clear(struct parcel *parcel);
void parcel_fini(struct parcel *parcel);

#endif
