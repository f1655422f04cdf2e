/* Output: files that appear whole or not at all.
 *
 * Bytes go to temporary files beside the final ones, under names that nobody can guess. The rename of the main file is
 * the one commit: before it readers find what was there, after it what is new, and whoever is killed at any point
 * leaves one of the two. A companion (a model's second file) takes a name that no file has, and then the main file,
 * which is whole by then and refers to it by that name, its own; what the replaced file alone referred to goes after
 * the commit. A temporary main file thus always tells what a killed output may have left besides.
 *
 * Outputs to one path do not disturb each other, be they of threads, processes or containers: from the naming of
 * companions to the end of the commit a lock file is held, and the last one wins. Files of outputs that were killed are
 * removed by the next one to the same path.
 *
 * A file that is replaced keeps its mode; one that is read-only is refused; a link stays, and what it names is
 * replaced. A device or a pipe is written to as it is, and never replaced.
 */
#ifndef J2O_BASE_OUTPUT_H
#define J2O_BASE_OUTPUT_H

#ifdef _WIN32
#include <stddef.h>
struct iovec {
  void *iov_base;
  size_t iov_len;
};
#else
#include <sys/uio.h>
#endif

#include "base/array.h"
#include "base/platform.h"

/* What a main file says of a file beside it that belongs to it alone. */
typedef struct Companion {
  Str name;
  uint64_t size;
} Companion;
typedef ARRAY(Companion) CompanionList;

/* May fail: a file that cannot be read has no companions. */
typedef void FindCompanions(Context *context, const MappedFile *main, CompanionList *found);

typedef struct OutputOptions {
  bool skip_sync; /* the files need not survive a crash of the machine */
  /* A companion takes its first name even where a file has it. Gives up the one commit: a kill between two renames
   * leaves the old main file with the new companion, and what else bore the name is lost. */
  bool fixed_names;
  FindCompanions *find_companions; /* NULL: of files of this kind none is ever removed */
} OutputOptions;

typedef struct Output Output;
typedef struct OutputFile OutputFile;

/* All of these fail with ERROR_IO; temporary files are gone when an error has unwound. */
Output *output_open(Context *context, const char *path, const OutputOptions *options);
bool output_is_stream(const Output *output);    /* a device or a pipe: there can be no companion */
bool output_is_elsewhere(const Output *output); /* the path is a link into another folder */
const char *output_stem(const Output *output);  /* what the names of companions begin with; valid UTF-8 */

/* The main file is begun last. Its temporary name is hidden and in the same folder, like the companions'. */
OutputFile *output_main(Output *output);
OutputFile *output_companion(Output *output);
void output_write(OutputFile *file, struct iovec *parts, int count); /* the parts are used up */
void output_watch(OutputFile *file, uint64_t *written); /* what is written from now on is added to it as it is */

/* Leaves room for bytes that somebody else writes, who finds the file by its temporary name. */
void output_skip(OutputFile *file, uint64_t size);
const char *output_temporary_name(const OutputFile *file);

/* A companion of the file that is replaced, where one has that size and is the same: it need not be written again.
 * NULL: none is. `same` asks output_same piece by piece. */
OutputFile *output_keep(Output *output, uint64_t size, bool (*same)(OutputFile *file, void *data), void *data);
bool output_same(const OutputFile *file, uint64_t offset, const void *bytes, size_t size);

/* A companion of that name that the file that is replaced has, and the new one too. */
void output_refer(Output *output, const char *name);

/* The name that a companion will have: "STEM.ENDING" when no file has it and the main file that is replaced has no
 * companions; else "STEM.TOKEN.ENDING", where the token tells by its letters what is in the file. So a name never comes
 * to stand for something else while readers are about, who may have opened the old main file and not yet its companion.
 * NULL: a file that was kept has changed since, and must be written. */
const char *output_choose_name(OutputFile *companion, const char *ending, const char *(*token)(void *data), void *data);

/* False: somebody has taken the name of a companion meanwhile. It must be chosen, and the main file written, again. */
bool output_commit(Output *output);

/* All of it for one file of bytes in memory. */
void output_bytes(Context *context, const char *path, const void *bytes, size_t size, const OutputOptions *options);

#endif
