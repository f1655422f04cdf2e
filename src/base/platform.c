/* Files in memory: mapped where that is possible. */
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- files that are cut short under a mapping ----
 *
 * The kernel answers a look beyond the new end by SIGBUS, which would end the process, a user's interpreter included. A
 * handler puts zeros there instead and leaves a note, and the reader, who trusts no byte anyway, finds it afterwards.
 * Signals are the process's: the handler is put in place once, knows only addresses that this thread has mapped, and
 * hands every other fault to the handler that was there before. */

struct Mapping {
  char *start;
  size_t size; /* whole pages */
  volatile sig_atomic_t torn;
  Mapping *next;
};

static _Thread_local Mapping *mappings;
static pthread_once_t handler_in_place = PTHREAD_ONCE_INIT;
static struct sigaction handler_before;

static bool fill_with_zeros(char *address) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (Mapping *mapping = mappings; mapping; mapping = mapping->next) {
    if (address < mapping->start || address >= mapping->start + mapping->size) continue;
    size_t before = (size_t)(address - mapping->start) / page * page;
    void *zeros = mmap(mapping->start + before, mapping->size - before, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    mapping->torn = 1;
    return zeros != MAP_FAILED;
  }
  return false;
}

static void on_bus_error(int number, siginfo_t *info, void *registers) {
  int reason = errno;
  bool ours = fill_with_zeros(info->si_addr);
  errno = reason;
  if (ours) return;
  if (handler_before.sa_flags & SA_SIGINFO) handler_before.sa_sigaction(number, info, registers);
  else if (handler_before.sa_handler == SIG_DFL || handler_before.sa_handler == SIG_IGN) signal(number, SIG_DFL);
  else handler_before.sa_handler(number);
}

static void put_handler_in_place(void) {
  struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &handler_before);
}

static Mapping *watch(char *start, size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  Mapping *mapping = malloc(sizeof *mapping);
  if (!mapping) return NULL;
  pthread_once(&handler_in_place, put_handler_in_place);
  *mapping = (Mapping){.start = start, .size = (size + page - 1) / page * page, .next = mappings};
  return mappings = mapping;
}

static void stop_watching(Mapping *mapping) {
  for (Mapping **at = &mappings; *at; at = &(*at)->next) {
    if (*at != mapping) continue;
    *at = mapping->next;
    break;
  }
  free(mapping);
}

bool file_is_torn(const MappedFile *file) { return file->mapping && file->mapping->torn; }

/* ---- reading and mapping ---- */

/* errno survives the close, for the message. */
static _Noreturn void fail_closing(Context *context, int descriptor, const char *path) {
  int reason = errno;
  close(descriptor);
  fail(context, ERROR_IO, "%s: %s", path, strerror(reason));
}

typedef struct OpenDescriptor {
  Cleanup cleanup;
  int descriptor;
} OpenDescriptor;

static void close_open(Cleanup *cleanup) { close(((OpenDescriptor *)cleanup)->descriptor); }

/* A pipe, or a device, which may never end: a model has less than 2 GiB. */
static void read_whole(Context *context, int descriptor, const char *path, MappedFile *file) {
  const size_t most = (size_t)2 << 30;
  size_t capacity = 1 << 16;
  unsigned char *bytes = malloc(capacity);
  for (;;) {
    if (!bytes) {
      close(descriptor);
      fail(context, ERROR_MEMORY, "file");
    }
    file->allocated = bytes;
    ssize_t got = read(descriptor, bytes + file->size, capacity - file->size);
    if (got < 0 && errno == EINTR) {
      OpenDescriptor open = {{.run = close_open}, descriptor};
      cleanup_push(context, &open.cleanup);
      interruption_point(context);
      cleanup_drop(context, &open.cleanup);
      continue;
    }
    if (got > 0 && file->size > most - (size_t)got) {
      errno = EFBIG;
      got = -1;
    }
    if (got < 0) {
      file_unmap(file);
      fail_closing(context, descriptor, path);
    }
    if (got == 0) break;
    file->size += (size_t)got;
    if (file->size < capacity) continue;
    unsigned char *larger = realloc(bytes, capacity *= 2);
    if (!larger) file_unmap(file);
    bytes = larger;
  }
  file->data = bytes;
}

bool file_map_descriptor(int descriptor, MappedFile *file) {
  *file = (MappedFile){0};
  struct stat status;
  if (fstat(descriptor, &status) != 0) return false;
  if (status.st_size <= 0) return true;
  void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (mapped == MAP_FAILED) return false;
  file->mapping = watch(mapped, (size_t)status.st_size);
  if (!file->mapping) {
    munmap(mapped, (size_t)status.st_size);
    return false;
  }
  file->data = mapped;
  file->size = (size_t)status.st_size;
  return true;
}

/* Takes over the descriptor. */
static void map_opened(Context *context, int descriptor, const char *path, MappedFile *file) {
  *file = (MappedFile){0};
  if (descriptor < 0) {
    int reason = errno;
    if (reason == EINTR) interruption_point(context); /* a pipe that nobody writes to */
    fail(context, ERROR_IO, "%s: %s", path, strerror(reason));
  }
  struct stat status;
  if (fstat(descriptor, &status) != 0) fail_closing(context, descriptor, path);
  if (!S_ISREG(status.st_mode)) read_whole(context, descriptor, path, file);
  else if (!file_map_descriptor(descriptor, file)) fail_closing(context, descriptor, path);
  close(descriptor);
}

void file_map(Context *context, const char *path, MappedFile *file) {
  map_opened(context, open(path, O_RDONLY | O_CLOEXEC), path, file);
}

void file_map_standard_input(Context *context, MappedFile *file) {
  map_opened(context, dup(STDIN_FILENO), "standard input", file);
}

void file_unmap(MappedFile *file) {
  if (file->mapping) stop_watching(file->mapping);
  if (file->allocated) free(file->allocated);
  else if (file->data) munmap((void *)(uintptr_t)file->data, file->size);
  *file = (MappedFile){0};
}

bool path_exists(const char *path) { return access(path, F_OK) == 0; }
