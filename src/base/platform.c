/* Files in memory: mapped where that is possible. */
#include "base/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* errno survives the close, for the message. */
static _Noreturn void fail_closing(Context *context, int descriptor, const char *path) {
  int reason = errno;
  close(descriptor);
  fail(context, ERROR_IO, "%s: %s", path, strerror(reason));
}

static void read_whole(Context *context, int descriptor, const char *path, MappedFile *file) {
  size_t capacity = 1 << 16;
  unsigned char *bytes = malloc(capacity);
  for (;;) {
    if (!bytes) {
      close(descriptor);
      fail(context, ERROR_MEMORY, "file");
    }
    file->allocated = bytes;
    ssize_t got = read(descriptor, bytes + file->size, capacity - file->size);
    if (got < 0 && errno == EINTR) continue;
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

void file_map(Context *context, const char *path, MappedFile *file) {
  *file = (MappedFile){0};
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(context, ERROR_IO, "%s: %s", path, strerror(errno));
  struct stat status;
  if (fstat(descriptor, &status) != 0) fail_closing(context, descriptor, path);
  if (!S_ISREG(status.st_mode)) {
    read_whole(context, descriptor, path, file);
  } else if (status.st_size > 0) {
    file->size = (size_t)status.st_size;
    void *mapped = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped == MAP_FAILED) fail_closing(context, descriptor, path);
    file->data = mapped;
  }
  close(descriptor);
}

void file_unmap(MappedFile *file) {
  if (file->allocated) free(file->allocated);
  else if (file->data) munmap((void *)(uintptr_t)file->data, file->size);
  *file = (MappedFile){0};
}
