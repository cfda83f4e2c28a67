#include "sim/base/input/sha256.h"

#include <nettle/base16.h>
#include <nettle/version.h>
#include <stdint.h>

void sha256_begin(struct sha256 *sha) {
    sha256_init(&sha->nettle);
}

void sha256_add(struct sha256 *sha, const void *bytes, size_t size) {
    sha256_update(&sha->nettle, size, bytes);
}

void sha256_hex(struct sha256 *sha, char out[SHA256_HEX_CHARS]) {
    uint8_t digest[SHA256_DIGEST_SIZE];
#if NETTLE_VERSION_MAJOR < 4
    sha256_digest(&sha->nettle, sizeof digest, digest);
#else
    sha256_digest(&sha->nettle, digest);
#endif
    base16_encode_update(out, sizeof digest, digest);
    out[SHA256_HEX_CHARS - 1] = '\0';
}
