/* Output: large portions that go around the system's cache, and what lies between them. */
#include "base/output.h"

#include <stdlib.h>
#include <unistd.h>

#include "test.h"

enum { PAGE = 4096, LARGE = (9 << 20) + 5 * PAGE + 7 };

typedef struct Writing {
  Context context;
  char path[440];
  const unsigned char *memory; /* on a page */
  const size_t (*parts)[2];    /* offset in the memory, size; they end with a size of 0 */
} Writing;

static void write_parts(void *argument) {
  Writing *writing = argument;
  Output *output = output_open(&writing->context, writing->path, &(OutputOptions){0});
  OutputFile *file = output_main(output);
  for (size_t i = 0; writing->parts[i][1]; i++) {
    struct iovec part = {(void *)(uintptr_t)(writing->memory + writing->parts[i][0]), writing->parts[i][1]};
    output_write(file, &part, 1);
  }
  CHECK(output_commit(output));
}

static void check_file(const Writing *writing) {
  static unsigned char read[LARGE];
  FILE *file = fopen(writing->path, "rb");
  CHECK(file != NULL);
  if (!file) return;
  for (size_t i = 0; writing->parts[i][1]; i++) {
    size_t size = writing->parts[i][1];
    CHECK(fread(read, 1, size, file) == size && memcmp(read, writing->memory + writing->parts[i][0], size) == 0);
  }
  CHECK(fgetc(file) == EOF);
  fclose(file);
}

/* Whole pages from a page on, with an odd end, from odd places, behind odd beginnings. */
static const size_t whole[][2] = {{0, PAGE}, {0, 2 << 20}, {PAGE, 8 << 20}, {0, 0}};
static const size_t odd_end[][2] = {{0, LARGE}, {3, 9}, {0, 2 << 20}, {0, 0}};
static const size_t odd_start[][2] = {{1, 2 << 20}, {PAGE, 2 << 20}, {0, 0}};
static const size_t mixed[][2] = {{0, 2 << 20}, {0, 7},       {0, PAGE - 7}, {PAGE, 2 << 20},
                                  {5, PAGE},    {0, 3 << 20}, {0, 0}};
static const size_t (*const all[])[2] = {whole, odd_end, odd_start, mixed};

static void write_in(const char *folder, const unsigned char *memory) {
  char root[400];
  snprintf(root, sizeof root, "%s/j2o_output_XXXXXX", folder);
  CHECK(mkdtemp(root) != NULL);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    Writing writing = {.memory = memory, .parts = all[i]};
    snprintf(writing.path, sizeof writing.path, "%s/file", root);
    context_init(&writing.context);
    CHECK(context_protect(&writing.context, write_parts, &writing));
    context_release(&writing.context);
    check_file(&writing);
  }
  char path[440];
  snprintf(path, sizeof path, "%s/file", root);
  CHECK(remove(path) == 0 && remove(root) == 0);
}

static void large_portions_are_written_whole(void) {
  unsigned char *memory = aligned_alloc(PAGE, LARGE / PAGE * PAGE + PAGE);
  CHECK(memory != NULL);
  if (!memory) return;
  uint32_t seed = 1;
  for (size_t i = 0; i < LARGE; i++) memory[i] = (unsigned char)((seed = seed * 1664525 + 1013904223) >> 24);
  const char *folder = getenv("TMPDIR"), *in_memory = "/dev/shm"; /* one that knows of no disk, where there is one */
  write_in(folder && *folder ? folder : P_tmpdir, memory);
  if (access(in_memory, W_OK) == 0) write_in(in_memory, memory);
  free(memory);
}

const Test output_tests[] = {
    {"large_portions_are_written_whole", large_portions_are_written_whole},
    {0},
};
