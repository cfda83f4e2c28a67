/* Which program this is.
 *
 * The digest is over the C sources of the program itself, taken when it was built: it tells two
 * builds apart that the commit does not, of changed files or of an archive without git, and is the
 * same for commits that changed no source. Compiler and its options are not part of it: results do
 * not depend on them. */
#ifndef UNMASK_SIM_BASE_BUILD_H
#define UNMASK_SIM_BASE_BUILD_H

#include <stdbool.h>

#define UNMASK_VERSION "0.2.0"

struct build {
    const char *version;
    const char *commit;  /* "unknown" where the sources were no git checkout */
    const char *sources; /* SHA-256, hexadecimal */
    bool is_dirty;       /* sources differed from the commit */
};

struct build build_this(void);

#endif
