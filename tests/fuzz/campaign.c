/* A campaign: models of the corpus and texts of the text tests, changed at random and given to every command. The same
 * seed gives the same inputs.
 *
 * usage: j2o_fuzz --seconds N [--seed S] [--from N] FOLDER FILE…   until so many seconds have passed
 *        j2o_fuzz --only N --seed S FOLDER FILE…                   the input of that number again
 *
 * FILE is one of tests/fuzz/corpus: two bytes (a command, and where the rest is cut), a model, a second file; a record
 * (.record); or one of the text tests (.txt), whose cases are a seed each. What is found is written to FOLDER as
 * found.model and found.other, with the number. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#include "command_harness.h"
#include "mutate.h"

typedef struct Seed {
  Bytes model, other;
  size_t command;
} Seed;

typedef struct Seeds {
  Seed *items;
  size_t count;
} Seeds;

typedef struct Campaign {
  Seeds models, texts;
  uint64_t seed;
  double seconds;
  long long from, only; /* only: -1 for all */
  const char *folder;
} Campaign;

/* The input at hand, for whoever has to write it down: a sanitizer calls back without arguments. */
static struct Input {
  const char *folder;
  uint64_t seed;
  long long number;
  Bytes model, other;
} input;

static void write_down(const char *name, const Bytes *bytes) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", input.folder, name);
  FILE *file = fopen(path, "wb");
  if (!file) return;
  if (bytes->size) fwrite(bytes->data, 1, bytes->size, file);
  fclose(file);
}

static void input_was_bad(void) {
  write_down("found.model", &input.model);
  write_down("found.other", &input.other);
  fprintf(stderr, "again with: --only %lld --seed %llu; the files are %s/found.*\n", input.number,
          (unsigned long long)input.seed, input.folder);
}

static void aborted(int number) {
  input_was_bad();
  signal(number, SIG_DFL);
  raise(number);
}

static Bytes copy_of(const uint8_t *data, size_t size) {
  Bytes copy = {malloc(size + 1), size};
  if (!copy.data) abort();
  if (size) memcpy(copy.data, data, size);
  return copy;
}

static void add_seed(Seeds *seeds, Seed seed) {
  seeds->items = realloc(seeds->items, (seeds->count + 1) * sizeof *seeds->items);
  if (!seeds->items) abort();
  seeds->items[seeds->count++] = seed;
}

static size_t read_whole(const char *path, uint8_t *data, size_t most) {
  FILE *file = fopen(path, "rb");
  size_t size = file ? fread(data, 1, most, file) : 0;
  if (size < 3) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(2);
  }
  fclose(file);
  return size;
}

static const char *line_behind(const char *line) {
  const char *stop = strchr(line, '\n');
  return stop ? stop + 1 : line + strlen(line);
}

/* "pass: fuse_softmax": settings stand before the text. */
static bool is_setting(const char *line) {
  size_t word = strspn(line, "abcdefghijklmnopqrstuvwxyz_");
  return word && line[word] == ':';
}

/* The input of every case, from its name to the line of dashes. */
static void read_cases(const char *text, Seeds *seeds) {
  for (const char *at = text; (at = strstr(at, "\n=== "));) {
    const char *start = line_behind(at + 1);
    while (is_setting(start)) start = line_behind(start);
    at = strstr(start, "\n---");
    if (!at) break;
    add_seed(seeds, (Seed){.model = copy_of((const uint8_t *)start, (size_t)(at + 1 - start))});
  }
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), of_end = strlen(end);
  return length > of_end && strcmp(text + length - of_end, end) == 0;
}

static void read_seeds(const char *path, Campaign *campaign) {
  static uint8_t data[1 << 20];
  size_t size = read_whole(path, data, sizeof data - 1);
  data[size] = 0;
  if (ends_with(path, ".txt")) {
    read_cases((const char *)data, &campaign->texts);
    return;
  }
  if (ends_with(path, ".record")) {
    add_seed(&campaign->texts, (Seed){.model = copy_of(data, size)});
    return;
  }
  size_t left = size - 2, cut = left - left * data[1] / 255;
  add_seed(&campaign->models, (Seed){copy_of(data + 2, cut), copy_of(data + 2 + cut, left - cut), data[0]});
}

static const Seed *pick(const Seeds *seeds, Random *random) {
  return &seeds->items[random_below(random, seeds->count)];
}

