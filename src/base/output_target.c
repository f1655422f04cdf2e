/* Where a path leads: to a file that is replaced, to a name that is free, or to a device that is written to. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/output_state.h"
#include "base/spelling.h"

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static const char *folder_of(Context *context, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash) return ".";
  return arena_format(&context->arena, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* In a folder where everybody may write, a link of somebody else's leads where they like: the kernel does not follow it
 * either. */
static bool is_planted(Context *context, const char *path) {
  struct stat link, folder;
  if (lstat(path, &link) != 0 || stat(folder_of(context, path), &folder) != 0) return true;
  bool shared = (folder.st_mode & S_ISVTX) && (folder.st_mode & S_IWOTH);
  return shared && link.st_uid != geteuid() && link.st_uid != folder.st_uid;
}

/* The path without links at its end. */
static const char *followed(const Output *output, const char *path) {
  enum { MOST_LINKS = 40 };
  Context *context = output->context;
  for (int i = 0; i < MOST_LINKS; i++) {
    char text[PATH_MAX];
    ssize_t length = readlink(path, text, sizeof text);
    if (length < 0 && (errno == EINVAL || errno == ENOENT)) return path; /* no link, or nothing */
    if (length < 0) output_fail(output, "write");
    errno = ENAMETOOLONG;
    if (length == sizeof text) output_fail(output, "write");
    errno = EACCES;
    if (is_planted(context, path)) output_fail(output, "follow the link");
    const char *folder = text[0] == '/' ? "" : arena_format(&context->arena, "%s/", folder_of(context, path));
    path = arena_format(&context->arena, "%s%.*s", folder, (int)length, text);
  }
  errno = ELOOP;
  output_fail(output, "write");
}

/* The name as readers of a main file can be told it: bytes that are no UTF-8 are replaced. */
static const char *stem_of(Context *context, const char *name) {
  char *stem = arena_copy_text(&context->arena, name);
  for (size_t at = 0, left = strlen(stem); left;) {
    size_t length = utf8_sequence(stem + at, left);
    if (!length) stem[at] = '_';
    at += length ? length : 1;
    left -= length ? length : 1;
  }
  return stem;
}

static void open_folder(Output *output, const char *path) {
  const char *slash = strrchr(path, '/');
  output->name = slash ? slash + 1 : path;
  errno = EISDIR;
  if (!*output->name || same_text(output->name, ".") || same_text(output->name, "..")) output_fail(output, "write");
  output->stem = stem_of(output->context, output->name);
  const char *folder = folder_of(output->context, path);
  output->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
#ifdef O_PATH
  if (output->folder < 0 && errno == EACCES) output->folder = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
#endif
  if (output->folder < 0) output_fail(output, "write");
}

/* Root may write to a file that nobody may write to, but whoever made it so did not want that. */
static void check_writable(const Output *output) {
  errno = EACCES;
  if (!(output->status.st_mode & 0222)) output_fail(output, "replace the read-only file");
  if (faccessat(output->folder, output->name, W_OK, AT_EACCESS) != 0) output_fail(output, "write");
}

/* False: there is nothing of that name. */
static bool found(const Output *output, int result) {
  if (result != 0 && errno != ENOENT) output_fail(output, "write");
  return result == 0;
}

static bool is_elsewhere(const Output *output) {
  struct stat given, own;
  return !found(output, stat(folder_of(output->context, output->path), &given)) ||
         !found(output, fstat(output->folder, &own)) || !same_file(&given, &own);
}

/* The file that is made or replaced; NULL: what is there is written to as it is.
 *
 * A name such as /dev/fd/3 is a link whose text need not lead to what is open there, however often one looks. Other
 * links may seem to lead elsewhere when another output replaces the file between two looks. */
static const char *find_file(const Output *output) {
  enum { MOST_LOOKS = 100 };
  for (int i = 0; i < MOST_LOOKS; i++) {
    struct stat given, own;
    bool exists = found(output, stat(output->path, &given));
    errno = EISDIR;
    if (exists && S_ISDIR(given.st_mode)) output_fail(output, "write");
    if (exists && !S_ISREG(given.st_mode)) return NULL;
    const char *path = followed(output, output->path);
    bool is_link = path != output->path;
    if (!exists || !is_link || (found(output, stat(path, &own)) && same_file(&given, &own))) return path;
  }
  return NULL;
}

void output_find_target(Output *output) {
  const char *path = find_file(output);
  if (!path) return;
  open_folder(output, path);
  output->exists = found(output, fstatat(output->folder, output->name, &output->status, AT_SYMLINK_NOFOLLOW));
  if (output->exists) check_writable(output);
  output->elsewhere = path != output->path && is_elsewhere(output);
}
