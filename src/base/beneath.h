/* Opening files whose names somebody else chose, such as those that a model holds. */
#ifndef J2O_BASE_BENEATH_H
#define J2O_BASE_BENEATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A plain file, to be read and closed by the caller. */
typedef struct OpenFile {
  int descriptor; /* -1: there is none, or it may not be read */
  uint64_t size;
  uint64_t device, inode; /* which file it is, whatever it is called */
} OpenFile;

/* The file of this name in a folder or below it. A name that leads out of the folder, by "..", by being absolute or
 * through a link, is not opened, nor is a file that is itself a link, nor anything that is not a plain file. */
OpenFile open_beneath(const char *folder, const char *name);
/* The same without the kernel's help, as other systems have it: follows no link at all. */
OpenFile open_beneath_by_parts(const char *folder, const char *name);
/* A file that the user named: any plain one. */
OpenFile open_named(const char *path);
void close_file(OpenFile *file);

/* Reads up to `size` bytes from there; fewer only where the file ends. False when reading fails. */
bool read_at(const OpenFile *file, uint64_t offset, void *bytes, size_t size, size_t *got);

#endif
