/* Platform: what the operating system gives, behind one door. Files in memory, mapped where that is possible. */
#ifndef J2O_BASE_PLATFORM_H
#define J2O_BASE_PLATFORM_H

#include "base/context.h"

typedef struct Mapping Mapping; /* of this thread, for when its file is cut short */

typedef struct MappedFile {
  const unsigned char *data;
  size_t size;
  void *allocated; /* the bytes of something that cannot be mapped, such as a pipe; else NULL */
  Mapping *mapping;
} MappedFile;

/* Fails with ERROR_IO. The mapping must outlive every model read from it. */
void file_map(Context *context, const char *path, MappedFile *file);
void file_map_standard_input(Context *context, MappedFile *file);
void file_unmap(MappedFile *file);
bool path_exists(const char *path);

/* Of a plain file; false with errno set when that cannot be. */
bool file_map_descriptor(int descriptor, MappedFile *file);

/* Whether somebody cut the file short under the mapping: what was beyond its new end was read as zeros. */
bool file_is_torn(const MappedFile *file);

#endif
