/* SHA-256. */
#include "base/sha256.h"

#include <string.h>

#include "base/bytes.h"

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

void sha256_init(Sha256 *hash) {
  static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  *hash = (Sha256){.length = 0};
  memcpy(hash->state, start, sizeof start);
}

static uint32_t turned(uint32_t word, int bits) { return word >> bits | word << (32 - bits); }

static void expand(const unsigned char *block, uint32_t words[64]) {
  for (int i = 0; i < 16; i++, block += 4) {
    words[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
  }
  for (int i = 16; i < 64; i++) {
    uint32_t a = words[i - 15], b = words[i - 2];
    uint32_t first = turned(a, 7) ^ turned(a, 18) ^ a >> 3, second = turned(b, 17) ^ turned(b, 19) ^ b >> 10;
    words[i] = words[i - 16] + first + words[i - 7] + second;
  }
}

static void mix_block(Sha256 *hash, const unsigned char *block) {
  uint32_t words[64], s[8];
  expand(block, words);
  memcpy(s, hash->state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t high = turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25);
    uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    uint32_t first = s[7] + high + choice + rounds[i] + words[i];
    uint32_t low = turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22);
    uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += first;
    s[0] = first + low + majority;
  }
  for (int i = 0; i < 8; i++) hash->state[i] += s[i];
}

void sha256_add(Sha256 *hash, const void *data, size_t size) {
  const unsigned char *bytes = data;
  while (size) {
    size_t used = hash->length % 64, part = 64 - used < size ? 64 - used : size;
    copy_bytes(hash->block + used, bytes, part);
    hash->length += part;
    bytes += part;
    size -= part;
    if (used + part == 64) mix_block(hash, hash->block);
  }
}

void sha256_text(Sha256 *hash, char text[SHA256_TEXT]) {
  static const unsigned char end[64] = {0x80};
  uint64_t bits = hash->length * 8;
  size_t used = hash->length % 64;
  sha256_add(hash, end, used < 56 ? 56 - used : 120 - used);
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)(bits >> (56 - 8 * i));
  sha256_add(hash, length, sizeof length);
  for (int i = 0; i < SHA256_SIZE; i++) {
    unsigned byte = hash->state[i / 4] >> (24 - 8 * (i % 4)) & 0xFF;
    text[2 * i] = "0123456789abcdef"[byte >> 4];
    text[2 * i + 1] = "0123456789abcdef"[byte & 15];
  }
  text[2 * SHA256_SIZE] = '\0';
}
