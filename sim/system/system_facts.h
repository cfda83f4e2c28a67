/* Descriptions of a resolved system: its configuration as a text, where its prices, decisions and
 * host times come from, and what of that is easy to misread. */
#ifndef UNMASK_SIM_SYSTEM_SYSTEM_FACTS_H
#define UNMASK_SIM_SYSTEM_SYSTEM_FACTS_H

#include <stdio.h>

#include "sim/system/system.h"

/* The resolved configuration as INI text, malloc'd: the same text makes the same system. */
char *system_text(const struct system *system);

/* A policy as results name it: by its own name, its file where it is a plug-in, and the parameters
 * whose values are not the initial ones, spelt as --set takes them. */
struct policy_facts {
    const char *kind, *name, *file; /* file NULL: built in */
    char changed[1024];             /* "patience=5s, most=2"; "": none is */
};
enum { SYSTEM_POLICY_KINDS = 4 }; /* scheduler, cache, decoder, router: the index below */
void system_policy_facts(const struct system *system, int kind, struct policy_facts *out);

/* Whether the value of a key, scheduler or host@h100, names a file where it holds a slash. */
bool system_key_names_file(const char *key);

/* Names of the shipped systems, in file order, with their `doc`. */
int system_list(int (*each)(void *state, const char *name, const char *doc), void *state,
                struct err *err);

/* Where the prices of what ranks exchange come from: a profile's kind and source, or what is
 * assumed. NULL where a replica is one GPU. */
const char *system_collectives(const struct system *system, char *text, size_t size);

/* Where the process comes from that a simulated run draws from: calibrated, transferred or assumed.
 */
struct provenance system_decisions(const struct system *system);

/* "measured", "imported", "transferred" or "roofline". */
const char *system_profile_kind(const struct system *system);
const char *system_profile_source(const struct system *system);

/* The same as a value: of the profile, whatever its source, or of the data sheet. */
struct provenance system_prices(const struct system *system);

/* Whose kernels the prices are of, scaled or not, and their name: "unmask", "vLLM 0.24.0"; NULL:
 * none, or not known. */
enum price_source system_price_source(const struct system *system);
const char *system_price_kernels(const struct system *system, char *text, size_t size);

/* What a block of one request takes by the system's prices over what it takes by those of another
 * source, where the same system has both; else NAN. */
double system_price_ratio(const struct system *system, enum price_source other);

/* Whose machine the host times are of: name and factor, and the provenance of host terms and factor
 * together, the weaker of the two. "profile": the machine that the profile of our own runtime was
 * measured on. */
struct host system_host(const struct system *system);

/* What is easy to misread about it: assumed, or of a machine with another GPU. */
void system_warn_of_host(const struct system *system, struct warnings *warnings);

/* That the attention of a checkpoint's model was taken from its family, where it may have another.
 * system_warn_of_settings says so, too. */
void system_warn_of_attention(const struct system *system, struct warnings *warnings);

/* One warning for each assumed setting whose value is still the file's. */
void system_warn_of_settings(const struct system *system, struct warnings *warnings);

/* That its threshold, blocks or temperature are not those that its decode process was located
 * under: what is drawn then rests on the process's shape. */
void system_warn_of_decisions(const struct system *system, struct warnings *warnings);

/* A mixture whose price goes by chance: its trained router's hits were not counted, or random
 * weights are set. */
void system_warn_of_experts(const struct system *system, struct warnings *warnings);

/* Of a mixture that a device runs with other weights than its prices stand for: random ones
 * (has_random_weights) choose other experts than a trained router does. */
void system_warn_of_weights(const struct system *system, bool has_random_weights,
                            struct warnings *warnings);

/* Where the prices come from, beyond kind and source, for people: the provenance lines of a user's
 * own profile, and for a transferred profile how far off the like of it was
 * where that can be checked (which reads two more profiles). */
void system_print_provenance(const struct system *system, FILE *out);

#endif
