/* Whether compiled code runs on a GPU as it is. Code for compute capability X.Y runs on X.Z where Z
 * is at least Y; code for X.Ya on X.Y alone. For any other GPU the driver compiles PTX (CUDA C++
 * programming guide, binary and PTX compatibility). */
#ifndef UNMASK_KERNELS_RULES_CODE_H
#define UNMASK_KERNELS_RULES_CODE_H

#include <stdbool.h>
#include <stdlib.h>

/* code: capabilities times ten with spaces between, as "80 86 90a"; "": PTX alone. capability: the
 * GPU's, times ten. */
static inline bool code_runs_on(const char *code, int capability) {
    bool runs = false;
    for (char *end; *code != '\0'; code = end) {
        const int of = (int)strtol(code, &end, 10);
        if (end == code) { /* a space, or the letter */
            end++;
        } else if (*end == 'a') {
            runs |= of == capability;
        } else {
            runs |= of / 10 == capability / 10 && of <= capability;
        }
    }
    return runs;
}

#endif
