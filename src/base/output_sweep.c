/* What belongs to a file beside it, and what outputs that are no more have left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/output_state.h"

enum { TOKEN = 16 /* hexadecimal digits that tell temporary files apart */ };

static int shown_length(const char *name) {
  size_t length = strlen(name);
  if (length <= LONGEST_SHOWN) return (int)length;
  length = LONGEST_SHOWN;
  while (length && ((unsigned char)name[length] & 0xC0) == 0x80) length--; /* never half a character */
  return (int)length;
}

const char *output_hidden_name(const Output *output, const char *ending) {
  return arena_format(&output->context->arena, ".%.*s.%s", shown_length(output->name), output->name, ending);
}

/* The ending of a temporary file of this output's path; NULL for any other name. */
static const char *temporary_ending(const Output *output, const char *name) {
  size_t shown = (size_t)shown_length(output->name);
  if (name[0] != '.' || strncmp(name + 1, output->name, shown) != 0 || name[shown + 1] != '.') return NULL;
  const char *token = name + shown + 2;
  if (strspn(token, "0123456789abcdef") != TOKEN || token[TOKEN] != '.') return NULL;
  return token + TOKEN + 1;
}

bool output_still_named(const Output *output, const char *name, int descriptor) {
  struct stat open_file, named;
  return fstat(descriptor, &open_file) == 0 && fstatat(output->folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

/* A plain file; -1 for anything else, with errno 0 when it is certain that there is none. Never waits, as opening a
 * pipe would. */
static int open_beside(const Output *output, const char *name, struct stat *status) {
  int descriptor = openat(output->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ELOOP) errno = 0;
    return -1;
  }
  bool known = fstat(descriptor, status) == 0;
  if (known && S_ISREG(status->st_mode)) return descriptor;
  close(descriptor);
  errno = known ? 0 : EIO;
  return -1;
}

typedef struct Finding {
  const Output *output;
  const MappedFile *file;
  CompanionList found;
} Finding;

static void find(void *argument) {
  Finding *finding = argument;
  finding->output->options.find_companions(finding->output->context, finding->file, &finding->found);
}

static bool is_name_of_companion(const Output *output, const char *name) {
  size_t length = strlen(output->stem);
  return strncmp(name, output->stem, length) == 0 && name[length] == '.' && name[length + 1] && !strchr(name, '/');
}

static bool add_companion(const Output *output, BesideList *list, const Companion *companion) {
  if (!is_name_of_companion(output, companion->name) || output_lists(list, companion->name)) return true;
  struct stat status;
  int descriptor = open_beside(output, companion->name, &status);
  if (descriptor < 0) return errno == 0;
  close(descriptor);
  if ((uint64_t)status.st_size != companion->size) return true;
  array_push(output->context, list, ((Beside){companion->name, status.st_dev, status.st_ino}));
  return true;
}

bool output_companions_of(const Output *output, const char *name, BesideList *list) {
  *list = (BesideList){0};
  struct stat status;
  if (!output->options.find_companions) return true;
  int descriptor = open_beside(output, name, &status);
  if (descriptor < 0) return errno == 0;
  MappedFile file;
  bool mapped = file_map_descriptor(descriptor, &file);
  close(descriptor);
  if (!mapped) return false;
  Finding finding = {.output = output, .file = &file};
  bool whole = context_protect(output->context, find, &finding); /* else it is no model */
  bool known = !file_is_torn(&file);
  file_unmap(&file);
  for (size_t i = 0; whole && known && i < finding.found.count; i++) {
    known = add_companion(output, list, &finding.found.items[i]);
  }
  return known;
}

bool output_lists(const BesideList *list, const char *name) {
  for (size_t i = 0; i < list->count; i++) {
    if (same_text(list->items[i].name, name)) return true;
  }
  return false;
}

bool output_remove(const Output *output, const Beside *file) {
  struct stat status;
  if (fstatat(output->folder, file->name, &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  bool other = status.st_dev != file->device || status.st_ino != file->inode;
  return other || unlinkat(output->folder, file->name, 0) == 0 || errno == ENOENT;
}

/* ---- what is left of the dead ---- */

typedef ARRAY(Str) NameList;

typedef struct OpenFolder {
  Cleanup cleanup;
  DIR *entries;
} OpenFolder;

static void close_folder(Cleanup *cleanup) { closedir(((OpenFolder *)(void *)cleanup)->entries); }

static bool may_sweep(const Output *output, const char *name) {
  const char *ending = temporary_ending(output, name);
  return ending && (same_text(ending, "part") || (same_text(ending, "tmp") && output->lock >= 0));
}

static NameList find_temporaries(const Output *output) {
  NameList names = {0};
  int descriptor = openat(output->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return names;
  OpenFolder folder = {.cleanup.run = close_folder, .entries = fdopendir(descriptor)};
  if (!folder.entries) {
    close(descriptor);
    return names;
  }
  cleanup_push(output->context, &folder.cleanup);
  for (const struct dirent *entry; (entry = readdir(folder.entries));) {
    if (!may_sweep(output, entry->d_name)) continue;
    array_push(output->context, &names, str_intern(output->context, entry->d_name));
  }
  cleanup_drop(output->context, &folder.cleanup);
  closedir(folder.entries);
  return names;
}

/* Whoever writes a temporary file holds a lock on it. -1: its writer lives. Else the lock is ours until the file is
 * gone: one that was just made may have a writer who waits for it, and makes another then. */
static int lock_dead(const Output *output, const char *name) {
  struct stat status;
  int descriptor = open_beside(output, name, &status);
  if (descriptor < 0) return -1;
  bool dead = status.st_uid == geteuid() && flock(descriptor, LOCK_EX | LOCK_NB) == 0 &&
              output_still_named(output, name, descriptor);
  if (dead) return descriptor;
  close(descriptor);
  return -1;
}

/* Either a killed output had named these files and not yet the main one, or it had replaced this main file and was
 * about to remove them. False: that cannot be told now, and the temporary file stays for the next to look at. */
static bool remove_companions(const Output *output, const char *name) {
  BesideList theirs, current;
  if (!output_companions_of(output, name, &theirs)) return false;
  if (theirs.count && !output_companions_of(output, output->name, &current)) return false;
  bool removed = true;
  for (size_t i = 0; i < theirs.count; i++) {
    if (!output_lists(&current, theirs.items[i].name)) removed = output_remove(output, &theirs.items[i]) && removed;
  }
  return removed;
}

void output_sweep(Output *output) {
  if (output->swept) return;
  output->swept = true;
  NameList names = find_temporaries(output);
  for (size_t i = 0; i < names.count; i++) {
    output->dead = lock_dead(output, names.items[i]);
    if (output->dead < 0) continue;
    if (output->lock < 0 || remove_companions(output, names.items[i])) unlinkat(output->folder, names.items[i], 0);
    close(output->dead);
    output->dead = -1;
  }
}
