/* Randomness. */
#include "base/entropy.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/random.h>

#include "base/bytes.h"
#endif

static size_t from_kernel(unsigned char *bytes, size_t size) {
#ifdef __linux__
  ssize_t got = getrandom(bytes, size, GRND_NONBLOCK);
  return got > 0 ? (size_t)got : 0;
#else
  (void)bytes, (void)size;
  return 0;
#endif
}

static size_t from_device(unsigned char *bytes, size_t size) {
  int descriptor = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return 0;
  ssize_t got = read(descriptor, bytes, size);
  close(descriptor);
  return got > 0 ? (size_t)got : 0;
}

/* Where there is neither: the clock and where things lie in memory, which is hard to foresee. */
static void from_clock(unsigned char *bytes, size_t size) {
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t state = (uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30 ^ (uint64_t)(uintptr_t)&now ^ (uint64_t)getpid();
  for (size_t i = 0; i < size; i++) {
    state = (state ^ state >> 29) * 0xD6E8FEB86659FD93u + 0x9E3779B97F4A7C15u;
    bytes[i] = (unsigned char)(state >> 56);
  }
}

void random_bytes(void *bytes, size_t size) {
  fill_bytes(bytes, 0, size);
  if (from_kernel(bytes, size) == size || from_device(bytes, size) == size) return;
  from_clock(bytes, size);
}
