/* Functions that a callback may not call: what they answer is another in every run, or stays when
 * the run is over. */
#ifndef UNMASK_SIM_POLICY_PLUGIN_FORBIDDEN_H
#define UNMASK_SIM_POLICY_PLUGIN_FORBIDDEN_H

#include <stdbool.h>

/* In a trial, of a shared object that is loaded: from now on a call of such a function ends it with
 * a sentence. `symbol` is any address in the object. Other formats than ELF stay as they are. */
void forbidden_watch(const void *symbol);

/* Whether the object that holds `symbol` calls a function of another object that could take memory
 * of the heap. Where that cannot be known: true. */
bool forbidden_may_allocate(const void *symbol);

#endif
