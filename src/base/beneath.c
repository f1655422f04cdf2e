/* Opening beneath a folder: the kernel resolves the name where it can promise not to leave the folder (Linux 5.6 and
 * newer); elsewhere the name is walked part by part and no link is followed at all. */
#include "base/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/syscall.h>

#include "base/bytes.h"
#endif

enum { READING = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, LONGEST_PART = 255 };

static OpenFile no_file(void) { return (OpenFile){.descriptor = -1}; }

/* Takes over the descriptor. What is not a plain file is closed unread: a FIFO would make us wait, a device may do
 * anything. */
static OpenFile plain_file(int descriptor) {
  struct stat status;
  if (descriptor < 0) return no_file();
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
    return (OpenFile){descriptor, (uint64_t)status.st_size, (uint64_t)status.st_dev, (uint64_t)status.st_ino};
  }
  close(descriptor);
  return no_file();
}

#if defined(__linux__) && defined(SYS_openat2)

struct ResolveHow { /* the kernel's struct open_how, which older headers do not have */
  uint64_t flags, mode, resolve;
};

static int resolve_beneath(int folder, const char *name) {
  enum { NO_MAGIC_LINKS = 0x02, BENEATH = 0x08 };
  struct ResolveHow how = {.flags = READING, .resolve = NO_MAGIC_LINKS | BENEATH};
  for (int tries = 0; tries < 8; tries++) { /* a folder that is renamed meanwhile is looked at again */
    int descriptor = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
    if (descriptor >= 0 || errno != EAGAIN) return descriptor;
  }
  return -1;
}

#else

static int resolve_beneath(int folder, const char *name) {
  (void)folder, (void)name;
  errno = ENOSYS;
  return -1;
}

#endif

/* The next part of the name, "" at its end; false where it may not be followed. */
static bool next_part(const char **name, char part[LONGEST_PART + 1]) {
  while (**name == '/') ++*name;
  size_t length = strcspn(*name, "/");
  if (length > LONGEST_PART) return false;
  copy_bytes(part, *name, length);
  part[length] = '\0';
  *name += length;
  return strcmp(part, "..") != 0;
}

static int walk_beneath(int folder, const char *name) {
  char part[LONGEST_PART + 1];
  int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
  while (at >= 0 && next_part(&name, part) && *part) {
    bool is_last = strspn(name, "/") == strlen(name);
    int inner = openat(at, part, is_last ? READING : READING | O_DIRECTORY);
    close(at);
    if (is_last) return inner;
    at = inner;
  }
  if (at >= 0) close(at);
  return -1;
}

static int open_folder(const char *folder) { return open(*folder ? folder : ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY); }

OpenFile open_beneath_by_parts(const char *folder, const char *name) {
  int root = *name == '/' ? -1 : open_folder(folder);
  if (root < 0) return no_file();
  int descriptor = walk_beneath(root, name);
  close(root);
  return plain_file(descriptor);
}

OpenFile open_beneath(const char *folder, const char *name) {
  int root = *name == '/' || !*name ? -1 : open_folder(folder);
  if (root < 0) return no_file();
  int descriptor = resolve_beneath(root, name);
  bool is_missing = descriptor < 0 && (errno == ENOSYS || errno == EPERM); /* an old kernel, or a sandbox */
  close(root);
  return is_missing ? open_beneath_by_parts(folder, name) : plain_file(descriptor);
}

OpenFile open_named(const char *path) { return plain_file(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)); }

void close_file(OpenFile *file) {
  if (file->descriptor >= 0) close(file->descriptor);
  *file = no_file();
}

bool read_at(const OpenFile *file, uint64_t offset, void *bytes, size_t size, size_t *got) {
  *got = 0;
  while (*got < size) {
    if (offset > (uint64_t)INT64_MAX - *got) return true; /* no file is so long */
    ssize_t more = pread(file->descriptor, (char *)bytes + *got, size - *got, (off_t)(offset + *got));
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) return false;
    if (more == 0) return true;
    *got += (size_t)more;
  }
  return true;
}
