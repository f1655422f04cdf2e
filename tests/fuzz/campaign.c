/* A campaign: models of the corpus, changed at random and given to every command. The same seed gives the same inputs.
 *
 * usage: j2o_fuzz --seconds N [--seed S] FOLDER FILE…   until so many seconds have passed
 *        j2o_fuzz --only N --seed S FOLDER FILE…        the input of that number again
 *
 * FILE is one of tests/fuzz/corpus: two bytes (a command, and where the rest is cut), a model, a second file. What is
 * found is written to FOLDER as found.model and found.other, with the number. */
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

typedef struct Campaign {
  Seed *seeds;
  size_t count;
  uint64_t seed;
  double seconds;
  long long only; /* -1: all */
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
  fwrite(bytes->data, 1, bytes->size, file);
  fclose(file);
}

void input_was_bad(void) {
  write_down("found.model", &input.model);
  write_down("found.other", &input.other);
  fprintf(stderr, "again with: --only %lld --seed %llu; the files are %s/found.*\n", input.number,
          (unsigned long long)input.seed, input.folder);
}

static Bytes copy_of(const uint8_t *data, size_t size) {
  Bytes copy = {malloc(size + 1), size};
  if (!copy.data) abort();
  if (size) memcpy(copy.data, data, size);
  return copy;
}

static void read_seed(const char *path, Seed *seed) {
  FILE *file = fopen(path, "rb");
  static uint8_t data[1 << 20];
  size_t size = file ? fread(data, 1, sizeof data, file) : 0;
  if (size < 3) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(2);
  }
  fclose(file);
  size_t left = size - 2, cut = left - left * data[1] / 255;
  *seed = (Seed){copy_of(data + 2, cut), copy_of(data + 2 + cut, left - cut), data[0]};
}

static const Seed *pick(const Campaign *campaign, Random *random) {
  return &campaign->seeds[random_below(random, campaign->count)];
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
  const Seed *second = random_below(random, 2) ? seed : pick(campaign, random);
  bool same = random_below(random, 4) == 0; /* diff and graft have more to do with models that are alike */
  input.other = same ? copy_of(seed->model.data, seed->model.size) : copy_of(second->other.data, second->other.size);
  for (size_t i = 1 + random_below(random, 4); i--;) {
    Bytes *chosen = input.other.size && random_below(random, 4) == 0 ? &input.other : &input.model;
    mutate(random, chosen, &pick(campaign, random)->model);
  }
  size_t command = random_below(random, 3) ? random_below(random, command_count) : seed->command;
  check_command(command, input.model.data, input.model.size, input.other.data, input.other.size);
}

static void try_number(const Campaign *campaign, long long number) {
  Random random = {campaign->seed * 0x9E3779B97F4A7C15u + (uint64_t)number};
  random_next(&random);
  input.number = number;
  const Seed *seed = pick(campaign, &random);
  if (random_below(&random, 5) == 0) try_difference(&random, seed);
  else try_mutant(campaign, &random, seed);
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
  long long number = campaign->only >= 0 ? campaign->only : 0;
  for (;; number++) {
    try_number(campaign, number);
    double time = now();
    if (campaign->only >= 0 || time - start >= campaign->seconds) break;
    if (time - told < 60) continue;
    printf("%lld inputs in %.0f s\n", number + 1, time - start);
    fflush(stdout);
    told = time;
  }
  printf("%lld inputs of seed %llu in %.0f s, nothing found\n", campaign->only >= 0 ? 1 : number + 1,
         (unsigned long long)campaign->seed, now() - start);
}

int main(int argc, char **argv) {
  Campaign campaign = {.seconds = 60, .only = -1};
  int at = 1;
  for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
    if (strcmp(argv[at], "--seconds") == 0) campaign.seconds = strtod(argv[at + 1], NULL);
    else if (strcmp(argv[at], "--seed") == 0) campaign.seed = strtoull(argv[at + 1], NULL, 10);
    else if (strcmp(argv[at], "--only") == 0) campaign.only = strtoll(argv[at + 1], NULL, 10);
  }
  if (argc - at < 2) {
    fputs("usage: j2o_fuzz [--seconds N] [--seed S] [--only N] FOLDER FILE...\n", stderr);
    return 2;
  }
  campaign.folder = argv[at++];
  campaign.count = (size_t)(argc - at);
  campaign.seeds = calloc(campaign.count, sizeof *campaign.seeds);
  if (!campaign.seeds) return 2;
  for (size_t i = 0; i < campaign.count; i++) read_seed(argv[at + (int)i], &campaign.seeds[i]);
  input.folder = campaign.folder;
  input.seed = campaign.seed;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_set_death_callback(input_was_bad);
#endif
  run(&campaign);
  for (size_t i = 0; i < campaign.count; i++) {
    free(campaign.seeds[i].model.data);
    free(campaign.seeds[i].other.data);
  }
  free(campaign.seeds);
  return 0;
}
