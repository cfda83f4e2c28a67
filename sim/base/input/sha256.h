/* SHA-256 (FIPS 180-4): the digest by which files and runs are recognised. Nettle computes it,
 * which depends on nothing and uses the processor's instructions for it where there are any. */
#ifndef UNMASK_SIM_BASE_INPUT_SHA256_H
#define UNMASK_SIM_BASE_INPUT_SHA256_H

#include <nettle/sha2.h>
#include <stddef.h>

enum { SHA256_HEX_CHARS = 2 * SHA256_DIGEST_SIZE + 1 };

struct sha256 {
    struct sha256_ctx nettle;
};

void sha256_begin(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *bytes, size_t size);
/* The digest in lower-case hexadecimal, ended by a NUL. `sha` is used up. */
void sha256_hex(struct sha256 *sha, char out[SHA256_HEX_CHARS]);

#endif
