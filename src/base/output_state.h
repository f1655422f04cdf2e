/* What the files of output share. */
#ifndef J2O_BASE_OUTPUT_STATE_H
#define J2O_BASE_OUTPUT_STATE_H

#include <sys/stat.h>

#include "base/output.h"

struct OutputFile {
  Output *output;
  OutputFile *next;      /* of the companions */
  int descriptor;        /* holds a lock, which tells that the writer lives; -1: closed */
  const char *temporary; /* its name on the disk for now, or NULL */
  const char *name;      /* the final one, or NULL */
  bool claimed;          /* the final name is on the disk, and goes when there is no commit */
  bool kept;             /* was there before; status is what it was when it was compared */
  struct stat status;
  bool direct, never_direct; /* the descriptor goes around the system's cache; it cannot */
  uint64_t *watched;         /* where bytes are counted, or NULL */
  uint64_t size, flushed;    /* bytes written, and of these: on their way to the disk */
};

struct Output {
  Cleanup cleanup;
  Context *context;
  OutputOptions options;
  const char *path; /* as it was given: messages name it */
  int folder;       /* of the file that is written; -1: a stream */
  const char *name; /* in that folder */
  const char *stem;
  bool elsewhere;
  bool exists;
  struct stat status; /* of the file that is replaced */
  OutputFile *main, *companions;
  int lock;    /* -1: not held */
  int awaited; /* a lock that another output may hold; -1: none */
  int dead;    /* what is left of an output, locked while it is removed; -1: none */
  const char *lock_name;
  bool swept, committed;
};

/* errno tells why. */
_Noreturn void output_fail(const Output *output, const char *what);

/* output_target.c: fills in where the path leads. */
void output_find_target(Output *output);

/* output_sweep.c */

/* A file in the folder, told from another that took its name meanwhile. */
typedef struct Beside {
  Str name;
  dev_t device;
  ino_t inode;
} Beside;
typedef ARRAY(Beside) BesideList;

enum { LONGEST_SHOWN = 180 /* bytes of the main file's name in a temporary one's: names end at 255 */ };
const char *output_hidden_name(const Output *output, const char *ending);

/* Whether the descriptor's file is the one of that name. */
bool output_still_named(const Output *output, const char *name, int descriptor);

/* The companions that a main file of that name has, each found to be a file of the size that the main file says. False:
 * there may be more, what could tell cannot be read. */
bool output_companions_of(const Output *output, const char *name, BesideList *list);
bool output_lists(const BesideList *list, const char *name);
bool output_remove(const Output *output, const Beside *file); /* false: it may still be there */

/* Removes what outputs to this path left that are no more. With the lock held, also what they had named already. */
void output_sweep(Output *output);

#endif
