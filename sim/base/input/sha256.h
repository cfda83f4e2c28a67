/* SHA-256 (FIPS 180-4): the digest by which files and runs are recognised.
 *
 * Own code, since every packaged library that has it brings a TLS stack or another dependency for
 * these hundred lines; tests/experiments/test_identity.c holds it against the standard's examples.
 */
#ifndef UNMASK_SIM_BASE_INPUT_SHA256_H
#define UNMASK_SIM_BASE_INPUT_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK_BYTES = 64, SHA256_HEX_CHARS = 2 * SHA256_BYTES + 1 };

struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[SHA256_BLOCK_BYTES];
};

void sha256_init(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *bytes, size_t size);
/* The digest in lower-case hexadecimal, ended by a NUL. `sha` is used up. */
void sha256_hex(struct sha256 *sha, char out[SHA256_HEX_CHARS]);

#endif
