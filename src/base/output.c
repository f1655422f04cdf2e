/* Output. */
#include "base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/output_state.h"

enum {
  PAGE = 4096, /* of every disk, if not of every machine */
  LEAST_DIRECT = 1 << 20,
  PORTION = 8 << 20,     /* bytes written at once, and then handed to the disk while the next are made */
  MOST_TRIES = 100,      /* of names that were all taken: something is wrong */
  MOST_COMPANIONS = 9999 /* names for one companion */
};

void output_fail(const Output *output, const char *what) {
  fail(output->context, ERROR_IO, "cannot %s '%s': %s", what, output->path, strerror(errno));
}

static void close_descriptor(int *descriptor) {
  if (*descriptor >= 0) close(*descriptor);
  *descriptor = -1;
}

static void remove_temporary(OutputFile *file) {
  if (file->temporary) unlinkat(file->output->folder, file->temporary, 0);
  file->temporary = NULL;
}

static void give_up_file(OutputFile *file) {
  if (file->claimed) unlinkat(file->output->folder, file->name, 0);
  remove_temporary(file);
  close_descriptor(&file->descriptor);
}

static void unlock(Output *output) {
  if (output->lock >= 0) unlinkat(output->folder, output->lock_name, 0);
  close_descriptor(&output->lock);
}

static void release(Cleanup *cleanup) {
  Output *output = (Output *)(void *)cleanup;
  /* After a commit that did not come to its end, the replaced file has the temporary name, and is for the next to
   * sweep. */
  if (output->committed) output->main->temporary = NULL;
  if (output->main) give_up_file(output->main);
  for (OutputFile *file = output->companions; file; file = file->next) give_up_file(file);
  unlock(output);
  close_descriptor(&output->awaited);
  close_descriptor(&output->dead);
  close_descriptor(&output->folder);
}

Output *output_open(Context *context, const char *path, const OutputOptions *options) {
  Output *output = arena_new(&context->arena, Output);
  *output = (Output){.cleanup.run = release, .context = context, .options = *options, .path = path};
  output->folder = output->lock = output->awaited = output->dead = -1;
  cleanup_push(context, &output->cleanup);
  output_find_target(output);
  return output;
}

bool output_is_stream(const Output *output) { return output->folder < 0; }

bool output_is_elsewhere(const Output *output) { return output->elsewhere; }

const char *output_stem(const Output *output) { return output->stem; }

/* ---- temporary files ---- */

static const char *random_name(const Output *output, const char *ending) {
  unsigned char bytes[8];
  char text[32];
  if (getentropy(bytes, sizeof bytes) != 0) output_fail(output, "find a temporary name for");
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
  snprintf(text + 2 * sizeof bytes, sizeof text - 2 * sizeof bytes, ".%s", ending);
  return output_hidden_name(output, text);
}

/* Where a file system has no locks, nobody can tell that this writer lives, and nobody will sweep. */
static void lock_temporary(int descriptor) {
  while (flock(descriptor, LOCK_EX) != 0 && errno == EINTR) continue;
}

/* Whoever knows of companions sweeps what may have some; the others sweep their own kind only. */
static const char *temporary_kind(const Output *output) { return output->options.find_companions ? "tmp" : "part"; }

