/* Files by names that somebody else chose: none outside the folder is opened, with and without the kernel's help. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/beneath.h"
#include "test.h"

typedef struct Folder {
  char root[400], inside[440];
} Folder;

static void put(const char *folder, const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void put_link(const char *folder, const char *name, const char *target) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  CHECK(symlink(target, path) == 0);
}

/* root/secret, root/inside/{plain, folder/deep, links of every kind, a FIFO} */
static Folder make_folder(void) {
  Folder folder;
  const char *where = getenv("TMPDIR");
  char path[512];
  snprintf(folder.root, sizeof folder.root, "%s/j2o_beneath_XXXXXX", where && *where ? where : P_tmpdir);
  CHECK(mkdtemp(folder.root) != NULL);
  snprintf(folder.inside, sizeof folder.inside, "%s/inside", folder.root);
  snprintf(path, sizeof path, "%s/folder", folder.inside);
  CHECK(mkdir(folder.inside, 0700) == 0 && mkdir(path, 0700) == 0);
  put(folder.root, "secret", "secret");
  put(folder.inside, "plain", "plain");
  put(folder.inside, "folder/deep", "deep!");
  put_link(folder.inside, "out", "../secret");
  put_link(folder.inside, "absolute", folder.root);
  put_link(folder.inside, "up", "..");
  put_link(folder.inside, "near", "plain");
  snprintf(path, sizeof path, "%s/pipe", folder.inside);
  CHECK(mkfifo(path, 0600) == 0);
  return folder;
}

static void remove_folder(const Folder *folder) {
  static const char *const names[] = {"folder/deep", "folder", "plain", "out", "absolute", "up", "near", "pipe", ""};
  char path[512];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", folder->inside, names[i]);
    CHECK(remove(path) == 0);
  }
  snprintf(path, sizeof path, "%s/secret", folder->root);
  CHECK(remove(path) == 0 && remove(folder->root) == 0);
}

static bool reads(OpenFile (*open_it)(const char *, const char *), const Folder *folder, const char *name) {
  OpenFile file = open_it(folder->inside, name);
  char text[8] = "";
  size_t got = 0;
  bool opened = file.descriptor >= 0 && read_at(&file, 0, text, sizeof text - 1, &got) && got == 5 && file.size == 5;
  close_file(&file);
  return opened;
}

static void only_what_is_beneath_is_opened(void) {
  Folder folder = make_folder();
  OpenFile (*const ways[])(const char *, const char *) = {open_beneath, open_beneath_by_parts};
  static const char *const good[] = {"plain", "./plain", "folder/deep", "folder//deep"};
  static const char *const bad[] = {
      "",       "/",    "..",      "../secret", "folder/../../secret", "out",          "up/secret", "near",
      "folder", "pipe", "missing", "plain/x",   "absolute/secret",     "/etc/hostname"};
  char absolute[512];
  snprintf(absolute, sizeof absolute, "%s/plain", folder.inside);
  for (size_t way = 0; way < 2; way++) {
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) CHECK(reads(ways[way], &folder, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
      OpenFile file = ways[way](folder.inside, bad[i]);
      CHECK(file.descriptor < 0);
      close_file(&file);
    }
    CHECK(ways[way](folder.inside, absolute).descriptor < 0);
  }
  remove_folder(&folder);
}

static void reading_ends_where_the_file_does(void) {
  Folder folder = make_folder();
  OpenFile file = open_beneath(folder.inside, "plain");
  char text[8] = "";
  size_t got;
  CHECK(read_at(&file, 3, text, sizeof text, &got) && got == 2 && memcmp(text, "in", 2) == 0);
  CHECK(read_at(&file, 5, text, 1, &got) && got == 0);
  CHECK(read_at(&file, UINT64_MAX, text, 1, &got) && got == 0);
  close_file(&file);
  remove_folder(&folder);
}

const Test beneath_tests[] = {
    {"only_what_is_beneath_is_opened", only_what_is_beneath_is_opened},
    {"reading_ends_where_the_file_does", reading_ends_where_the_file_does},
    {0},
};
