/* SHA-256 (FIPS 180-4): what a model or a file is known by. */
#ifndef J2O_BASE_SHA256_H
#define J2O_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_SIZE = 32, SHA256_TEXT = 2 * SHA256_SIZE + 1 };

typedef struct Sha256 {
  uint32_t state[8];
  uint64_t length; /* bytes added so far */
  unsigned char block[64];
} Sha256;

void sha256_init(Sha256 *hash);
void sha256_add(Sha256 *hash, const void *data, size_t size);
/* In hexadecimal. */
void sha256_text(Sha256 *hash, char text[SHA256_TEXT]);

#endif
