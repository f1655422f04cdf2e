/* SHA-256 (FIPS 180-4). */
#include "base/digest.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64, ROUNDS = 64, WORDS = 8 };

static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t word, unsigned by) { return word >> by | word << (32 - by); }

static void expand(uint32_t schedule[ROUNDS], const unsigned char *block) {
  for (size_t i = 0; i < 16; i++) {
    const unsigned char *at = block + 4 * i;
    schedule[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
  }
  for (size_t i = 16; i < ROUNDS; i++) {
    uint32_t a = schedule[i - 15], b = schedule[i - 2];
    uint32_t small = turn(a, 7) ^ turn(a, 18) ^ a >> 3, large = turn(b, 17) ^ turn(b, 19) ^ b >> 10;
    schedule[i] = schedule[i - 16] + small + schedule[i - 7] + large;
  }
}

static void add_block(uint32_t state[WORDS], const unsigned char *block) {
  uint32_t schedule[ROUNDS], w[WORDS];
  expand(schedule, block);
  memcpy(w, state, sizeof w);
  for (size_t i = 0; i < ROUNDS; i++) {
    uint32_t choice = (w[4] & w[5]) ^ (~w[4] & w[6]), majority = (w[0] & w[1]) ^ (w[0] & w[2]) ^ (w[1] & w[2]);
    uint32_t first = w[7] + (turn(w[4], 6) ^ turn(w[4], 11) ^ turn(w[4], 25)) + choice + constants[i] + schedule[i];
    uint32_t second = (turn(w[0], 2) ^ turn(w[0], 13) ^ turn(w[0], 22)) + majority;
    memmove(w + 1, w, (WORDS - 1) * sizeof *w);
    w[4] += first;
    w[0] = first + second;
  }
  for (size_t i = 0; i < WORDS; i++) state[i] += w[i];
}

void digest_text(const void *data, size_t size, char text[DIGEST_LETTERS + 1]) {
  uint32_t state[WORDS] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const unsigned char *bytes = data;
  size_t whole = size / BLOCK * BLOCK, rest = size - whole;
  for (size_t at = 0; at < whole; at += BLOCK) add_block(state, bytes + at);
  unsigned char last[2 * BLOCK] = {0};
  if (rest) memcpy(last, bytes + whole, rest);
  last[rest] = 0x80;
  size_t end = rest + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
  for (size_t i = 0; i < 8; i++) last[end - 1 - i] = (unsigned char)((uint64_t)size * 8 >> (8 * i));
  for (size_t at = 0; at < end; at += BLOCK) add_block(state, last + at);
  for (size_t i = 0; i < WORDS; i++) snprintf(text + 8 * i, 9, "%08x", state[i]);
}