/* One that was swept between being made and being locked is made again. */
static void open_temporary(OutputFile *file) {
  Output *output = file->output;
  for (int tries = 0; tries < MOST_TRIES; tries++) {
    const char *name = random_name(output, temporary_kind(output));
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    file->descriptor = openat(output->folder, name, flags, output->exists ? 0600 : 0666);
    if (file->descriptor < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (file->descriptor < 0) output_fail(output, "write");
    file->temporary = name;
    lock_temporary(file->descriptor);
    if (output_still_named(output, name, file->descriptor)) return;
    give_up_file(file);
  }
  errno = EEXIST;
  output_fail(output, "write");
}

static void open_stream(OutputFile *file) {
  do {
    interruption_point(file->output->context);
    file->descriptor = open(file->output->path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);
  } while (file->descriptor < 0 && errno == EINTR);
  if (file->descriptor < 0) output_fail(file->output, "write");
}

static OutputFile *new_file(Output *output) {
  OutputFile *file = arena_new(&output->context->arena, OutputFile);
  *file = (OutputFile){.output = output, .descriptor = -1};
  return file;
}

OutputFile *output_main(Output *output) {
  output->main = new_file(output);
  if (output_is_stream(output)) open_stream(output->main);
  else open_temporary(output->main);
  return output->main;
}

static OutputFile *add_companion(Output *output) {
  OutputFile *file = new_file(output);
  file->next = output->companions;
  output->companions = file;
  return file;
}

OutputFile *output_companion(Output *output) {
  OutputFile *file = add_companion(output);
  open_temporary(file);
  return file;
}

/* The disk begins with what is there, so that little is left to wait for at the end. */
static void begin_flush(OutputFile *file) {
#ifdef SYNC_FILE_RANGE_WRITE
  if (file->output->options.skip_sync || !file->temporary || file->size - file->flushed < PORTION) return;
  sync_file_range(file->descriptor, (off_t)file->flushed, (off_t)(file->size - file->flushed), SYNC_FILE_RANGE_WRITE);
  file->flushed = file->size;
#else
  (void)file;
#endif
}

#ifdef O_DIRECT
static bool set_direct(OutputFile *file, bool direct) {
  if (file->direct == direct) return true;
  int flags = fcntl(file->descriptor, F_GETFL);
  if (flags < 0 || fcntl(file->descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) return false;
  file->direct = direct;
  return true;
}
#endif

/* From memory that lies on a page, the disk takes pages without a copy of them in the system's cache, which costs more
 * than the disk does. Where the disk is not waited for, or the file system does not know this, the cache has them. */
static bool can_be_direct(OutputFile *file, const struct iovec *part) {
#ifdef O_DIRECT
  if (file->output->options.skip_sync || !file->temporary || file->never_direct) return false;
  if (file->size % PAGE || (uintptr_t)part->iov_base % PAGE || part->iov_len < LEAST_DIRECT) return false;
  file->never_direct = !set_direct(file, true);
  return !file->never_direct;
#else
  (void)file, (void)part;
  return false;
#endif
}

/* EINVAL: not here. What is left of the write is tried again through the cache, as all that is not whole pages. */
static ssize_t write_direct(OutputFile *file, const struct iovec *part) {
  size_t whole = part->iov_len / PAGE * PAGE;
  ssize_t written = write(file->descriptor, part->iov_base, whole < PORTION ? whole : PORTION);
  if (written >= 0 || errno != EINVAL) return written;
  file->never_direct = true;
  return 0;
}

static ssize_t write_some(OutputFile *file, const struct iovec *parts, int count) {
  if (can_be_direct(file, parts)) return write_direct(file, parts);
#ifdef O_DIRECT
  if (!set_direct(file, false)) return -1;
#endif
  if (parts->iov_len > PORTION) return write(file->descriptor, parts->iov_base, PORTION);
  size_t total = 0;
  int used = 0;
  while (used < count && parts[used].iov_len <= PORTION - total) total += parts[used++].iov_len;
  return writev(file->descriptor, parts, used);
}

void output_write(OutputFile *file, struct iovec *parts, int count) {
  while (count > 0) {
    interruption_point(file->output->context);
    ssize_t written = write_some(file, parts, count);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) output_fail(file->output, "write");
    file->size += (uint64_t)written;
    if (file->watched) *file->watched += (uint64_t)written;
    begin_flush(file);
    size_t left = (size_t)written;
    for (; count > 0 && left >= parts->iov_len; count--) left -= parts++->iov_len;
    if (count > 0) {
      parts->iov_base = (char *)parts->iov_base + left;
      parts->iov_len -= left;
    }
  }
}

void output_watch(OutputFile *file, uint64_t *written) { file->watched = written; }

void output_skip(OutputFile *file, uint64_t size) {
  if (size > INT64_MAX || lseek(file->descriptor, (off_t)size, SEEK_CUR) < 0) output_fail(file->output, "write");
  file->size += size;
}

const char *output_temporary_name(const OutputFile *file) { return file->temporary; }

/* The new file is for those for whom the old one was. Where its group cannot be kept, the group it has instead may do
 * no more than everybody. */
static void keep_mode(const OutputFile *file) {
  const Output *output = file->output;
  struct stat now;
  if (!output->exists) return;
  if (fstat(file->descriptor, &now) != 0) output_fail(output, "write");
  mode_t mode = output->status.st_mode & 0777;
  if (now.st_gid != output->status.st_gid && fchown(file->descriptor, (uid_t)-1, output->status.st_gid) != 0) {
    mode &= (mode_t)(0707 | (mode & 7) << 3);
  }
  if (now.st_uid != output->status.st_uid && fchown(file->descriptor, output->status.st_uid, (gid_t)-1) != 0) {
    mode &= 0777; /* ours it is, then */
  }
  if ((now.st_mode & 0777) != mode && fchmod(file->descriptor, mode) != 0) output_fail(output, "set the mode of");
}

/* A network file system may tell of a failed write only when a descriptor is closed. This one must stay open, for its
 * lock; a second one will do. */
static bool close_copy(int descriptor) {
  int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  return copy >= 0 && close(copy) == 0;
}

/* All bytes are where they will be found. */
static void seal(OutputFile *file) {
  const Output *output = file->output;
  if (file->temporary) keep_mode(file);
  bool sync = file->temporary && !output->options.skip_sync;
  if (sync ? fsync(file->descriptor) != 0 : !close_copy(file->descriptor)) output_fail(output, "write");
}

/* Names are on the disk. Some file systems have nothing to do for that, and say so by an error. */
static void sync_folder(const Output *output) {
  if (output->options.skip_sync || fsync(output->folder) == 0) return;
  if (errno != EINVAL && errno != EBADF && errno != ENOTSUP && errno != EROFS) output_fail(output, "write");
}

/* ---- the lock ---- */

static int open_lock(const Output *output) {
  int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int descriptor = openat(output->folder, output->lock_name, O_RDWR | O_CREAT | flags, 0666);
  if (descriptor < 0 && errno == EACCES) descriptor = openat(output->folder, output->lock_name, O_RDONLY | flags);
  return descriptor;
}

/* False where there are no locks. */
static bool wait_for_lock(const Output *output, int descriptor) {
  while (flock(descriptor, LOCK_EX) != 0) {
    if (errno != EINTR) return false;
    interruption_point(output->context);
  }
  return true;
}

/* The lock goes with its file: who waited for one that is gone takes the next, and so does who found one that was gone
 * before it was open. Without locks outputs are as whole, but what they replace may stay. */
static void take_lock(Output *output) {
  if (output->lock >= 0) return;
  output->lock_name = output_hidden_name(output, "lock");
  for (int missed = 0; missed < MOST_TRIES;) {
    output->awaited = open_lock(output);
    if (output->awaited < 0 && errno != EINTR && errno != ENOENT) return;
    if (output->awaited < 0) {
      missed += errno == ENOENT;
      continue;
    }
    bool held = wait_for_lock(output, output->awaited);
    if (held && output_still_named(output, output->lock_name, output->awaited)) {
      output->lock = output->awaited;
      output->awaited = -1;
      return;
    }
    close_descriptor(&output->awaited);
    if (!held) return;
  }
}

/* ---- companions ---- */

static void forget_companion(OutputFile *file) {
  give_up_file(file);
  for (OutputFile **at = &file->output->companions; *at; at = &(*at)->next) {
    if (*at != file) continue;
    *at = file->next;
    return;
  }
}

OutputFile *output_keep(Output *output, uint64_t size, bool (*same)(OutputFile *file, void *data), void *data) {
  if (output_is_stream(output)) return NULL;
  BesideList list;
  output_companions_of(output, output->name, &list);
  for (size_t i = 0; i < list.count; i++) {
    OutputFile *file = add_companion(output);
    file->kept = true;
    file->name = list.items[i].name;
    file->descriptor = openat(output->folder, file->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool found = file->descriptor >= 0 && fstat(file->descriptor, &file->status) == 0;
    if (found && S_ISREG(file->status.st_mode) && (uint64_t)file->status.st_size == size && same(file, data))
      return file;
    forget_companion(file);
  }
  return NULL;
}

void output_refer(Output *output, const char *name) {
  OutputFile *file = add_companion(output);
  file->kept = true;
  file->name = name;
  file->descriptor = openat(output->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file->descriptor < 0) forget_companion(file); /* it is not there, and nobody removes it */
}

bool output_same(const OutputFile *file, uint64_t offset, const void *bytes, size_t size) {
  char buffer[1 << 16];
  for (const char *at = bytes; size;) {
    ssize_t got = pread(file->descriptor, buffer, size < sizeof buffer ? size : sizeof buffer, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || !same_bytes(at, buffer, (size_t)got)) return false;
    at += got;
    offset += (uint64_t)got;
    size -= (size_t)got;
  }
  return true;
}

/* Nobody has written to it or taken its name, and under the lock nobody will. */
static bool kept_as_it_was(const OutputFile *file) {
  const Output *output = file->output;
  struct stat now;
  return output->lock >= 0 && fstat(file->descriptor, &now) == 0 && now.st_size == file->status.st_size &&
         now.st_mtim.tv_sec == file->status.st_mtim.tv_sec && now.st_mtim.tv_nsec == file->status.st_mtim.tv_nsec &&
         output_still_named(output, file->name, file->descriptor);
}

static bool is_free(const Output *output, const char *name) {
  struct stat status;
  return fstatat(output->folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT;
}

/* The token is computed only when it is needed. */
static const char *own_name(const Output *output, const char *ending, const char *token) {
  Arena *arena = &output->context->arena;
  const char *name = arena_format(arena, "%s.%s.%s", output->stem, token, ending);
  for (int i = 1; !is_free(output, name); i++) {
    if (i > MOST_COMPANIONS) output_fail(output, "write");
    name = arena_format(arena, "%s.%s-%d.%s", output->stem, token, i, ending);
  }
  return name;
}

const char *output_choose_name(OutputFile *file, const char *ending, const char *(*token)(void *data), void *data) {
  Output *output = file->output;
  take_lock(output);
  output_sweep(output);
  if (file->claimed) return file->name; /* the commit found another one taken */
  if (file->kept) {
    if (kept_as_it_was(file)) return file->name;
    forget_companion(file);
    return NULL;
  }
  const char *first = arena_format(&output->context->arena, "%s.%s", output->stem, ending);
  BesideList replaced;
  bool none = output_companions_of(output, output->name, &replaced) && !replaced.count;
  bool free = output->options.fixed_names || (none && is_free(output, first));
  file->name = free ? first : own_name(output, ending, token(data));
  return file->name;
}

/* ---- the commit ---- */

static bool is_new_companion(const Output *output, const char *name) {
  for (const OutputFile *file = output->companions; file; file = file->next) {
    if (same_text(file->name, name)) return true;
  }
  return false;
}

/* What belongs to the file that is replaced, and not to the new one. False: there may be more. */
static bool companions_to_remove(const Output *output, BesideList *gone) {
  BesideList all;
  bool known = output_companions_of(output, output->name, &all);
  for (size_t i = 0; i < all.count; i++) {
    if (!is_new_companion(output, all.items[i].name)) array_push(output->context, gone, all.items[i]);
  }
  return known;
}

/* Names are only given where nobody has them. False: somebody has taken this one. */
static bool name_companion(OutputFile *file) {
  const Output *output = file->output;
  int folder = output->folder;
  bool fixed = output->options.fixed_names, named = false;
  errno = ENOSYS;
#ifdef RENAME_NOREPLACE
  named = !fixed && renameat2(folder, file->temporary, folder, file->name, RENAME_NOREPLACE) == 0;
#endif
  if (!named && !fixed && (errno == ENOSYS || errno == EINVAL)) {
    fixed = is_free(output, file->name);
    errno = EEXIST;
  }
  if (fixed) named = renameat(folder, file->temporary, folder, file->name) == 0;
  if (!named && errno != EEXIST) output_fail(output, "write");
  if (!named) return false;
  file->temporary = NULL;
  file->claimed = !output->options.fixed_names;
  return true;
}

static bool name_companions(const Output *output) {
  for (OutputFile *file = output->companions; file; file = file->next) {
    if (file->kept && !output->options.skip_sync && fsync(file->descriptor) != 0) output_fail(output, "write");
    if (file->temporary && !name_companion(file)) return false;
  }
  if (output->companions) sync_folder(output);
  return true;
}

/* The two files change names where the old one has companions: under the temporary name it tells whoever sweeps after a
 * kill what is to be removed. */
static void name_main(Output *output, bool exchange) {
  int folder = output->folder;
  OutputFile *main = output->main;
  bool named = false;
#ifdef RENAME_EXCHANGE
  named = exchange && renameat2(folder, main->temporary, folder, output->name, RENAME_EXCHANGE) == 0;
  if (!named && exchange && errno != ENOSYS && errno != EINVAL && errno != ENOENT) output_fail(output, "write");
#else
  (void)exchange;
#endif
  if (!named) {
    if (renameat(folder, main->temporary, folder, output->name) != 0) output_fail(output, "write");
    main->temporary = NULL;
  }
  output->committed = true;
  for (OutputFile *file = output->companions; file; file = file->next) file->claimed = false;
}

static void finish(Output *output) {
  cleanup_drop(output->context, &output->cleanup);
  release(&output->cleanup);
}

static void seal_all(Output *output) {
  seal(output->main);
  for (OutputFile *file = output->companions; file; file = file->next) {
    if (!file->kept) seal(file);
  }
}

bool output_commit(Output *output) {
  seal_all(output);
  if (output_is_stream(output)) {
    finish(output);
    return true;
  }
  if (output->options.find_companions) take_lock(output);
  BesideList gone = {0};
  bool known = companions_to_remove(output, &gone);
  if (!name_companions(output)) {
    give_up_file(output->main);
    return false;
  }
  name_main(output, gone.count > 0 || !known);
  sync_folder(output);
  bool removed = known;
  for (size_t i = 0; i < gone.count; i++) removed = output_remove(output, &gone.items[i]) && removed;
  if (removed) remove_temporary(output->main);
  output_sweep(output);
  finish(output);
  return true;
}

void output_bytes(Context *context, const char *path, const void *bytes, size_t size, const OutputOptions *options) {
  Output *output = output_open(context, path, options);
  struct iovec part = {(void *)(uintptr_t)bytes, size};
  output_write(output_main(output), &part, 1);
  output_commit(output);
}
