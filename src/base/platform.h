/* Platform: what the operating system gives, behind one door. Files in memory, mapped where that is possible. */
#ifndef J2O_BASE_PLATFORM_H
#define J2O_BASE_PLATFORM_H

#include "base/context.h"

typedef struct MappedFile {
  const unsigned char *data;
  size_t size;
  void *allocated; /* the bytes of something that cannot be mapped, such as a pipe; else NULL */
} MappedFile;

/* Fails with ERROR_IO. The mapping must outlive every model read from it. */
void file_map(Context *context, const char *path, MappedFile *file);
void file_unmap(MappedFile *file);

#endif