/* A seed with one change of its meaning against itself. */
static void try_difference(Random *random, const Seed *seed) {
  input.model = copy_of(seed->model.data, seed->model.size);
  input.other = copy_of(seed->model.data, seed->model.size);
  bool changed = change_meaning(random, &input.other);
  bool differs =
      input.other.size != input.model.size || memcmp(input.other.data, input.model.data, input.model.size) != 0;
  if (changed && differs) {
    check_difference(input.model.data, input.model.size, input.other.data, input.other.size);
    check_difference(input.other.data, input.other.size, input.model.data, input.model.size);
  }
}

static void try_mutant(const Campaign *campaign, Random *random, const Seed *seed) {
  input.model = copy_of(seed->model.data, seed->model.size);
  const Seed *second = random_below(random, 2) ? seed : pick(&campaign->models, random);
  bool same = random_below(random, 4) == 0; /* diff and graft have more to do with models that are alike */
  input.other = same ? copy_of(seed->model.data, seed->model.size) : copy_of(second->other.data, second->other.size);
  for (size_t i = 1 + random_below(random, 4); i--;) {
    Bytes *chosen = input.other.size && random_below(random, 4) == 0 ? &input.other : &input.model;
    mutate(random, chosen, &pick(&campaign->models, random)->model);
  }
  size_t command = random_below(random, 3) ? random_below(random, command_count) : seed->command;
  check_command(command, input.model.data, input.model.size, input.other.data, input.other.size);
}

static void try_text(const Campaign *campaign, Random *random) {
  const Seed *seed = pick(&campaign->texts, random);
  input.model = copy_of(seed->model.data, seed->model.size);
  for (size_t i = 1 + random_below(random, 4); i--;) {
    mutate_text(random, &input.model, &pick(&campaign->texts, random)->model);
  }
  check_text_command(random_below(random, text_command_count), input.model.data, input.model.size);
}

static void try_number(const Campaign *campaign, long long number) {
  Random random = {campaign->seed * 0x9E3779B97F4A7C15u + (uint64_t)number};
  random_next(&random);
  input.number = number;
  size_t choice = random_below(&random, 8);
  if (campaign->texts.count && (choice < 3 || !campaign->models.count)) try_text(campaign, &random);
  else if (choice < 4) try_difference(&random, pick(&campaign->models, &random));
  else try_mutant(campaign, &random, pick(&campaign->models, &random));
  free(input.model.data);
  free(input.other.data);
  input.model = input.other = (Bytes){NULL, 0};
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void run(const Campaign *campaign) {
  double start = now(), told = start;
  long long number = campaign->only >= 0 ? campaign->only : campaign->from;
  for (;; number++) {
    try_number(campaign, number);
    double time = now();
    if (campaign->only >= 0 || time - start >= campaign->seconds) break;
    if (time - told < 60) continue;
    printf("%lld inputs in %.0f s\n", number + 1, time - start);
    fflush(stdout);
    told = time;
  }
  printf("%lld inputs of seed %llu in %.0f s, nothing found\n", campaign->only >= 0 ? 1 : number + 1 - campaign->from,
         (unsigned long long)campaign->seed, now() - start);
}

static void release(Seeds *seeds) {
  for (size_t i = 0; i < seeds->count; i++) {
    free(seeds->items[i].model.data);
    free(seeds->items[i].other.data);
  }
  free(seeds->items);
}

int main(int argc, char **argv) {
  Campaign campaign = {.seconds = 60, .only = -1};
  int at = 1;
  for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
    if (strcmp(argv[at], "--seconds") == 0) campaign.seconds = strtod(argv[at + 1], NULL);
    else if (strcmp(argv[at], "--seed") == 0) campaign.seed = strtoull(argv[at + 1], NULL, 10);
    else if (strcmp(argv[at], "--from") == 0) campaign.from = strtoll(argv[at + 1], NULL, 10);
    else if (strcmp(argv[at], "--only") == 0) campaign.only = strtoll(argv[at + 1], NULL, 10);
  }
  if (argc - at < 2) {
    fputs("usage: j2o_fuzz [--seconds N] [--seed S] [--from N] [--only N] FOLDER FILE...\n", stderr);
    return 2;
  }
  campaign.folder = argv[at++];
  for (; at < argc; at++) read_seeds(argv[at], &campaign);
  input.folder = campaign.folder;
  input.seed = campaign.seed;
  signal(SIGABRT, aborted); /* UBSan and the harness */
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(input_was_bad);
#endif
  run(&campaign);
  release(&campaign.models);
  release(&campaign.texts);
  return 0;
}
