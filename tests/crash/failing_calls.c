/* A preloaded library that makes system calls fail, one by one, for the tests of output.
 *
 * Once armed with a number, the calling thread's calls are counted, and the one of that number fails, is interrupted,
 * writes less than it should, or never happens because the process is killed before it. Flushing to the disk only
 * pretends to: what a power failure would do is not tested here, and the tests shall be fast.
 */
#undef _FILE_OFFSET_BITS /* which would give two of them one name */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MODE_OFF, MODE_FAIL, MODE_INTERRUPT, MODE_SHORT, MODE_KILL, MODE_UNSUPPORTED };

static _Thread_local int armed;
static _Thread_local long wanted, counted;
static _Thread_local const char *struck;

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void failing_calls_arm(int mode, long number) {
  armed = mode;
  wanted = number;
  counted = 0;
  struck = NULL;
}

EXPORTED long failing_calls_disarm(void) {
  armed = MODE_OFF;
  return counted;
}

/* The name of the call that was struck, or NULL. */
EXPORTED const char *failing_calls_struck(void) { return struck; }

/* Of the calls since it was armed, numbered from 1: the name of one. */
enum { MOST_NAMES = 4096 };
static _Thread_local const char *names[MOST_NAMES];
EXPORTED const char *failing_calls_name(long number) { return number < MOST_NAMES ? names[number] : NULL; }

/* Not every file system has these. */
static bool is_optional(const char *name) {
  static const char *const optional[] = {"flock", "renameat2", "sync_file_range", "linkat"};
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
    if (strcmp(name, optional[i]) == 0) return true;
  }
  return false;
}

/* Whether this call shall fail; errno is set then. */
static bool strikes(const char *name) {
  if (armed == MODE_OFF) return false;
  if (armed == MODE_UNSUPPORTED) {
    errno = strcmp(name, "flock") == 0 ? ENOLCK : ENOSYS;
    return is_optional(name);
  }
  if (++counted < MOST_NAMES) names[counted] = name;
  if (counted != wanted) return false;
  struck = name;
  if (armed == MODE_KILL) {
    kill(getpid(), SIGKILL);
    pause();
  }
  errno = armed == MODE_INTERRUPT ? EINTR : strncmp(name, "write", 5) == 0 ? ENOSPC : EIO;
  return armed != MODE_SHORT;
}

static void *next(const char *name) {
  int mode = armed;
  armed = MODE_OFF;
  void *function = dlsym(RTLD_NEXT, name);
  armed = mode;
  return function;
}

#define FAILED_int -1
#define FAILED_ssize_t -1
#define CALL(type, name, parameters, arguments)       \
  EXPORTED type name parameters {                     \
    if (strikes(#name)) return (type)(FAILED_##type); \
    type(*function) parameters;                       \
    *(void **)(void *)&function = next(#name);        \
    return function arguments;                        \
  }

CALL(int, close, (int a), (a))
CALL(int, renameat, (int a, const char *b, int c, const char *d), (a, b, c, d))
CALL(int, renameat2, (int a, const char *b, int c, const char *d, unsigned e), (a, b, c, d, e))
CALL(int, rename, (const char *a, const char *b), (a, b))
CALL(int, linkat, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e))
CALL(int, unlinkat, (int a, const char *b, int c), (a, b, c))
CALL(int, unlink, (const char *a), (a))
CALL(int, ftruncate, (int a, off_t b), (a, b))
CALL(int, ftruncate64, (int a, off_t b), (a, b))
CALL(int, flock, (int a, int b), (a, b))
CALL(int, fchmod, (int a, mode_t b), (a, b))
CALL(int, fchown, (int a, uid_t b, gid_t c), (a, b, c))
CALL(int, access, (const char *a, int b), (a, b))
CALL(int, faccessat, (int a, const char *b, int c, int d), (a, b, c, d))
CALL(int, getentropy, (void *a, size_t b), (a, b))
CALL(int, sync_file_range, (int a, off64_t b, off64_t c, unsigned d), (a, b, c, d))
CALL(int, fstat, (int a, struct stat *b), (a, b))
CALL(int, fstat64, (int a, struct stat64 *b), (a, b))
CALL(int, stat, (const char *restrict a, struct stat *restrict b), (a, b))
CALL(int, stat64, (const char *restrict a, struct stat64 *restrict b), (a, b))
CALL(int, lstat, (const char *restrict a, struct stat *restrict b), (a, b))
CALL(int, lstat64, (const char *restrict a, struct stat64 *restrict b), (a, b))
CALL(int, fstatat, (int a, const char *restrict b, struct stat *restrict c, int d), (a, b, c, d))
CALL(int, fstatat64, (int a, const char *restrict b, struct stat64 *restrict c, int d), (a, b, c, d))
CALL(int, munmap, (void *a, size_t b), (a, b))
CALL(int, closedir, (DIR * a), (a))
CALL(ssize_t, readlink, (const char *restrict a, char *restrict b, size_t c), (a, b, c))
CALL(ssize_t, read, (int a, void *b, size_t c), (a, b, c))
CALL(ssize_t, pread, (int a, void *b, size_t c, off_t d), (a, b, c, d))
CALL(ssize_t, pread64, (int a, void *b, size_t c, off64_t d), (a, b, c, d))

/* What the compiler makes of some of them where it checks sizes. */
CALL(ssize_t, __readlink_chk, (const char *restrict a, char *restrict b, size_t c, size_t d), (a, b, c, d))
CALL(ssize_t, __read_chk, (int a, void *b, size_t c, size_t d), (a, b, c, d))
CALL(ssize_t, __pread64_chk, (int a, void *b, size_t c, off64_t d, size_t e), (a, b, c, d, e))
CALL(int, __open64_2, (const char *a, int b), (a, b))
CALL(int, __openat64_2, (int a, const char *b, int c), (a, b, c))

typedef DIR *directory;
typedef struct dirent *entry;
typedef struct dirent64 *entry64;
#define FAILED_directory NULL
#define FAILED_entry NULL
#define FAILED_entry64 NULL
CALL(directory, fdopendir, (int a), (a))
CALL(entry, readdir, (DIR * a), (a))
CALL(entry64, readdir64, (DIR * a), (a))

/* To the disk: only the failures are real. */
EXPORTED int fsync(int a) {
  (void)a;
  return strikes("fsync") ? -1 : 0;
}

EXPORTED int fdatasync(int a) {
  (void)a;
  return strikes("fdatasync") ? -1 : 0;
}

/* These have arguments of their own kinds, or can do half of what they are asked. */

EXPORTED ssize_t write(int a, const void *b, size_t c) {
  bool whole = counted + 1 != wanted;
  if (strikes("write")) return -1;
  ssize_t (*function)(int, const void *, size_t);
  *(void **)(void *)&function = next("write");
  return function(a, b, !whole && armed == MODE_SHORT && c > 1 ? c / 2 : c);
}

EXPORTED ssize_t writev(int a, const struct iovec *b, int c) {
  bool whole = counted + 1 != wanted;
  if (strikes("writev")) return -1;
  if (!whole && armed == MODE_SHORT && b->iov_len > 1) {
    ssize_t (*less)(int, const void *, size_t);
    *(void **)(void *)&less = next("write");
    return less(a, b->iov_base, b->iov_len / 2);
  }
  ssize_t (*function)(int, const struct iovec *, int);
  *(void **)(void *)&function = next("writev");
  return function(a, b, c);
}

#define OPEN(name, parameters, ...)                                     \
  EXPORTED int name parameters {                                        \
    va_list rest;                                                       \
    va_start(rest, flags);                                              \
    int mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, int) : 0; \
    va_end(rest);                                                       \
    if (strikes(#name)) return -1;                                      \
    int(*function) parameters;                                          \
    *(void **)(void *)&function = next(#name);                          \
    return function(__VA_ARGS__, mode);                                 \
  }

OPEN(open, (const char *path, int flags, ...), path, flags)
OPEN(open64, (const char *path, int flags, ...), path, flags)
OPEN(openat, (int folder, const char *path, int flags, ...), folder, path, flags)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, path, flags)

#define MMAP(name)                                                       \
  EXPORTED void *name(void *a, size_t b, int c, int d, int e, off_t f) { \
    /* Memory that is no file's is the allocator's business. */          \
    if (e >= 0 && strikes(#name)) return MAP_FAILED;                     \
    void *(*function)(void *, size_t, int, int, int, off_t);             \
    *(void **)(void *)&function = next(#name);                           \
    return function(a, b, c, d, e, f);                                   \
  }

MMAP(mmap)
MMAP(mmap64)

#define FCNTL(name)                            \
  EXPORTED int name(int a, int b, ...) {       \
    va_list rest;                              \
    va_start(rest, b);                         \
    void *argument = va_arg(rest, void *);     \
    va_end(rest);                              \
    if (strikes(#name)) return -1;             \
    int (*function)(int, int, ...);            \
    *(void **)(void *)&function = next(#name); \
    return function(a, b, argument);           \
  }

FCNTL(fcntl)
FCNTL(fcntl64)
